#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The hooks on the host's diffusion transfer: which engine, buffer and manager the host gets."""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from pathlib import Path
from typing import Any, Iterator, Tuple

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

import standin  # noqa: E402
from lib import runner  # noqa: E402
from lib.runner import expect_equal, expect_raises  # noqa: E402
from lib.sglang_plans import actions_of, environment_with, logged, plan_of  # noqa: E402

_TRANSPORT = "sglang.multimodal_gen.runtime.disaggregation.transport"


class _Engine:
    def __init__(self, hostname: str = "127.0.0.1", gpu_id: int = 0, ib_device: Any = None) -> None:
        if gpu_id == 9:
            from convoy import errors

            raise errors.InvalidArgument("no such device")
        self.given = hostname, gpu_id, ib_device


class _Buffer:
    def __init__(self, pool_size: int, min_block_size: int = 1 << 20, role_name: str = "", device: str = "cpu") -> None:
        self.pool_size = pool_size


class _Manager:
    def __init__(self, engine: Any, buffer: Any) -> None:
        self.engine, self.buffer = engine, buffer


@contextlib.contextmanager
def _diffusion(shape: str, **environment: str) -> Iterator[Tuple[Any, Any, Any]]:
    """(engine module, buffer module, manager module) of the host, hooked, with classes in place of convoy's own."""
    fake: Any = types.ModuleType("convoy.sglang.diffusion")
    fake.ConvoyTransferEngine, fake.ConvoyTransferBuffer, fake.ConvoyTransferManager = _Engine, _Buffer, _Manager
    before = sys.modules.get(fake.__name__)
    sys.modules[fake.__name__] = fake
    try:
        with environment_with(**environment):
            standin.use(shape)
            sglang = importlib.import_module("convoy.sglang")
            own = shape == "today"  # the release before has one registry for both servers
            (sglang.register_diffusion if own else sglang.register)()
            registry = "sglang.multimodal_gen.plugins" if own else "sglang.srt.plugins.hook_registry"
            importlib.import_module(registry).HookRegistry.apply_hooks()
            engine, buffer, manager = (importlib.import_module("%s.%s" % (_TRANSPORT, n)) for n in ("engine", "buffer", "manager"))
            yield engine, buffer, manager
    finally:
        del sys.modules[fake.__name__]
        if before is not None:
            sys.modules[fake.__name__] = before


def test_sglang_plan_of_the_diffusion_server() -> None:
    targets = ["engine.create_transfer_engine", "buffer.TransferTensorBuffer", "manager.DiffusionTransferManager"]
    engine, buffer, manager = ["%s.%s" % (_TRANSPORT, target) for target in targets]
    for shape in ("today", "before"):
        standin.use(shape)
        expect_equal(actions_of(diffusion=True), {engine: "apply", buffer: "apply", manager: "apply"}, shape)
    without = actions_of({"CONVOY_HOOK_TRANSFER": "0"}, diffusion=True)
    expect_equal(without, {engine: "leave", buffer: "leave", manager: "leave"}, "a manager is nothing without the engine")
    alone = actions_of({"CONVOY_HOOK_TRANSFER_MANAGER": "0"}, diffusion=True)
    expect_equal(alone[engine], "apply", "the engine alone")


def test_sglang_diffusion_makes_engine_buffer_and_manager() -> None:
    for shape in ("today", "before"):
        with _diffusion(shape) as (engines, buffers, managers):
            engine = engines.create_transfer_engine(hostname="10.0.0.1", gpu_id=3, ib_device=None)
            expect_equal(engine.given, ("10.0.0.1", 3, None), "what the engine was made of")
            assert isinstance(engine, engines.BaseTransferEngine)
            buffer = buffers.TransferTensorBuffer(pool_size=1 << 20, role_name="encoder")
            assert isinstance(buffer, _Buffer) and isinstance(buffer, buffers.TransferTensorBuffer)
            manager = managers.DiffusionTransferManager(engine=engine, buffer=buffer)
            assert isinstance(manager, _Manager) and isinstance(manager, managers.DiffusionTransferManager)
            assert manager.engine is engine and manager.buffer is buffer and buffer.pool_size == 1 << 20
            assert managers.TransferTensorBuffer is buffers.TransferTensorBuffer, "a name that was imported"


def test_sglang_diffusion_backend_that_is_asked_for_stays_the_hosts() -> None:
    with _diffusion("today") as (engines, buffers, managers):
        engines.create_transfer_engine()
        for options in ({"force_mock": True}, {"backend": "mock"}):
            engine = engines.create_transfer_engine(**options)
            buffer = buffers.TransferTensorBuffer(pool_size=1 << 20)
            manager = managers.DiffusionTransferManager(engine, buffer)
            assert not isinstance(engine, _Engine) and not isinstance(buffer, _Buffer), options
            assert not isinstance(manager, _Manager) and manager.pool_size == 1 << 20, options
            assert isinstance(buffer, buffers.TransferTensorBuffer) and isinstance(manager, managers.DiffusionTransferManager)
        assert isinstance(engines.create_transfer_engine(backend="auto"), _Engine)


def test_sglang_diffusion_manager_goes_with_its_own_engine_whatever_was_made_last() -> None:
    with _diffusion("today") as (engines, buffers, managers):
        ours = engines.create_transfer_engine()
        our_buffer = buffers.TransferTensorBuffer(pool_size=1 << 20)
        hosts = engines.create_transfer_engine(force_mock=True)
        hosts_buffer = buffers.TransferTensorBuffer(pool_size=1 << 20)
        assert isinstance(managers.DiffusionTransferManager(ours, our_buffer), _Manager)
        assert not isinstance(managers.DiffusionTransferManager(buffer=hosts_buffer, engine=hosts), _Manager)
        engines.create_transfer_engine()
        assert not isinstance(managers.DiffusionTransferManager(hosts, hosts_buffer), _Manager)
        expect_raises(TypeError, lambda: managers.DiffusionTransferManager(ours))


def test_sglang_diffusion_engine_that_cannot_be_made() -> None:
    from convoy import errors

    with _diffusion("today") as (engines, buffers, _):
        expect_raises(errors.InvalidArgument, lambda: engines.create_transfer_engine(gpu_id=9))
    with _diffusion("today", CONVOY_FALLBACK="host") as (engines, buffers, _), logged() as log:
        assert not isinstance(engines.create_transfer_engine(gpu_id=9), _Engine)
        assert not isinstance(buffers.TransferTensorBuffer(pool_size=1 << 20), _Buffer)
        expect_equal(len(log.of("WARNING")), 1, "warnings: %s" % log.lines)


def test_sglang_diffusion_constructor_of_another_shape_stays() -> None:
    from convoy.sglang import _code, _transfer

    class Host:
        def __init__(self, engine: Any, buffer: Any, workers: int) -> None:
            pass

    text = str(expect_raises(_code.Unknown, lambda: _transfer.check_classes({_transfer.MANAGER: Host})))
    assert text.startswith("DiffusionTransferManager: expected parameters") and "workers" in text, text


def test_sglang_diffusion_classes_with_calls_that_nobody_knows_stay() -> None:
    def meta(self: Any) -> int:
        return 0

    def push_to_peer(self: Any, request_id: str, dest_session_id: str, dest_addr: int, size: int) -> bool:
        return False

    manager, buffer = "manager.DiffusionTransferManager", "buffer.TransferTensorBuffer"
    for kind, name, value, part in ((manager, "meta_pool_size", property(meta), "found meta_pool_size"),
                                    (manager, "start_background_loops", meta, "found start_background_loops"),
                                    (manager, "push_to_peer", push_to_peer, "dest_addr, size"),
                                    (buffer, "shared_memory_name", property(meta), "found shared_memory_name")):
        standin.use("today")
        module, _, owner = ("%s.%s" % (_TRANSPORT, kind)).rpartition(".")
        setattr(getattr(importlib.import_module(module), owner), name, value)
        action, reason = plan_of(diffusion=True)["%s.%s" % (_TRANSPORT, kind)]
        assert action == "warn" and part in reason, (action, reason)
        expect_equal(actions_of(diffusion=True)[_TRANSPORT + ".engine.create_transfer_engine"], "apply", "the engine")


def test_sglang_hooks_that_cannot_be_made_leave_the_host_alone() -> None:
    standin.use("today")
    before = sys.modules.get("convoy.sglang.diffusion")
    sys.modules["convoy.sglang.diffusion"] = None  # type: ignore[assignment]  # an import of it fails
    try:
        with logged() as log:
            from convoy.sglang import register_diffusion

            register_diffusion()
    finally:
        del sys.modules["convoy.sglang.diffusion"]
        if before is not None:
            sys.modules["convoy.sglang.diffusion"] = before
    expect_equal(sorted(importlib.import_module("sglang.multimodal_gen.plugins").HookRegistry._hooks), [], "hooks")
    assert log.of("WARNING") and "cannot be made" in log.of("WARNING")[0], log.lines


if __name__ == "__main__":
    runner.need("torch")
    runner.main(globals())
