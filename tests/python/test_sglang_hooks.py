#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the plugin for the host decides to hook, in each release, and that it leaves alone what it does not know."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import os
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Tuple

_HERE = Path(__file__).resolve().parent
_PACKAGE = _HERE.parents[1] / "plugin" / "python"
sys.path[:0] = [str(_HERE), str(_PACKAGE)]
os.environ.setdefault("CONVOY_LIBRARY", str(_HERE.parents[1] / "build" / "libconvoy.so.1"))

import standin  # noqa: E402
from lib import runner  # noqa: E402
from lib.runner import expect_equal, expect_raises  # noqa: E402

_UTILS = "sglang.srt.disaggregation.utils"
_GATHER = "sglang.srt.managers.scheduler_components.dp_attn.MLPSyncBatchInfo.all_gather"
_OLD_GATHER = "sglang.srt.managers.scheduler_dp_attn_mixin.MLPSyncBatchInfo.all_gather"
_CALLERS = ["poll_and_all_reduce", "poll_and_all_reduce_attn_cp_tp_group", "poll_and_all_reduce_with_staging"]
_TRANSPORT = "sglang.multimodal_gen.runtime.disaggregation.transport"


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: List[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append("%s %s" % (record.levelname, record.getMessage()))

    def of(self, level: str) -> List[str]:
        return [line for line in self.lines if line.startswith(level)]


@contextlib.contextmanager
def _log() -> Iterator[_Lines]:
    logger, lines = logging.getLogger("convoy.sglang"), _Lines()
    level, logger.propagate = logger.level, False
    logger.setLevel(logging.INFO)
    logger.addHandler(lines)
    try:
        yield lines
    finally:
        logger.removeHandler(lines)
        logger.setLevel(level)


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _plan(environment: Mapping[str, str] = {}, diffusion: bool = False) -> Dict[str, Tuple[str, str]]:
    """{target: (action, reason)}."""
    from convoy.sglang import _hooks, _host

    pieces = _hooks.DIFFUSION if diffusion else _hooks.SERVER
    return {d.target: (d.action, d.reason) for d in _host.decisions(_hooks.plan(pieces, environment, _host.find))}


def _actions(environment: Mapping[str, str] = {}, diffusion: bool = False) -> Dict[str, str]:
    return {target: action for target, (action, _) in _plan(environment, diffusion).items()}


def _registry() -> Any:
    return importlib.import_module("sglang.srt.plugins.hook_registry")


def _registered() -> List[str]:
    return sorted(_registry().HookRegistry._hooks)


def _register() -> None:
    from convoy.sglang import register

    register()
    _registry().HookRegistry.apply_hooks()


def test_sglang_plan_of_today_is_the_helper_and_the_gather() -> None:
    standin.use("today")
    expect_equal(_actions(), {_UTILS + "._all_reduce_polls": "apply", _GATHER: "apply"}, "the plan")


def test_sglang_plan_of_the_release_before_is_the_three_callers() -> None:
    standin.use("before")
    expected = {"%s.%s" % (_UTILS, name): "apply" for name in _CALLERS}
    expect_equal(_actions(), dict(expected, **{_OLD_GATHER: "apply"}), "the plan")


def test_sglang_plan_of_an_unknown_release_is_to_leave_it_and_says_why() -> None:
    standin.use("future")
    plan = _plan()
    expect_equal({action for action, _ in plan.values()}, {"warn"}, "actions")
    helper = plan[_UTILS + "._all_reduce_polls"][1]
    for part in ("expected parameters (polls, group)", "priority"):
        assert part in helper, helper


def test_sglang_unknown_release_keeps_the_very_same_functions() -> None:
    standin.use("future")
    utils = importlib.import_module(_UTILS)
    batch = importlib.import_module("sglang.srt.managers.scheduler_components.dp_attn").MLPSyncBatchInfo
    before, methods = dict(vars(utils)), dict(vars(batch))
    with _log() as log:
        _register()
    assert all(vars(utils)[name] is value for name, value in before.items())
    assert all(vars(batch)[name] is value for name, value in methods.items())
    expect_equal(_registered(), [], "what was registered")
    expect_equal(len(log.of("WARNING")), 2, "warnings: one per piece; %s" % log.lines)


def test_sglang_switches_leave_pieces_out() -> None:
    standin.use("today")
    helper = _UTILS + "._all_reduce_polls"
    expect_equal(_actions({"CONVOY_HOOK_POLL": "0"}), {helper: "leave", _GATHER: "apply"}, "without poll")
    expect_equal(_actions({"CONVOY_HOOK_GATHER": "0"}), {helper: "apply", _GATHER: "leave"}, "without gather")
    expect_equal(_actions({"CONVOY_HOOKS": "0"}), {helper: "leave", _GATHER: "leave"}, "without any")
    expect_equal(_actions({"CONVOY_HOOKS": "1", "CONVOY_HOOK_POLL": "1"}), {helper: "apply", _GATHER: "apply"}, "with all")
    expect_equal(_plan({"CONVOY_HOOK_POLL": "0"})[helper][1], "CONVOY_HOOK_POLL=0", "the reason")


def test_sglang_dry_run_prints_the_plan_and_registers_nothing() -> None:
    standin.use("today")
    with _environment(CONVOY_DRY_RUN="1"), contextlib.redirect_stderr(io.StringIO()) as text, _log() as log:
        _register()
    expect_equal(_registered(), [], "what was registered")
    for place in (text.getvalue(), "\n".join(log.lines)):
        assert "hook poll on %s._all_reduce_polls: applied (AROUND)" % _UTILS in place and _GATHER in place, place


def test_sglang_says_one_line_for_each_hook() -> None:
    standin.use("before")
    with _log() as log:
        _register()
    expect_equal(len(log.of("INFO")), 4, "lines: %s" % log.lines)
    expect_equal(log.of("WARNING"), [], "warnings")
    expect_equal(len(_registered()), 4, "hooks")


def test_sglang_without_a_host_there_is_one_line_and_no_error() -> None:
    text = _run_python("from convoy.sglang import register, register_diffusion as d; import logging; "
                       "logging.basicConfig(level=20); register(); d()")
    expect_equal(text.count("no hooks: no module sglang"), 2, text)
    assert "no hooks in sglang.srt.plugins.hook_registry: no module sglang" in _run_python("-m convoy.sglang")


def _run_python(what: str, *path: str) -> str:
    given = what.split() if what.startswith("-m") else ["-c", what]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join((str(_PACKAGE),) + path))
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, *given], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=120, text=True, cwd=folder)
    expect_equal(done.returncode, 0, "exit code; %s" % done.stdout)
    return done.stdout


def test_sglang_module_prints_the_plan() -> None:
    folder = _HERE / "standin"
    text = _run_python("-m convoy.sglang", str(folder / "today"), str(folder / "common"))
    assert "hook poll on %s._all_reduce_polls: applied (AROUND)" % _UTILS in text and "hook transfer" in text, text


def test_sglang_registry_of_another_shape_gets_no_hooks() -> None:
    standin.use("today")
    registry = _registry().HookRegistry
    registry.register = classmethod(lambda cls, target: None)
    with _log() as log:
        from convoy.sglang import register

        register()
    assert len(log.of("WARNING")) == 1 and "unknown shape of the registry" in log.lines[-1], log.lines


def test_sglang_module_that_cannot_be_imported_is_left_out() -> None:
    standin.use("today")
    with tempfile.TemporaryDirectory() as folder:
        broken = Path(folder) / "sglang" / "srt" / "disaggregation"
        broken.mkdir(parents=True)
        (broken / "utils.py").write_text("raise RuntimeError('no such device')\n")
        sys.path.insert(0, folder)
        try:
            action, reason = _plan()[_UTILS + "._all_reduce_polls"]
        finally:
            sys.path.remove(folder)
    assert action == "leave" and "no such device" in reason, (action, reason)


# -- what the code of a function tells --------------------------------------------------------------------------------


def _function(source: str, name: str = "f") -> Any:
    module = types.ModuleType("scene_code")
    exec("import torch\nimport torch.distributed as dist\nfrom torch.distributed import all_reduce\n" + source,
         module.__dict__)
    return vars(module)[name]


def _refusal(source: str) -> str:
    from convoy.sglang import _code

    function = _function(source)
    return str(expect_raises(_code.Unknown, lambda: _code.check_collectives(function, ("all_reduce",), (("all_reduce", "MIN"),))))


def test_sglang_code_that_reduces_in_a_known_way_passes() -> None:
    from convoy.sglang import _code

    for body in ("dist.all_reduce(x, op=dist.ReduceOp.MIN, group=g)",
                 "torch.distributed.all_reduce(x, op=torch.distributed.ReduceOp.MIN, group=g)",
                 "return [dist.all_reduce(y, dist.ReduceOp.MIN) for y in x]"):
        _code.check_collectives(_function("def f(x, g):\n    " + body), ("all_reduce",), (("all_reduce", "MIN"),))


def test_sglang_code_that_reduces_in_another_way_does_not() -> None:
    cases = {
        "dist.all_reduce(x, op=dist.ReduceOp.MAX)": "ReduceOp.MIN",
        "dist.all_reduce(x, op=dist.ReduceOp.MIN); dist.barrier()": "barrier",
        "return x": "found none",
        "all_reduce(x, dist.ReduceOp.MIN)": "as a global",
        "d = dist; d.all_reduce(x, d.ReduceOp.MIN)": "by attribute",
        "t = torch.distributed; t.all_reduce(x, t.ReduceOp.MIN)": "by attribute",
        "import torch.distributed as own; own.all_reduce(x, own.ReduceOp.MIN)": "import of torch",
        "global seen; seen = 1; dist.all_reduce(x, dist.ReduceOp.MIN)": "seen",
        "globals(); dist.all_reduce(x, dist.ReduceOp.MIN)": "globals",
    }
    for body, part in cases.items():
        text = _refusal("def f(x):\n    " + body)
        assert part in text, (body, text)


def test_sglang_parameters_are_compared_by_name_and_kind() -> None:
    from convoy.sglang import _code

    good = ("def f(a, b): pass", "def f(a, b, d=1): pass", "def f(a, b, c=1, d=1): pass")
    bad = ("def f(b, a): pass", "def f(a, b, d): pass", "def f(a, b, *, c=1): pass", "def f(a, b, *r): pass",
           "def f(a, b, d=1, c=1): pass", "def f(a): pass", "def f(a, b, e=1): pass")
    for source in good:
        _code.check_parameters(_function(source), ("a", "b"), ("c", "d"))
    for source in bad:
        expect_raises(_code.Unknown, lambda: _code.check_parameters(_function(source), ("a", "b"), ("c", "d")))


# -- copies and chains ------------------------------------------------------------------------------------------------


def test_sglang_copy_sees_stand_ins_and_its_module_as_it_is_now() -> None:
    from convoy.sglang import _copies

    assert _copies.works()
    source = ("real = object()\nnumber = 1\ndef g(): return real\n"
              "def f(a, b=2, *, c=3): return [real, (lambda: real)(), [real for _ in 'x'][0], number, len('ab'), b, c, g()]")
    function = _function(source)
    names = function.__globals__
    copy = _copies.copy_of(function, {id(names["real"]): "stand-in"})
    expect_equal(copy(0)[:7], ["stand-in"] * 3 + [1, 2, 2, 3], "the first call")
    assert copy(0)[7] is names["real"], "a function that is called sees its own module"
    names["number"], names["len"] = 5, lambda text: "own"
    expect_equal(copy(0)[3:5], [5, "own"], "after assignments in the module")
    assert function(0)[0] is names["real"], "the function itself is as it was"


def test_sglang_chain_of_others_runs_around_the_replacement() -> None:
    from convoy.sglang import _copies

    kind = _registry_chain()
    seen: List[str] = []

    def inner(x: int) -> int:
        """inner"""
        raise AssertionError("must not run")

    chain = kind("BEFORE", inner, lambda *a: seen.append("before"))
    chain = kind("AROUND", chain, lambda original, x: original(x) + 1)
    chain = kind("AFTER", chain, lambda result, x: seen.append("after %d" % result))
    changed = _copies.rebound(chain, inner, lambda x: 10 * x)
    expect_equal(changed(4), 41, "the result")
    expect_equal(seen, ["before", "after 41"], "hooks of others")
    expect_equal((changed.__doc__, changed.__name__), ("inner", "inner"), "name and text")
    expect_raises(AssertionError, lambda: chain(4))


def test_sglang_chain_that_was_replaced_cannot_be_followed() -> None:
    from convoy.sglang import _copies

    def inner(x: int) -> int:
        return x

    chain = _registry_chain()("REPLACE", inner, lambda x: -x)
    expect_raises(_copies.CannotRebind, lambda: _copies.rebound(chain, inner, lambda x: 0))
    expect_raises(_copies.CannotRebind, lambda: _copies.rebound(lambda x: 0, inner, lambda x: 0))


def _registry_chain() -> Callable[[str, Any, Any], Any]:
    standin.use("today")
    module = _registry()
    makers = dict(module._WRAPPERS)
    makers[module.HookType.REPLACE] = module._with_replace
    return lambda name, below, hook: makers[getattr(module.HookType, name)](below, hook)


# -- a host in one process --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _world_of_one() -> Iterator[Any]:
    import torch.distributed as dist

    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method="file://%s/meeting" % folder, rank=0, world_size=1)
        try:
            yield dist.group.WORLD
        finally:
            dist.destroy_process_group()


class _Poller:
    def __init__(self, state: int) -> None:
        self.state = state

    def poll(self) -> int:
        return self.state


def _torch_reduces(count: List[int]) -> Any:
    import torch.distributed as dist

    original = dist.all_reduce

    def all_reduce(*args: Any, **kwargs: Any) -> Any:
        count.append(1)
        return original(*args, **kwargs)

    return original, all_reduce


def _count_reductions(call: Callable[[], Any]) -> Tuple[Any, int]:
    """The result, and how often torch itself reduced."""
    import torch.distributed as dist

    count: List[int] = []
    original, counting = _torch_reduces(count)
    dist.all_reduce = counting
    try:
        return call(), len(count)
    finally:
        dist.all_reduce = original


def test_sglang_hook_reaches_modules_that_imported_the_name() -> None:
    for shape, name in (("today", "_all_reduce_polls"), ("before", "poll_and_all_reduce")):
        standin.use(shape)
        utils = importlib.import_module(_UTILS)
        user: Any = types.ModuleType("scene_user")
        user.taken = before = vars(utils)[name]
        sys.modules["scene_user"] = user
        try:
            _register()
            assert user.taken is vars(utils)[name] and user.taken is not before
            with _world_of_one() as world:
                given = [4, 3] if shape == "today" else [_Poller(4), _Poller(3)]
                expect_equal(_count_reductions(lambda: user.taken(given, world)), ([4, 3], 0), "through the taken name")
        finally:
            del sys.modules["scene_user"]


def test_sglang_hooks_of_others_run_once_whether_they_come_first_or_last() -> None:
    for shape, name in (("today", "_all_reduce_polls"), ("before", "poll_and_all_reduce")):
        for is_first in (True, False):
            standin.use(shape)
            utils, registry = importlib.import_module(_UTILS), _registry()
            seen: List[str] = []
            if is_first:
                _others(registry, name, seen)
            from convoy.sglang import register

            register()
            if not is_first:
                _others(registry, name, seen)
            registry.HookRegistry.apply_hooks()
            with _world_of_one() as world:
                given = [4, 3] if shape == "today" else [_Poller(4), _Poller(3)]
                result, count = _count_reductions(lambda: vars(utils)[name](given, world))
            expect_equal((result, count), ([4, 3, 9], 0), "%s, first %s" % (shape, is_first))
            # Wrappers go around each other in the order of registration, so the last one is entered first.
            expect_equal(seen, ["around", "before", "after"], "calls of the others")


def _others(registry: Any, name: str, seen: List[str]) -> None:
    kind, target = registry.HookType, "%s.%s" % (_UTILS, name)

    def around(original: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append("around")
        return original(*args, **kwargs)

    registry.HookRegistry.register(target, lambda *a, **k: seen.append("before"), kind.BEFORE)
    registry.HookRegistry.register(target, lambda result, *a, **k: seen.append("after") or result + [9], kind.AFTER)
    registry.HookRegistry.register(target, around, kind.AROUND)


def test_sglang_replacement_by_another_plugin_stays() -> None:
    standin.use("before")
    utils, registry = importlib.import_module(_UTILS), _registry()
    registry.HookRegistry.register(_UTILS + ".poll_and_all_reduce", lambda *a, **k: "theirs", registry.HookType.REPLACE)
    with _log() as log:
        _register()
        expect_equal([utils.poll_and_all_reduce([], None) for _ in range(2)], ["theirs"] * 2, "the result")
    expect_equal(len([line for line in log.of("WARNING") if "is left as it is" in line]), 1, "warnings: %s" % log.lines)


def test_sglang_registered_twice_still_reduces_once() -> None:
    standin.use("today")
    utils = importlib.import_module(_UTILS)
    _register()
    _registry().HookRegistry.reset()
    _register()
    with _world_of_one() as world:
        expect_equal(utils._all_reduce_polls([4, 2], world), [4, 2], "the result")
        from convoy.sglang import groups

        expect_equal(groups()[-1].info().round, 1, "rounds")


# -- the diffusion server ---------------------------------------------------------------------------------------------


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
        with _environment(**environment):
            standin.use(shape)
            from convoy.sglang import register_diffusion

            register_diffusion()
            importlib.import_module("sglang.multimodal_gen.plugins").HookRegistry.apply_hooks()
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
        expect_equal(_actions(diffusion=True), {engine: "apply", buffer: "apply", manager: "apply"}, shape)
    without = _actions({"CONVOY_HOOK_TRANSFER": "0"}, diffusion=True)
    expect_equal(without, {engine: "leave", buffer: "leave", manager: "leave"}, "a manager is nothing without the engine")
    alone = _actions({"CONVOY_HOOK_TRANSFER_MANAGER": "0"}, diffusion=True)
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


def test_sglang_diffusion_engine_that_cannot_be_made() -> None:
    from convoy import errors

    with _diffusion("today") as (engines, buffers, _):
        expect_raises(errors.InvalidArgument, lambda: engines.create_transfer_engine(gpu_id=9))
    with _diffusion("today", CONVOY_FALLBACK="host") as (engines, buffers, _), _log() as log:
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


def test_sglang_hooks_that_cannot_be_made_leave_the_host_alone() -> None:
    standin.use("today")
    before = sys.modules.get("convoy.sglang.diffusion")
    sys.modules["convoy.sglang.diffusion"] = None  # type: ignore[assignment]  # an import of it fails
    try:
        with _log() as log:
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
    if not os.path.exists(os.environ["CONVOY_LIBRARY"]):
        runner.skip_program("%s has not been built" % os.environ["CONVOY_LIBRARY"])
    runner.main(globals())
