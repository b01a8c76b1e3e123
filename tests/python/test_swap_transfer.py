#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two processes that hand requests on while builds take over from each other, at the sender, the receiver or both."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any, Callable, List, Tuple

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

import convoy  # noqa: E402
from lib import runner, swaps  # noqa: E402
from lib.pair import SECRET, WAIT_S, Child, Pipe  # noqa: E402
from lib.runner import expect_equal  # noqa: E402

_POOL = 16 << 20
_BYTES = 300_000


def _payload(turn: int) -> bytes:
    return bytes((turn + i) % 251 for i in range(251)) * (_BYTES // 251)


def _opened() -> Tuple[convoy.Plugin, convoy.Context, convoy.Engine]:
    plugin = convoy.load(swaps.FIRST)
    context = plugin.context(secret=SECRET, settings={"timeout_ms": 20_000}, log=False)
    return plugin, context, context.engine(address="tcp://127.0.0.1:0", pool_bytes=_POOL)


def _receive(pipe: Pipe, turns: int, is_swapping: bool, copy: bool) -> None:
    """Loads each request, swaps with its view in hand, and looks again."""
    plugin, context, engine = _opened()
    with context:
        pipe.send(engine.session)
        for turn in range(turns):
            loaded = engine.accept("r%d" % turn, copy=copy, timeout=WAIT_S)
            view, expected = loaded.tensors["x"].data, _payload(turn)
            expect_equal(view == expected, True, "bytes of request %d" % turn)
            if is_swapping and turn % 3 == 0:
                swaps.swap(plugin)
            expect_equal((view == expected, loaded.scalars()), (True, {"turn": turn}), "request %d, looked at again" % turn)
            loaded.release()
            expect_equal(view == expected, True, "a view after the release of %d" % turn)
            del view
        expect_equal((engine.figures().taken_count, pipe.recv()), (0, "end"), "slots that are taken, and the word")


def _send(turns: int, is_swapping: bool, other_is: bool, copy: bool) -> None:
    plugin, context, engine = _opened()
    with context, Child(_receive, turns, other_is, copy) as child:
        peer = engine.connect(child.pipe.recv())
        for turn in range(turns):
            staged = engine.stage("r%d" % turn, {"x": ("uint8", (len(_payload(turn)),), _payload(turn))}, {"turn": turn})
            sent = engine.send_start(peer, staged)
            if is_swapping and turn % 3 == 1:
                swaps.swap(plugin)
            sent.wait(WAIT_S)
            sent.release()
            staged.release()
        child.pipe.send("end")


def test_swapped_sender_sends_the_same() -> None:
    _send(9, True, False, False)


def test_swapped_receiver_loads_the_same_and_keeps_its_views() -> None:
    _send(9, False, True, False)


def test_swapped_on_both_sides() -> None:
    _send(12, True, True, False)


def test_swapped_on_both_sides_with_copies() -> None:
    _send(12, True, True, True)


def _receive_all(pipe: Pipe, turns: int) -> None:
    _beside_swaps(lambda plugin, engine: _accept_all(pipe, engine, turns))


def _accept_all(pipe: Pipe, engine: convoy.Engine, turns: int) -> None:
    pipe.send(engine.session)
    for turn in range(turns):
        with engine.accept("r%d" % turn, timeout=WAIT_S) as loaded:
            expect_equal(loaded.tensors["x"].data == _payload(turn), True, "bytes of request %d" % turn)
    expect_equal(pipe.recv(), "end", "the word")


def _beside_swaps(work: Callable[[convoy.Plugin, convoy.Engine], None]) -> int:
    """Works while another thread swaps all the time."""
    plugin, context, engine = _opened()
    done, failures, count = threading.Event(), [], 0

    def swapper() -> None:
        nonlocal count
        try:
            while not done.is_set():
                swaps.swap(plugin, WAIT_S)
                count += 1
        except BaseException as failure:
            failures.append(repr(failure))

    thread = threading.Thread(target=swapper)
    with context:
        thread.start()
        try:
            work(plugin, engine)
        finally:
            done.set()
            thread.join(WAIT_S)
    expect_equal(failures, [], "what the swaps raised")
    return count


def test_swapped_all_the_time_beside_calls_that_wait() -> None:
    turns = runner.scaled(40, 400)

    def work(plugin: convoy.Plugin, engine: convoy.Engine) -> None:
        with Child(_receive_all, turns) as child:
            peer = engine.connect(child.pipe.recv(), timeout=WAIT_S)
            for turn in range(turns):
                tensors = {"x": ("uint8", (len(_payload(turn)),), _payload(turn))}
                engine.send(peer, request="r%d" % turn, tensors=tensors, timeout=WAIT_S).release()
            expect_equal(engine.query("r0", peer, timeout=WAIT_S).state != "", True, "a query")
            child.pipe.send("end")

    assert _beside_swaps(work) > 0


def test_swapped_producer_is_asked_on() -> None:
    """A stage that waits for its producer goes over with its function."""
    plugin, context, engine = _opened()
    with context:
        answers: List[bool] = []
        is_ready = threading.Event()

        def ready() -> bool:
            answers.append(is_ready.is_set())
            return is_ready.is_set()

        staged = engine.stage_start("r1", {"x": ("uint8", (4,), b"abcd")}, ready=ready)
        expect_equal(staged.test(), False, "staged before its producer is ready")
        swaps.swap(plugin)
        expect_equal(staged.test(), False, "nor after the swap")
        is_ready.set()
        staged.wait(WAIT_S)
        expect_equal((staged.tensors["x"].data.tobytes(), answers[-1]), (b"abcd", True), "staged")


def test_swapped_registered_memory_and_raw_writes() -> None:
    plugin, context, engine = _opened()
    with context:
        other = context.engine(address="tcp://127.0.0.1:0", pool_bytes=_POOL)
        peer, memory, target = engine.connect(other.session), bytearray(b"raw bytes"), bytearray(9)
        mine, theirs = engine.register(memory), other.register(target)
        for _ in range(2):
            swaps.swap(plugin)
            target[:] = bytes(9)
            engine.transfer_sync(peer, source=mine.address, target=theirs.address, bytes=9, timeout=WAIT_S)
            expect_equal(bytes(target), b"raw bytes", "what was written")
        engine.deregister(memory)
        other.deregister(target)


if __name__ == "__main__":
    swaps.need_second()
    runner.main(globals())
