#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Staged transfer from Python: what is sent is what is loaded, whose memory it is, and how calls fail."""

from __future__ import annotations

import array
import gc
import json
import os
import select
import signal
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

import convoy  # noqa: E402
from lib import runner  # noqa: E402
from lib.pair import WAIT_S, Child, Pipe, engine_of  # noqa: E402
from lib.runner import Skip, expect_equal, expect_raises  # noqa: E402

MIB = 1 << 20
SCALARS = '{"seed": 18446744073709551615,  "text":"\\u00e9\\n\\"", "tiny":1e-320, "deep":{"a":[null,true]}}'


def floats(count: int, start: float = 0.0) -> "array.array[float]":
    return array.array("f", [start + i for i in range(count)])


def modules(*names: str) -> List[Any]:
    found = []
    for name in names:
        try:
            found.append(__import__(name))
        except ImportError:
            raise Skip(f"needs the module {name}") from None
    return found


def eventually(check: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not check():
        if time.monotonic() > end:
            raise AssertionError(what)
        time.sleep(0.001)


# -- what is sent is what is loaded ------------------------------------------------------------------------------------


def plain_tensors() -> Dict[str, Any]:
    """Nothing but the standard library's."""
    return {
        "floats": floats(1000),
        "bytes": b"\x00\xff raw",
        "grid": memoryview(bytearray(range(24))).cast("B", (2, 3, 4)),
        "float8": ("F8_E4M3", (2, 2), b"\x38\x40\x00\x7e"),
        "half": ("torch.bfloat16", (3,), struct.pack("<3H", 0x3F80, 0x4000, 0xC040)),
        "scalar": ("int64", (), struct.pack("<q", -(2**63))),
        "unknown": ("of my own", (5,), b"12345"),
        "empty": ("float32", (0, 7), b""),
        "list": [None, floats(3), None, b"x", None, None],
        "holes": [None, None],
        "nothing": [],
    }


PLAIN = {
    "floats": ("float32", (1000,), floats(1000).tobytes()),
    "bytes": ("uint8", (6,), b"\x00\xff raw"),
    "grid": ("uint8", (2, 3, 4), bytes(range(24))),
    "float8": ("float8_e4m3fn", (2, 2), b"\x38\x40\x00\x7e"),
    "half": ("bfloat16", (3,), struct.pack("<3H", 0x3F80, 0x4000, 0xC040)),
    "scalar": ("int64", (), struct.pack("<q", -(2**63))),
    "unknown": ("of my own", (5,), b"12345"),
    "empty": ("float32", (0, 7), b""),
    "list": [None, ("float32", (3,), floats(3).tobytes()), None, ("uint8", (1,), b"x"), None, None],
    "holes": [None, None],
    "nothing": [],
}


def seen(field: Any) -> Any:
    if isinstance(field, list):
        return [seen(item) for item in field]
    return None if field is None else (field.dtype, field.shape, field.tobytes())


def send_plain(pipe: Pipe, session: str) -> None:
    with engine_of() as engine:
        peer = engine.connect(session)
        engine.send(peer, request="plain", tensors=plain_tensors(), scalars=SCALARS, attempt=3, checksum=True).release()
        engine.send(peer, request="scalars only", scalars={"seed": 2**64 - 1}).release()
        engine.send(peer, request="nothing at all").release()


def test_two_processes_see_the_same() -> None:
    with engine_of() as engine, Child(send_plain, engine.session):
        with engine.accept("plain", timeout=WAIT_S) as loaded:
            expect_equal({name: seen(field) for name, field in loaded.tensors.items()}, PLAIN, "the tensors")
            expect_equal(loaded.scalars_text, SCALARS, "the text of the scalars")
            expect_equal(loaded.scalars()["seed"], 2**64 - 1, "the seed")
            expect_equal((loaded.request, loaded.attempt), ("plain", 3), "request and attempt")
            expect_equal(loaded.result().path, "lend", "the path on one host")
        with engine.accept(timeout=WAIT_S) as loaded:
            expect_equal((loaded.tensors, loaded.scalars()), ({}, {"seed": 2**64 - 1}), "scalars only")
        with engine.accept(timeout=WAIT_S) as loaded:
            expect_equal((loaded.tensors, loaded.scalars_text, loaded.scalars()), ({}, None, {}), "nothing at all")


def send_arrays(pipe: Pipe, session: str) -> None:
    with engine_of() as engine:
        engine.send(engine.connect(session), request="arrays", tensors=arrays()).release()


def arrays() -> Dict[str, Any]:
    """Every type that both know, whole, as one element of no dimension, and with gaps."""
    import numpy
    import torch

    tensors: Dict[str, Any] = {}
    both = "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128".split()
    for name in both + ["uint16", "uint32", "uint64"]:
        whole = numpy.arange(24).reshape(4, 6).astype(name)
        tensors["n " + name] = whole
        tensors["n0 " + name] = whole[1, 1].reshape(())
        tensors["ngaps " + name] = whole.T[::-2, 1:]
    for name in both + ["bfloat16"]:
        cube = torch.arange(24).reshape(2, 3, 4).to(getattr(torch, name))
        tensors["t " + name] = cube
        tensors["tgaps " + name] = cube.permute(2, 0, 1)[1:, :, ::2]
        tensors["twide " + name] = cube[:, :1, :1].expand(2, 5, 3)
    tensors["conjugated"] = tensors["t complex64"].conj()
    tensors["with gradient"] = torch.ones(3, requires_grad=True) * 2
    return tensors


def test_arrays_and_tensors_of_every_type() -> None:
    numpy, torch = modules("numpy", "torch")
    expected = arrays()
    with engine_of() as engine, Child(send_arrays, engine.session), engine.accept(timeout=WAIT_S) as loaded:
        tensors = loaded.tensors
        expect_equal(sorted(tensors), sorted(expected), "the names")
        for name, value in expected.items():
            field = tensors[name]
            if isinstance(value, torch.Tensor):
                assert field.torch().dtype == value.dtype, name
                assert torch.equal(field.torch(), value.detach().resolve_conj()), name
            else:
                expect_equal((field.dtype, field.numpy().dtype), (value.dtype.name, value.dtype), name)
                assert numpy.array_equal(field.numpy(), value) and field.shape == value.shape, name
                assert not field.numpy().flags.writeable, name
        bits = tensors["t bfloat16"].numpy()
        expect_equal((bits.dtype.name, int(bits[0, 0, 1])), ("uint16", 0x3F80), "the bits of bfloat16 in numpy")


def test_what_cannot_be_sent_is_refused_by_name() -> None:
    with engine_of() as engine:
        refused: List[Any] = [
            ({"a": 3}, 'tensors["a"] is a int'),
            ({"a": [None, "text"]}, 'tensors["a"][1] is a str'),
            ({"a": ("float32", (3,), b"1")}, "tensors[0]"),
            ({"a": memoryview(b"abcd").cast("c")}, 'format "c"'),
        ]
        for tensors, words in refused:
            failure = expect_raises(convoy.InvalidArgument, lambda: engine.stage("r", tensors))
            assert words in str(failure), str(failure)
        texts: List[Any] = ["[1]", {"a": float("nan")}, {"a": object()}]
        for scalars in texts:
            expect_raises(convoy.InvalidArgument, lambda: engine.stage("r", {}, scalars))
        expect_equal(engine.figures().taken, 0, "what refused stages hold")


# -- whose memory it is ------------------------------------------------------------------------------------------------


def send_and_wait(pipe: Pipe, session: str) -> None:
    with engine_of() as engine:
        engine.send(engine.connect(session), request="r", tensors={"a": floats(MIB // 4)}).release()
        pipe.send("sent and released")
        pipe.recv()


def test_views_outlive_the_senders_release_and_death() -> None:
    with engine_of() as engine, Child(send_and_wait, engine.session) as child:
        loaded = engine.accept(timeout=WAIT_S)
        view = loaded.tensors["a"].data
        expect_equal(child.pipe.recv(), "sent and released", "the sender")
        expect_equal(bytes(view) == floats(MIB // 4).tobytes(), True, "the view after the release")
        child.kill()
        expect_equal(bytes(view) == floats(MIB // 4).tobytes(), True, "the view after the death")
        expect_raises(TypeError, lambda: view.__setitem__(0, 1))
        del view
        loaded.release()


def test_a_view_keeps_what_was_loaded() -> None:
    with engine_of() as sender, engine_of() as receiver:
        sent = sender.send_start(sender.connect(receiver.session), request="r", tensors={"a": floats(8)})
        loaded = receiver.accept(timeout=WAIT_S)
        sent.wait().release()
        view = loaded.tensors["a"].data
        del loaded
        gc.collect()
        expect_equal(sender.figures().reader_count, 1, "readers while there is a view")
        expect_equal(view.cast("f").tolist(), list(range(8)), "the view")
        failure = expect_raises(convoy.DrainTimeout, lambda: receiver.close(0.05))
        assert "1" in str(failure), str(failure)
        del view
        gc.collect()
        eventually(lambda: sender.figures().reader_count == 0, "the slot came back with the last view")


def test_released_views_are_refused() -> None:
    with engine_of() as engine:
        staged = engine.stage("r", {"a": floats(8)})
        tensor = staged["a"]
        expect_equal(tensor.data.cast("f").tolist(), list(range(8)), "the staged bytes")
        staged.release()
        staged.release()
        calls: List[Callable[[], Any]] = [lambda: tensor.data, staged.test, staged.wait, staged.result, staged.payload,
                                          staged.abort, staged.descriptor]
        for call in calls:
            expect_raises(convoy.Closed, call)
        expect_equal(engine.figures().taken, 0, "bytes that are taken after the release")


def test_what_is_dropped_is_released() -> None:
    with engine_of() as engine:
        staged = engine.stage("r", {"a": floats(8)})
        expect_equal(engine.figures().ready_count, 1, "staged")
        del staged
        gc.collect()
        expect_equal(engine.figures().taken, 0, "bytes that are taken after it was dropped")


def stage_and_wait(pipe: Pipe, form: str) -> None:
    with engine_of() as engine, engine.stage("r", plain_tensors(), SCALARS) as staged:
        pipe.send((engine.session, staged.descriptor(form)))
        pipe.recv()


def test_load_by_descriptor() -> None:
    for form in ("binary", "json"):
        with engine_of() as engine, Child(stage_and_wait, form) as child:
            session, descriptor = child.pipe.recv()
            expect_equal(type(descriptor), bytes if form == "binary" else str, "the type of a descriptor")
            expect_raises(convoy.Unreachable, lambda: engine.load(descriptor))
            engine.connect(session)
            with engine.load(descriptor, timeout=WAIT_S) as loaded:
                expect_equal({name: seen(field) for name, field in loaded.tensors.items()}, PLAIN, form)
                expect_equal(loaded.scalars(), json.loads(SCALARS), form)
            expect_raises(convoy.Malformed, lambda: engine.load(descriptor[: len(descriptor) // 2]))
            child.pipe.send("enough")


def test_load_into_a_destination() -> None:
    with engine_of() as sender, engine_of() as receiver:
        peer = sender.connect(receiver.session)
        destination = bytearray(4096)
        sent = sender.send_start(peer, request="r", tensors={"a": floats(8), "b": b"tail"})
        with receiver.accept(destination=destination, timeout=WAIT_S) as loaded:
            sent.wait().release()
            eventually(lambda: sender.figures().taken == 0, "the sender has its memory back before the release")
            offset = loaded.tensors["b"].offset
            expect_equal(offset, 512, "where the second tensor starts")
            expect_equal(bytes(destination[:32]), floats(8).tobytes(), "the first tensor in the destination")
            expect_equal(bytes(destination[offset : offset + 4]), b"tail", "the second tensor in the destination")
        staged = sender.stage("r2", {"a": floats(1024)})
        receiver.connect(sender.session)
        expect_raises(convoy.BufferTooSmall, lambda: receiver.load(staged.descriptor(), destination=bytearray(100)))
        expect_raises(convoy.InvalidArgument, lambda: receiver.load(staged.descriptor(), destination=b"read only"))
        staged.release()
        with engine_of() as third:
            third.connect(receiver.session)
            expect_raises(convoy.Closed, lambda: third.accept(timeout=1, peer=convoy.transfer.Peer(third, 12345, "none")))


def test_load_into_tensors() -> None:
    numpy, torch = modules("numpy", "torch")
    with engine_of() as sender, engine_of() as receiver:
        receiver.connect(sender.session)
        staged = sender.stage("r", {"a": torch.arange(64.0)})
        for destination in (numpy.zeros(64, "float32"), torch.zeros(64)):
            receiver.load(staged.descriptor(), destination=destination, timeout=WAIT_S).release()
            expect_equal(destination.tolist(), list(range(64)), type(destination).__name__)
        copied = receiver.load(staged.descriptor(), copy=True, timeout=WAIT_S)
        expect_equal(copied["a"].torch().tolist(), list(range(64)), "a copy in the own pool")
        expect_equal(receiver.figures().taken > 0, True, "the own pool holds it")


# -- slots and raw transfers -------------------------------------------------------------------------------------------


def reserve_and_load(pipe: Pipe) -> None:
    with engine_of() as engine:
        (slot,) = engine.reserve("r", [MIB])
        pipe.send((engine.session, slot.address, slot.bytes))
        descriptor = pipe.recv()
        with engine.load(descriptor, slot=slot, timeout=WAIT_S) as loaded:
            pipe.send({name: seen(field) for name, field in loaded.tensors.items()})
        slot.release()
        pipe.send(engine.figures().taken)


def test_raw_push_into_a_reserved_slot() -> None:
    with engine_of() as engine, Child(reserve_and_load) as child:
        session, address, _ = child.pipe.recv()
        peer = engine.connect(session)
        staged = engine.stage("r", plain_tensors())
        source, payload = staged.result().address, staged.result().payload_bytes
        engine.transfer_sync(peer, source=source, target=address, bytes=payload)
        expect_raises(convoy.NotFound, lambda: engine.transfer_sync(peer, [(source, address - 64 * MIB, 8)]))
        expect_raises(convoy.InvalidArgument, lambda: engine.transfer_sync(peer, [(8, address, 8)]))
        child.pipe.send(staged.descriptor("json"))
        expect_equal(child.pipe.recv(), PLAIN, "what the receiver read from its slot")
        expect_equal(child.pipe.recv(), 0, "bytes that it holds afterwards")
        staged.release()


def test_registered_memory() -> None:
    with engine_of() as one, engine_of() as other:
        source, target = bytearray(b"0123456789abcdef" * 256), bytearray(4096)
        here, there = one.register(source), other.register(target)
        pieces = [(here.address + 4, there.address, 2), (here.address, there.address + 9, 1)]
        one.transfer_sync(one.connect(other.session), pieces)
        expect_equal(bytes(target[:10]), b"45\x00\x00\x00\x00\x00\x00\x000", "two pieces")
        one.deregister(source)
        other.deregister(target)
        expect_raises(convoy.ConvoyError, lambda: other.deregister(target))


def test_a_full_pool_says_so() -> None:
    with engine_of(pool_bytes=4 * MIB) as engine:
        slots = engine.reserve("one", [MIB, 2 * MIB])
        failure = expect_raises(convoy.PoolExhausted, lambda: engine.reserve("two", [2 * MIB]))
        assert isinstance(failure, convoy.PoolExhausted)
        assert failure.retry_after_ms > 0 and "free" in str(failure), (failure.retry_after_ms, str(failure))
        expect_raises(convoy.PoolExhausted, lambda: engine.stage("three", {"a": bytes(2 * MIB)}))
        expect_raises(convoy.PoolExhausted, lambda: engine.fits([2 * MIB]))
        never = expect_raises(convoy.Limit, lambda: engine.reserve("four", [8 * MIB]))
        expect_equal(getattr(never, "retry_after_ms"), 0, "when to ask again for what never fits")
        expect_raises(convoy.Limit, lambda: engine.fits([8 * MIB]))
        for slot in slots:
            slot.release()
        engine.fits([4 * MIB])
        engine.resize(16 * MIB)
        engine.fits([8 * MIB])
        expect_equal(engine.info().pool_generation, 2, "the generation after a resize")


def test_preallocated_slots() -> None:
    with engine_of(prealloc_count=2, prealloc_bytes=MIB) as engine:
        (slot,) = engine.reserve("r", [1000], prealloc="only", slot_id=2)
        expect_equal((slot.slot_id, slot.size, slot.bytes), (2, 1000, MIB), "the slot")
        expect_raises(convoy.NotFound, lambda: engine.reserve("s", [1000], slot_id=2))
        slot.release()


# -- how transfers end -------------------------------------------------------------------------------------------------


def test_abort_and_time_outs() -> None:
    with engine_of() as engine:
        waiting = engine.accept_start("never", timeout=WAIT_S)
        expect_equal(waiting.test(), False, "under way")
        failure = expect_raises(convoy.TimedOut, lambda: waiting.wait(0.05))
        assert "never" in str(failure) and "waiting" in str(failure), str(failure)
        waiting.abort("not wanted")
        assert "not wanted" in str(expect_raises(convoy.Canceled, waiting.wait))
        expect_equal(waiting.result().state, "aborted", "the state")
        waiting.release()
        failure = expect_raises(convoy.TimedOut, lambda: engine.accept("gone", timeout=0.15))
        assert str(failure), "a time-out has words"
        staged = engine.stage("r", {"a": floats(4)})
        staged.abort()
        expect_raises(convoy.BadState, staged.descriptor)
        staged.release()
        expect_equal(engine.figures().taken, 0, "bytes that are taken")


def test_interrupted_waits_end_at_once() -> None:
    with engine_of() as engine, engine_of() as other:
        asked: List[int] = []

        def slow() -> bool:
            asked.append(1)
            return False

        for call in (lambda: engine.accept(timeout=WAIT_S), lambda: engine.stage("r", {"a": b"x"}, ready=slow)):
            begun = time.monotonic()
            timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            expect_raises(KeyboardInterrupt, call)
            timer.join()
            assert time.monotonic() - begun < 5, "the interrupt came late"
        assert asked, "readiness was asked for"
        sent = other.send_start(other.connect(engine.session), request="after", tensors={"a": floats(4)})
        with engine.accept(timeout=WAIT_S) as loaded:
            expect_equal(loaded.request, "after", "the engine works on")
        sent.wait().release()
        expect_equal(engine.info().transfers, 0, "transfers that are left")


def test_readiness_is_asked_and_its_failures_are_raised() -> None:
    class Mine(Exception):
        pass

    def fails() -> bool:
        raise Mine("of the producer")

    with engine_of() as engine:
        failure = expect_raises(Mine, lambda: engine.stage("r", {"a": b"x"}, ready=fails))
        expect_equal(str(failure), "of the producer", "the exception")
        written = bytearray(4)
        answers = iter([False, False, True])

        def ready() -> bool:
            answer = next(answers)
            if answer:
                written[:] = b"done"
            return answer

        staged = engine.stage_start("r", {"a": written}, ready=ready)
        expect_equal(staged.test(), False, "before the producer is ready")
        staged.wait(WAIT_S)
        expect_equal(staged["a"].tobytes(), b"done", "what was staged")
        staged.release()
        never = engine.stage_start("r", {"a": floats(4)}, ready=lambda: False, timeout=WAIT_S)
        never.release()
        expect_equal(engine.figures().taken, 0, "bytes that are taken")


def test_tensors_live_until_they_were_copied() -> None:
    with engine_of() as engine:
        gate = [False]
        staged = engine.stage_start("r", {"a": floats(MIB)}, ready=lambda: gate[0])
        gc.collect()
        junk = [floats(MIB, 7.0) for _ in range(4)]  # would be where a freed one was
        gate[0] = True
        staged.wait(WAIT_S)
        expect_equal(staged["a"].tobytes() == floats(MIB).tobytes(), True, "what was staged")
        del junk
        staged.release()


# -- peers -------------------------------------------------------------------------------------------------------------


def test_peers_that_are_refused() -> None:
    with engine_of() as engine, engine_of(secret=b"another") as stranger:
        expect_raises(convoy.Unauthenticated, lambda: engine.connect(stranger.session, WAIT_S))
        expect_raises(convoy.InvalidArgument, lambda: engine.connect("no session"))
        expect_raises(convoy.InvalidArgument, lambda: engine.connect(engine.session))
        address, incarnation = stranger.session.split("+")
        with engine_of() as friend:
            stale = friend.session.split("+")[0] + "+" + incarnation
            expect_raises(convoy.StaleEpoch, lambda: engine.connect(stale))
            with engine.connect(friend.session) as peer:
                expect_equal((peer.info().state, peer.info().locality), ("connected", "host"), "the peer")
                expect_equal(engine.query("unknown", peer).state, "unknown", "an unknown request")
            expect_raises(convoy.Closed, peer.info)
            expect_raises(convoy.Closed, lambda: engine.send(peer, request="r"))
        assert address


def test_a_dead_peer_ends_a_send() -> None:
    with engine_of() as engine, Child(open_and_wait) as child:
        peer = engine.connect(child.pipe.recv())
        sent = engine.send_start(peer, request="r", tensors={"a": floats(4)}, timeout=WAIT_S)
        child.kill()
        expect_raises(convoy.PeerLost, sent.wait)
        sent.release()
        expect_raises(convoy.PeerLost, lambda: engine.send(peer, request="r", tensors={"a": floats(4)}))
        eventually(lambda: engine.figures().taken == 0, "the slots came back")


def open_and_wait(pipe: Pipe) -> None:
    with engine_of() as engine:
        pipe.send(engine.session)
        pipe.recv()


def test_completions_and_descriptions() -> None:
    with engine_of(notify=True) as engine:
        staged = engine.stage("r", {"a": floats(4)})
        expect_equal(select.select([engine], [], [], WAIT_S)[0], [engine], "the descriptor is readable")
        ended = [(done.transfer, done.status, done.state) for done in engine.completions()]
        expect_equal(ended, [(staged.value, 0, "staged")], "what ended")
        expect_equal(engine.completions(), [], "what ended since")
        expect_equal(engine.query("r").state, "staged", "an own request")
        assert engine.stats() and engine.dump() and "convoy" in engine.prometheus()
        assert engine.timeline() is not None and engine.trace() is not None
        staged.release()
    expect_raises(convoy.Closed, engine.info)
    with engine_of() as engine:
        expect_raises(convoy.BadState, engine.fileno)


# -- without numpy and torch -------------------------------------------------------------------------------------------


def without_modules(pipe: Pipe) -> None:
    sys.modules["numpy"] = sys.modules["torch"] = None  # type: ignore[assignment]
    with engine_of() as engine, engine.stage("r", plain_tensors()) as staged:
        field = staged["floats"]
        for call in (field.numpy, field.torch):
            expect_raises(ImportError, call)
        pipe.send(seen(field))
    assert not [name for name in sys.modules if name.startswith(("numpy.", "torch."))]


def test_without_numpy_and_torch() -> None:
    with Child(without_modules, bare=True) as child:
        expect_equal(child.pipe.recv(), PLAIN["floats"], "the tensor")


if __name__ == "__main__":
    runner.main(globals())
