#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C and other signals in every wait: the exception comes within a slice, and the round can be waited for or given up."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

import convoy  # noqa: E402
from convoy import PollList  # noqa: E402
from lib import crew, runner  # noqa: E402
from lib.crew import Member  # noqa: E402
from lib.runner import expect_equal, expect_raises  # noqa: E402

_LATE_S = 30.0
_SOON_S = 10.0  # a slice is 0.1 s


def _signal_when(ready: Callable[[], bool], number: int = signal.SIGINT) -> threading.Thread:
    def work() -> None:
        end = time.monotonic() + _SOON_S
        while not ready() and time.monotonic() < end:
            time.sleep(0.001)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def _interrupted(group: Any, call: Callable[[], Any]) -> None:
    """Makes a call that Ctrl-C ends while its round is open."""
    began = time.monotonic()
    sender = _signal_when(lambda: group.owner is not None and bool(group.info().operation))
    expect_raises(KeyboardInterrupt, call)
    sender.join(_SOON_S)
    assert time.monotonic() - began < _SOON_S
    expect_equal(group.info().state, "stuck", "state")


_CALLS = ("reduce", "reduce with a time", "reduce of ints", "poll", "operation", "reducer", "gather", "gatherer", "gather_start")


def _call_and_resume(group: Any, kind: str) -> Any:
    """A call, and what gives its result after it was left by an exception."""
    row = [7] * 8
    if kind in ("reducer", "gatherer"):
        made = group.reducer(2) if kind == "reducer" else group.gatherer()
        if kind == "reducer":
            made.states[:] = b"\3\2"
            return lambda: made(2), lambda: made.wait() or made.result.tolist()
        for i in range(8):
            made.row[i] = 7
        return made, lambda: made.wait() or made.table.tolist()[:8]
    if kind in ("operation", "gather_start"):
        operation = group.poll_start([PollList([3, 2])]) if kind == "operation" else group.gather_start(row)
        return operation.wait, operation.wait
    calls = {"reduce": lambda: group.reduce([3, 2]), "reduce with a time": lambda: group.reduce([3, 2], _LATE_S),
             "reduce of ints": lambda: group.reduce(memoryview(b"\3\0\0\0\2\0\0\0").cast("i")),
             "poll": lambda: group.poll([PollList([3, 2])]), "gather": lambda: group.gather(row)}
    return calls[kind], group.wait


def _waits(member: Member, kind: str) -> Any:
    group = member.group(schema="sglang-8", timeout=_LATE_S)
    is_gather = kind.startswith("gather")
    plain = (lambda: group.gather([7] * 8).table[0][0]) if is_gather else (lambda: group.reduce([3, 2]))
    for _ in range(2):
        if member.rank == 1:
            member.meet()
            plain()
        else:
            call, resume = _call_and_resume(group, kind)
            _interrupted(group, call)
            expect_raises(convoy.Busy, lambda: group.reduce([0]))
            member.meet()
            result = resume()
            result = result.lists[0].states if isinstance(result, convoy.PollResult) else result
            result = result.table[0][0] if isinstance(result, convoy.GatherResult) else result
            expect_equal(result, [7] * 8 if is_gather else [3, 2], kind)
    if member.rank == 1:
        member.meet()
        return type(expect_raises(convoy.PeerError, plain)).__name__, group.reopen() and plain()
    _interrupted(group, _call_and_resume(group, kind)[0])
    expect_equal(group.abandon(), False, "complete")
    member.meet()
    return "Broken", group.reopen() and plain()


def test_ctrl_c_in_every_wait_leaves_the_round_open() -> None:
    for kind in _CALLS:
        result = [7] * 8 if kind.startswith("gather") else [3, 2]
        expect_equal(crew.run(2, _waits, kind), [("Broken", result)] * 2, kind)


def _open(member: Member) -> Any:
    if member.rank == 1:
        member.meet()
        return member.group().reduce([2])
    context = member.open()
    began = time.monotonic()
    sender = _signal_when(lambda: bool(context._life._inside))
    expect_raises(KeyboardInterrupt, lambda: member.group(open_timeout=_LATE_S))
    sender.join(_SOON_S)
    assert time.monotonic() - began < _SOON_S
    member.meet()
    return member.group().reduce([1])


def test_ctrl_c_in_an_open_gives_it_up() -> None:
    expect_equal(crew.run(2, _open), [[1]] * 2, "values")


def _two_levels(member: Member) -> Any:
    context = member.open()
    first = context.group("one", 1, 0, timeout=_LATE_S)
    second = member.group(timeout=_LATE_S)
    if member.rank == 1:
        member.meet()
        return type(expect_raises(convoy.PeerError, lambda: second.reduce([3]))).__name__
    sender = _signal_when(lambda: bool(second.info().operation))
    expect_raises(KeyboardInterrupt, lambda: convoy.reduce_two_level(first, second, [4]))
    sender.join(_SOON_S)
    member.meet()
    return first.reduce([4])


def test_ctrl_c_in_two_levels_gives_the_call_up() -> None:
    expect_equal(crew.run(2, _two_levels), [[4], "Broken"], "values")


def _handler(member: Member, what: str) -> Any:
    """A handler of the host's that returns, cancels, or closes while the main thread waits."""
    group = member.group(timeout=_LATE_S)
    if member.rank == 1:
        member.meet()
        if what != "close":
            return group.reduce([1])
        return type(expect_raises(convoy.PeerLost, lambda: group.reduce([1]) and group.reduce([1]))).__name__
    does = {"return": lambda: member.barrier.wait(_SOON_S), "cancel": lambda: group.cancel("enough"),
            "close": lambda: member.context.close()}
    signal.signal(signal.SIGTERM, lambda number, frame: does[what]())
    sender = _signal_when(lambda: bool(group.info().operation), signal.SIGTERM)
    try:
        if what == "return":
            return group.reduce([2])
        kind = convoy.Canceled if what == "cancel" else convoy.Closed
        failure = expect_raises(kind, lambda: group.reduce([2]))
        if what == "close":
            member.meet()
            return type(failure).__name__
        assert "enough" in str(failure), failure
        member.meet()
        return group.wait()
    finally:
        sender.join(_SOON_S)


def test_a_signal_handler_may_use_what_is_waiting() -> None:
    expect_equal(crew.run(2, _handler, "return"), [[1]] * 2, "a handler that returns")
    expect_equal(crew.run(2, _handler, "cancel"), [[1]] * 2, "a handler that cancels")
    expect_equal(crew.run(2, _handler, "close"), ["Closed", "PeerLost"], "a handler that closes")


def _storm(member: Member, seconds: float) -> Any:
    """Ctrl-C at any place of the Python side leaves nothing locked."""
    context = member.open()
    group = context.group("one", 1, 0, schema="sglang-8", timeout=_LATE_S)
    reducer, gatherer = group.reducer(4), group.gatherer()
    calls = [lambda: group.reduce([4, 3]), lambda: group.poll([PollList([1])]), lambda: reducer(4), gatherer, group.info,
             lambda: group.gather([1] * 8), context.stats]
    armed, count = [False], 0

    def strike(number: int, frame: Any) -> None:
        if armed[0]:
            armed[0] = False
            raise KeyboardInterrupt()

    signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            armed[0] = True
            for call in calls:
                _call_or_clear(group, call)
            armed[0] = False
        except KeyboardInterrupt:
            count += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert group.owner is None and not context._life._inside
    return count > 50, group.info().state in ("ready", "active")


def _call_or_clear(group: Any, call: Callable[[], Any]) -> None:
    try:
        call()
    except convoy.Busy:  # the call before was interrupted with its round complete and its result not read
        assert group.owner is None, "a token was left behind"
        group.wait()


def test_a_storm_of_ctrl_c_leaves_no_lock_behind() -> None:
    expect_equal(crew.run(1, _storm, float(runner.scaled(2, 60))), [(True, True)], "values")


if __name__ == "__main__":
    runner.main(globals())
