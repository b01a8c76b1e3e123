#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The stand-in's transfer does what the host's does, in the order in which its scheduler calls it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

import standin  # noqa: E402
from lib import runner  # noqa: E402
from lib.runner import expect_equal, expect_raises  # noqa: E402

_MIB = 1 << 20
_TRANSPORT = "sglang.multimodal_gen.runtime.disaggregation.transport"


def _part(name: str) -> Any:
    return importlib.import_module(f"{_TRANSPORT}.{name}")


class _Role:
    def __init__(self, name: str, pool_size: int = 4 * _MIB) -> None:
        self.engine = _part("engine").create_transfer_engine(hostname="127.0.0.1", gpu_id=0, ib_device=None)
        self.buffer = _part("buffer").TransferTensorBuffer(pool_size=pool_size, device="cpu", role_name=name)
        self.manager = _part("manager").DiffusionTransferManager(engine=self.engine, buffer=self.buffer)


def _tensors() -> dict[str, Any]:
    import torch

    draw = torch.Generator().manual_seed(3)
    return {
        "latents": torch.randn(3, 5, 7, generator=draw),
        "prompt": [torch.arange(9, dtype=torch.int64), None, torch.ones(2, 2, dtype=torch.bfloat16)],
        "absent": None,
        "mask": torch.tensor([True, False, True]),
    }


def _expect_same(actual: Any, expected: Any) -> None:
    import torch

    if isinstance(expected, list):
        expect_equal(len(actual), len(expected), "parts")
        for one, other in zip(actual, expected):
            _expect_same(one, other)
    elif expected is None:
        assert actual is None
    else:
        assert actual.dtype == expected.dtype and torch.equal(actual, expected), (actual, expected)


def _push(sender: _Role, receiver: _Role, staged: Any, slot: Any) -> bool:
    address = receiver.manager.pool_data_ptr + slot.offset
    pushed: bool = sender.manager.push_to_peer(staged.request_id, receiver.manager.session_id, address, staged.slot.size)
    return pushed


def _hand_over(shape: str) -> None:
    standin.use(shape)
    sender, receiver = _Role("encoder"), _Role("denoiser")
    prealloc = receiver.buffer.allocate(_MIB, "prealloc_0")
    staged, event = sender.manager.stage_tensors_async("r1", _tensors(), {"seed": 5})
    event.synchronize()
    expect_equal((staged.scalar_fields, sorted(staged.manifest)), ({"seed": 5}, ["latents", "mask", "prompt"]), "staged")
    assert _push(sender, receiver, staged, prealloc)
    sender.manager.free_staged("r1")
    receiver.manager.register_prealloc_as_receive("r1", prealloc)
    tensors, event = receiver.manager.load_tensors_async("r1", staged.manifest, device="cpu")
    event.synchronize()
    for name, value in tensors.items():
        _expect_same(value, _tensors()[name])
    with receiver.manager._lock:
        receiver.manager._pending_receives.pop("r1", None)
    expect_equal(receiver.buffer.get_stats()["slots"], 1, "the preallocated slot stays")
    expect_equal(sender.buffer.get_stats()["slots"], 0, "slots of the sender")


def test_transfer_of_today_hands_tensors_over() -> None:
    _hand_over("today")


def test_transfer_of_before_hands_tensors_over() -> None:
    _hand_over("before")


def test_transfer_slots_are_rounded_and_found_first_fit() -> None:
    standin.use("today")
    buffer = _part("buffer").TransferTensorBuffer(3 * _MIB)
    expect_equal(buffer.pool_size, 4 * _MIB, "the pool")
    slots = [buffer.allocate(size, "r") for size in (1, _MIB, 2 * _MIB - 1)]
    expect_equal([(slot.offset, slot.size) for slot in slots], [(0, _MIB), (_MIB, _MIB), (2 * _MIB, 2 * _MIB)], "slots")
    assert buffer.allocate(1, "r") is None and buffer.free_slots_count(1) == 0
    assert buffer.free(slots[1]) and not buffer.free(slots[1])
    expect_equal(buffer.allocate(5, "r").offset, _MIB, "the hole")
    for call in (lambda: buffer.allocate(0, "r"), lambda: _part("buffer").TransferTensorBuffer(1, min_block_size=3)):
        expect_raises(ValueError, call)


def test_transfer_edges_are_the_hosts() -> None:
    import torch

    standin.use("today")
    sender, receiver = _Role("encoder"), _Role("decoder")
    staged, event = sender.manager.stage_tensors_async("empty", {"none": None, "zero": torch.empty(0)})
    expect_equal((staged.slot, staged.manifest, event), (None, {}, None), "an empty set")
    assert sender.manager.push_to_peer("empty", receiver.manager.session_id, 0, 0)
    assert not sender.manager.push_to_peer("unknown", receiver.manager.session_id, 0, 0)
    one = torch.zeros(_MIB - 1, dtype=torch.uint8)
    overrun = {"byte": torch.zeros(1, dtype=torch.uint8), "rest": one}
    expect_raises(ValueError, lambda: sender.manager.stage_tensors_async("over", overrun))
    expect_equal(sender.buffer.get_stats()["slots"], 1, "the slot that leaks")
    large = {"x": torch.zeros(5 * _MIB, dtype=torch.uint8)}
    expect_equal(sender.manager.stage_tensors_async("large", large), (None, None), "no room")
    expect_raises(ValueError, lambda: receiver.manager.load_tensors_async("unknown", {}, device="cpu"))
    expect_raises(ValueError, lambda: receiver.manager.allocate_receive_slot("zero", 0))


def test_transfer_outside_of_registered_memory_fails() -> None:
    import torch

    standin.use("today")
    sender, receiver = _Role("encoder"), _Role("decoder")
    staged, _event = sender.manager.stage_tensors_async("r", {"x": torch.ones(8)})
    pending = receiver.manager.allocate_receive_slot("r", 8)
    receiver.manager.cleanup()
    assert not _push(sender, receiver, staged, pending.slot)
    expect_equal(sender.buffer.get_stats()["slots"], 1, "the staged slot is kept")
    assert not sender.manager.push_to_peer("r", "nobody", 0, 8)


def test_transfer_of_the_future_is_made_in_another_way() -> None:
    standin.use("future")
    engine = _part("engine")
    expect_raises(TypeError, lambda: engine.create_transfer_engine(hostname="127.0.0.1", gpu_id=0, ib_device=None))
    assert engine.open_transfer_engine(engine.EngineDescription("x")).session_id.startswith("x/True:")


if __name__ == "__main__":
    runner.need("torch")
    runner.main(globals())
