#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The diffusion roles' flow over convoy's engine, buffer and manager: an encoder pushes, a denoiser receives."""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

from lib import runner  # noqa: E402

runner.need("torch")

import torch  # noqa: E402

from convoy import errors  # noqa: E402
from convoy.sglang.diffusion import (  # noqa: E402
    ConvoyTransferBuffer, ConvoyTransferEngine, ConvoyTransferManager, SlotHandle,
)
from lib.pair import Child, Pipe  # noqa: E402
from lib.runner import expect_equal, expect_raises  # noqa: E402

MIB = 1 << 20
os.environ.setdefault("CONVOY_SECRET", "of the roles")
os.environ.setdefault("CONVOY_TIMEOUT_MS", "20000")
logging.getLogger("convoy").addHandler(logging.NullHandler())


class Role:
    """What the host's scheduler makes, in its order."""

    def __init__(self, name: str, pool_size: int = 16 * MIB) -> None:
        self.engine = ConvoyTransferEngine(hostname="127.0.0.1", gpu_id=0, ib_device=None)
        assert not self.engine.supports_gpu_direct
        self.buffer = ConvoyTransferBuffer(pool_size=pool_size, device="cpu", role_name=name)
        self.manager = ConvoyTransferManager(engine=self.engine, buffer=self.buffer)

    def used(self) -> int:
        return self.engine.engine.figures().taken

    def slot(self, size: int, request_id: str) -> SlotHandle:
        slot = self.buffer.allocate(size, request_id)
        assert slot is not None
        return slot


@contextmanager
def role_of(name: str, pool_size: int = 16 * MIB) -> Iterator[Role]:
    role = Role(name, pool_size)
    try:
        yield role
    finally:
        role.manager.cleanup()
        role.engine.close()


def request() -> Dict[str, Any]:
    return {
        "latents": torch.arange(6000.0).reshape(2, 3, 1000),
        "embeds": [torch.ones(7, dtype=torch.bfloat16), None, torch.arange(5)],
        "mask": torch.tensor([True, False]),
        "sigma": torch.tensor(2.5, dtype=torch.float64),
        "gaps": torch.arange(24).reshape(4, 6).t()[::2],
        "none": torch.empty(0, 4),
        "absent": None,
    }


def check(tensors: Dict[str, Any]) -> None:
    expected = request()
    del expected["absent"]
    expect_equal(sorted(tensors), sorted(expected), "the fields")
    for name, value in expected.items():
        got = tensors[name] if isinstance(value, list) else [tensors[name]]
        wanted = value if isinstance(value, list) else [value]
        expect_equal(len(got), len(wanted), name)
        for one, other in zip(got, wanted):
            if other is None:
                assert one is None, name
            else:
                assert one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other), name


# -- the flow ----------------------------------------------------------------------------------------------------------


def encoder(pipe: Pipe, requests: int) -> None:
    with role_of("encoder") as role:
        for number in range(requests):
            request_id = f"request {number}"
            staged, event = role.manager.stage_tensors_async(request_id, request(), {"seed": 2**63 + number})
            assert staged is not None and staged.slot is not None and event is None
            pipe.send((staged.manifest, staged.slot.size, staged.scalar_fields, role.manager.session_id))
            session, address, size = pipe.recv()
            pushed = role.manager.push_to_peer(request_id, session, address, size)
            if pushed:
                role.manager.free_staged(request_id)
            pipe.send((pushed, role.used()))


def test_the_flow_of_two_roles() -> None:
    with role_of("denoiser") as role, Child(encoder, 6) as child:
        manager, slot = role.manager, role.slot(4 * MIB, "prealloc_0")
        for number in range(6):
            request_id = f"request {number}"
            manifest, size, scalars, _ = child.pipe.recv()
            expect_equal((size, scalars), (MIB, {"seed": 2**63 + number}), "what the encoder announces")
            is_kept = number % 2 == 0
            place = slot
            if not is_kept:
                receive = manager.allocate_receive_slot(request_id, size)
                assert receive is not None
                place = receive.slot
            child.pipe.send((manager.session_id, manager.pool_data_ptr + place.offset, place.size))
            expect_equal(child.pipe.recv(), (True, 0), "the push, and what the encoder holds afterwards")
            if is_kept:
                manager.register_prealloc_as_receive(request_id, slot)
            tensors, event = manager.load_tensors_async(request_id, manifest, device="cpu")
            assert event is None
            if is_kept and number % 4 == 0:
                with manager._lock:  # as the host's scheduler does
                    assert manager._pending_receives.pop(request_id, None) is not None
            else:
                manager.free_receive_slot(request_id)
            check(tensors)
            expect_raises(ValueError, lambda: manager.load_tensors_async(request_id, manifest, device="cpu"))
        expect_equal(role.used(), 4 * MIB, "all but the preallocated slot came back")
        expect_equal(role.buffer.free(slot), True, "the preallocated slot is freed at last")


def exact(pipe: Pipe, session: str, address: int) -> None:
    with role_of("encoder") as role:
        for number in range(3):
            role.manager.stage_tensors_async("r", {"a": torch.full((MIB,), number, dtype=torch.uint8)})
            pipe.send(role.manager.push_to_peer("r", session, address, MIB))
            pipe.recv()


def test_a_slot_that_is_filled_to_its_last_byte_is_used_again() -> None:
    with role_of("denoiser", 8 * MIB) as role:
        other = role.slot(MIB, "before it")
        slot = role.slot(MIB, "prealloc_0")
        role.buffer.free(other)  # so that the pool would rather give this place
        manifest: Any = {"a": [{"offset": 0, "shape": [MIB], "dtype": "uint8"}]}
        with Child(exact, role.manager.session_id, role.manager.pool_data_ptr + slot.offset) as child:
            for number in range(3):
                expect_equal(child.pipe.recv(), True, f"push {number}")
                role.manager.register_prealloc_as_receive(f"r{number}", slot)
                tensors, _ = role.manager.load_tensors_async(f"r{number}", manifest, device="cpu")
                assert torch.equal(tensors["a"], torch.full((MIB,), number, dtype=torch.uint8)), number
                with role.manager._lock:
                    role.manager._pending_receives.pop(f"r{number}", None)
                child.pipe.send("next")
        expect_equal(role.used(), MIB, "what is taken")


# -- edges -------------------------------------------------------------------------------------------------------------


def stage(role: Role, request_id: str, fields: Dict[str, Any]) -> Tuple[Any, Any]:
    return role.manager.stage_tensors_async(request_id, fields)


def test_padding_counts_in_the_size() -> None:
    with role_of("encoder") as role:
        fields = {"one": torch.ones(1, dtype=torch.uint8), "rest": torch.ones(MIB - 1, dtype=torch.uint8)}
        staged, _ = stage(role, "r", fields)
        expect_equal(staged.slot.size, 2 * MIB, "the slot that is announced")
        expect_equal(staged.manifest["rest"][0]["offset"], 512, "where the second starts")
        role.manager.free_staged("r")
        expect_equal(role.used(), 0, "bytes that are taken")


def test_places_are_where_the_engine_puts_them() -> None:
    with role_of("encoder") as role:
        staged, _ = stage(role, "r", request())
        held = role.manager._staged["r"][1]
        assert held is not None
        rows = {(row.name, row.index): row for row in held.payload().rows}
        entries = [(name, entry) for name, field in staged.manifest.items() for entry in field]
        expect_equal(len(entries), len(rows), "entries of the manifest")
        for name, entry in entries:
            row = rows[name, entry.get("list_index")]
            expect_equal((entry["offset"], tuple(entry["shape"]), entry["dtype"]), (row.offset, row.shape, row.dtype), name)
        expect_equal(role.manager._staged["r"][2], held.payload().bytes, "the payload's bytes")


def test_nothing_to_move() -> None:
    with role_of("encoder") as role, role_of("denoiser") as other:
        nothings: List[Dict[str, Any]] = [{}, {"a": None, "b": [None]}, {"a": torch.empty(0, 3)}]
        for fields in nothings:
            staged, event = stage(role, "r", fields)
            expect_equal((staged.slot, staged.manifest, event), (None, {}, None), "what is staged")
            expect_equal(role.manager.push_to_peer("r", "no session at all", 0, 0), True, "a push of nothing")
        receive = other.manager.allocate_receive_slot("r", 0)
        assert receive is not None
        expect_equal(other.manager.load_tensors_async("r", {}, device="cpu"), ({}, None), "a load of nothing")
        other.manager.free_receive_slot("r")
        expect_equal((role.used(), other.used()), (0, 0), "bytes that are taken")


def test_failed_stages_keep_nothing() -> None:
    with role_of("encoder", 4 * MIB) as role:
        expect_equal(stage(role, "big", {"a": torch.empty(8 * MIB, dtype=torch.uint8)}), (None, None), "too large for ever")
        assert str(8 * MIB) in role.engine.last_error, role.engine.last_error
        expect_equal(stage(role, "bad", {"a": torch.eye(3).to_sparse()}), (None, None), "a sparse tensor")
        assert "sparse" in role.engine.last_error, role.engine.last_error
        expect_equal((role.used(), role.manager._staged), (0, {}), "what is left")
        first, _ = stage(role, "r", {"a": torch.zeros(MIB // 2, dtype=torch.uint8)})
        again, _ = stage(role, "r", {"a": torch.zeros(MIB // 2, dtype=torch.uint8)})
        assert first.slot.offset != again.slot.offset
        expect_equal(role.used(), MIB, "one of the two is left")


def test_the_buffer_refuses_stale_and_wrong_handles() -> None:
    with role_of("denoiser", 4 * MIB) as role:
        buffer = role.buffer
        expect_equal((buffer.pool_size, buffer.free_slots_count(MIB)), (4 * MIB, 4), "the pool")
        expect_raises(ValueError, lambda: buffer.allocate(0, "r"))
        expect_raises(ValueError, lambda: buffer.allocate(-1, "r"))
        expect_raises(ValueError, lambda: ConvoyTransferBuffer(MIB, min_block_size=3))
        expect_equal(buffer.allocate(5 * MIB, "r"), None, "larger than the pool")
        first = role.slot(3 * MIB, "r")
        expect_equal((first.size, buffer.allocate(1, "s")), (4 * MIB, None), "a rounded slot, and no room")
        expect_equal((buffer.free(first), buffer.free(first)), (True, False), "freed once")
        second = role.slot(4 * MIB, "s")
        expect_equal((second.offset, buffer.free(first)), (first.offset, False), "a stale free after its place was reused")
        expect_equal(buffer.free(SlotHandle("s", second.offset, second.size)), False, "a handle of nobody's")
        expect_raises(ValueError, lambda: buffer.write_tensor(first, "a", torch.ones(3)))
        manifest = buffer.write_tensors_from_gpu(second, request())
        check(buffer.read_tensors_from_manifest(second, manifest))
        expect_raises(ValueError, lambda: buffer.write_tensor(second, "a", torch.ones(3), 4 * MIB - 4))
        expect_equal(buffer.get_stats()["allocated_bytes"], 4 * MIB, "the figures")
        expect_equal(buffer.free(second), True, "the owner frees it")


def test_the_buffers_calls_by_tensor_are_the_hosts() -> None:
    with role_of("denoiser", 4 * MIB) as role:
        buffer, slot = role.buffer, role.slot(MIB, "r")
        parts, end, places = [torch.arange(5.0), torch.tensor(7, dtype=torch.int16), torch.eye(3, dtype=torch.bool)], 0, []
        for number, part in enumerate(parts):  # each behind the last, as callers of the host's buffer add it up
            places.append(end)
            written = buffer.write_tensor(slot, f"part {number}", part, end, None)
            expect_equal(written, part.numel() * part.element_size(), "bytes written")
            end += written
        for part, place in zip(parts, places):
            for got in (buffer.read_tensor(slot, list(part.shape), part.dtype, place, "cpu", None),
                        buffer.read_tensor(slot, shape=part.shape, dtype=part.dtype, byte_offset=place)):
                assert got.dtype == part.dtype and torch.equal(got, part), part
        assert torch.equal(buffer.read_tensor(slot, [5], torch.float32), parts[0])
        expect_raises(ValueError, lambda: buffer.read_tensor(slot, [MIB + 1], torch.uint8))
        expect_equal(buffer.read_tensors_from_manifest(slot, {"none": []}), {}, "a field without entries")


def test_calls_of_older_releases() -> None:
    with role_of("encoder") as role, role_of("denoiser") as other:
        manager, receiver = role.manager, other.manager
        staged = manager.stage_tensors("r", request(), {"seed": 1})
        assert staged is not None and manager.get_staged_info("r") is staged
        receive = receiver.allocate_receive_slot("r", staged.slot.size)
        assert receive is not None
        offset, address = receiver.get_receive_slot_offset("r"), receiver.get_receive_slot_addr("r")
        expect_equal((offset, address), (receive.slot.offset, receiver.pool_data_ptr + receive.slot.offset), "the slot")
        assert address is not None and manager.push_to_peer("r", receiver.session_id, address, receive.slot.size)
        check(receiver.load_tensors("r", staged.manifest, device="cpu"))
        manager.free_staged("r")
        receiver.free_receive_slot("r")
        unknown = manager.get_staged_info("r"), receiver.get_receive_slot_offset("r"), receiver.get_receive_slot_addr("r")
        expect_equal(unknown, (None, None, None), "after both were freed")
        expect_equal((manager.free_slots_count(MIB), manager.free_slots_count()), (16, 0), "free slots")
        expect_equal(manager.stage_tensors("big", {"a": torch.empty(32 * MIB, dtype=torch.uint8)}), None, "no room")


def test_entries_are_checked_before_anything_is_read() -> None:
    def entry(**changed: Any) -> Any:
        return {"a": [{**{"offset": 0, "shape": [4], "dtype": "float32"}, **changed}]}

    with role_of("denoiser") as role, role_of("encoder") as sender:
        receive = role.manager.allocate_receive_slot("r", 100)
        assert receive is not None
        expect_raises(ValueError, lambda: role.manager.load_tensors_async("r", entry(), device="cpu"))  # never written
        stage(sender, "r", {"a": torch.ones(4)})
        address = role.manager.pool_data_ptr + receive.slot.offset
        assert sender.manager.push_to_peer("r", role.manager.session_id, address, receive.slot.size)
        wrong: List[Any] = [
            entry(offset=MIB), entry(offset=MIB - 15), entry(offset=-1), entry(offset=None), entry(offset=True),
            entry(shape=[MIB]), entry(shape=[2**62, 8]), entry(shape=[-4]), entry(shape=[1] * 17), entry(shape="4"),
            entry(dtype="float31"), entry(dtype=None), entry(dtype="F4"), entry(list_index=-1), entry(list_index=65536),
            {"a": None}, {"a": [None]}, {"a": [entry()["a"][0], entry()["a"][0]]},
        ]
        for manifest in wrong:
            expect_raises(ValueError, lambda: role.manager.load_tensors_async("r", manifest, device="cpu"))
        for manifest in (entry(), entry(offset=MIB - 16), entry(list_index=3)):
            role.manager.load_tensors_async("r", manifest, device="cpu")
        expect_raises(ValueError, lambda: role.manager.load_tensors_async("unknown", {}, device="cpu"))


# -- peers that fail ---------------------------------------------------------------------------------------------------


def denoiser(pipe: Pipe) -> None:
    with role_of("denoiser") as role:
        slot = role.slot(MIB, "prealloc_0")
        pipe.send((role.manager.session_id, role.manager.pool_data_ptr + slot.offset))
        pipe.recv()


def test_a_push_to_a_dead_peer_fails_and_keeps_what_is_staged() -> None:
    with role_of("encoder") as role:
        stage(role, "r", {"a": torch.ones(4)})
        with Child(denoiser) as child:
            session, address = child.pipe.recv()
            expect_equal(role.manager.push_to_peer("r", session, address, MIB), True, "a push while it lives")
            expect_equal(role.manager.push_to_peer("r", session, address, 8), False, "a push into too little room")
            foreign = role.engine.transfer_sync(session, 8, address, 8)
            expect_equal(foreign, errors.InvalidArgument.STATUS, "a source of nobody's")
            expect_equal(role.engine.transfer_sync(session, 0, 0, 0), 0, "a transfer of nothing")
            pool = role.manager.pool_data_ptr
            missed = role.engine.transfer_sync(session, pool, address + 8 * MIB, 8)
            expect_equal(missed, errors.NotFound.STATUS, "a target that is no slot")
            child.kill()
            begun = time.monotonic()
            expect_equal(role.manager.push_to_peer("r", session, address, MIB), False, "a push after its death")
            assert time.monotonic() - begun < 60 and session in role.engine.last_error, role.engine.last_error
        assert role.engine.transfer_sync(session, pool, address, 8) < 0
        assert "r" in role.manager._staged and role.used() == MIB, "what is staged stays"
        expect_equal(role.manager.push_to_peer("unknown", session, address, MIB), False, "an unknown request")


class Lines(logging.Handler):
    """What is logged while it is entered."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.lines: List[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def __enter__(self) -> List[str]:
        logging.getLogger("convoy.sglang").addHandler(self)
        return self.lines

    def __exit__(self, *exception: Any) -> None:
        logging.getLogger("convoy.sglang").removeHandler(self)


def test_pushes_that_fail_every_time_do_not_flood_the_log() -> None:
    with role_of("encoder") as role, Lines(logging.WARNING) as lines:
        stage(role, "r", {"a": torch.ones(4)})
        for _ in range(20):
            expect_equal(role.manager.push_to_peer("r", "nonsense", 8, MIB), False, "a push to nobody")
        pushes = [line for line in lines if "request r was not pushed" in line]
        assert len(pushes) == 5 and pushes[-1].endswith("(16 times by now)"), lines


def test_a_stale_session_is_refused_with_a_reason() -> None:
    with role_of("encoder") as role, role_of("denoiser") as other:
        stage(role, "r", {"a": torch.ones(4)})
        slot = other.slot(MIB, "prealloc_0")
        stale = other.manager.session_id.split("+")[0] + "+0123456789abcdef"
        address = other.manager.pool_data_ptr + slot.offset
        status = role.engine.push(stale, role.manager._staged["r"][1], address)  # type: ignore[arg-type]
        expect_equal(status, errors.StaleEpoch.STATUS, "the status")
        assert stale in role.engine.last_error and "incarnation" in role.engine.last_error, role.engine.last_error
        with Lines(logging.INFO) as lines:
            for _ in range(3):
                role.engine.transfer_sync("nonsense", role.manager.pool_data_ptr, address, 8)
        expect_equal(len(lines), 1, "lines of one cause")
        expect_equal(other.buffer.is_written(slot), False, "nothing came")


def test_memory_of_the_hosts_and_the_other_calls() -> None:
    with role_of("encoder") as role, role_of("denoiser") as other:
        source, target = torch.arange(64, dtype=torch.uint8), torch.zeros(64, dtype=torch.uint8)
        role.engine.register_buffer(role.manager.pool_data_ptr, role.manager.pool_size)
        role.engine.register_buffer(source.data_ptr(), 64)
        other.engine.register_buffer(target.data_ptr(), 64)
        here, there, session = source.data_ptr(), target.data_ptr(), other.engine.session_id
        status = role.engine.batch_transfer_sync(session, [here, here + 9], [there + 1, there], [8, 1])
        expect_equal(status, 0, "two pieces")
        expect_equal(target[:10].tolist(), [9, 0, 1, 2, 3, 4, 5, 6, 7, 0], "what came")
        assert role.engine.batch_transfer_sync(session, [here], [there, there], [1]) < 0
        other.engine.deregister_buffer(there)
        other.engine.deregister_buffer(there)
        assert role.engine.transfer_sync(session, here, there, 8) < 0

        staged = role.engine.stage_async("s", {"a": torch.ones(4)})
        slots = other.engine.reserve("s", [MIB])
        assert staged is not None and slots is not None
        expect_equal(role.engine.push(session, staged, slots[0].address), 0, "a push by address")
        adopted = other.engine.adopt(slots[0], staged.descriptor("json"))
        assert adopted is not None, other.engine.last_error
        assert torch.equal(adopted["a"].torch(), torch.ones(4))
        loaded = other.engine.load_async(staged.descriptor())
        assert loaded is not None, other.engine.last_error
        assert torch.equal(loaded.wait()["a"].torch(), torch.ones(4))
        expect_equal((role.engine.free(staged), role.engine.free(staged)), (True, False), "freed once")
        for transfer in (slots[0], adopted, loaded):
            expect_equal((other.engine.free(transfer), other.engine.free(transfer)), (True, False), "freed once")
        expect_equal(other.used(), 0, "bytes that are taken")


def test_a_buffer_needs_an_engine_of_its_own() -> None:
    expect_raises(RuntimeError, lambda: ConvoyTransferBuffer(MIB))
    with role_of("one") as one, role_of("two") as two:
        expect_raises(RuntimeError, lambda: ConvoyTransferBuffer(MIB))
        expect_raises(ValueError, lambda: ConvoyTransferManager(one.engine, two.buffer))


if __name__ == "__main__":
    runner.main(globals())
