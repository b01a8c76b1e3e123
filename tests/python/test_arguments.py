#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Arguments that do not fit are refused with InvalidArgument before anything happens; none is cut or taken for another."""

from __future__ import annotations

import array
import signal
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

import convoy  # noqa: E402
from lib import runner  # noqa: E402
from lib.pair import engine_of  # noqa: E402
from lib.runner import expect_equal, expect_raises  # noqa: E402

BIG = 2**64 + 3


class Lookalike:
    """Has an array interface, and no address in it."""

    def __init__(self, **interface: Any) -> None:
        self.__array_interface__ = interface
        self.dtype = "uint8"


def refused(calls: List[Callable[[], Any]]) -> None:
    for call in calls:
        expect_raises(convoy.InvalidArgument, call)


def test_numbers_of_an_engine_are_never_cut() -> None:
    with engine_of() as engine, engine_of() as other:
        peer = engine.connect(other.session)
        stage = lambda **options: lambda: engine.stage("r", {"a": b"1"}, **options)  # noqa: E731
        options: List[Dict[str, Any]] = [{name: value} for name in ("attempt", "stream", "event") for value in (-1, BIG, 1.5)]
        refused([stage(**option) for option in options + [{"ready": 5}, {"scalars": "{"}]])
        refused([lambda: engine.reserve("r", [BIG]), lambda: engine.reserve("r", 5), lambda: engine.reserve("r", [1], slot_id=-1),
                 lambda: engine.fits([-1]), lambda: engine.resize(BIG), lambda: engine.query("r", attempt=-1),
                 lambda: engine.transfer_sync(peer, [(0, 0)]), lambda: engine.load(None), lambda: engine.load(10**12),
                 lambda: engine.accept(destination=(-5, 8)), lambda: engine.accept(retries=2**32)])
        expect_equal(engine.info().transfers, 0, "transfers that were started")


def test_tensors_whose_memory_is_not_known() -> None:
    known: Dict[str, Any] = {"shape": (2,), "typestr": "|u1", "data": (1, False), "version": 3}
    with engine_of() as engine:
        for wrong in (Lookalike(**dict(known, data=b"ab")), Lookalike(**dict(known, data=None)),
                      Lookalike(**dict(known, shape=(-2,))), Lookalike(**dict(known, typestr="zz")),
                      Lookalike(**{name: known[name] for name in ("typestr", "data")}), ("uint8", (4,), -5),
                      ("uint8", (4,), BIG), ("uint8", (2**64,), b""), ("uint8", (1.5,), b"1"), ("uint8", 1, b"1")):
            expect_raises(convoy.InvalidArgument, lambda: engine.stage("r", {"a": wrong}))


def test_peers_and_transfers_of_another_engine() -> None:
    with engine_of() as one, engine_of() as two:
        peer, staged = one.connect(two.session), one.stage("r", {"a": b"1"})
        mine = two.stage("r", {"a": b"2"})
        refused([lambda: two.send(peer, mine), lambda: one.send(peer, mine), lambda: one.send(staged, staged),
                 lambda: two.accept(peer=peer), lambda: two.query("r", peer), lambda: one.send(None, staged),
                 lambda: two.load(b"x", slot=staged)])


def test_bad_calls_leave_no_round_open() -> None:
    with convoy.load() as plugin, plugin.context(secret=b"x", log=False) as context:
        group = context.group("one", members=1, rank=0, schema="sglang-8")
        high = array.array("Q", [2**63] * 8)
        refused([lambda: group.gather([1] * 8, timeout=-1), lambda: group.poll([convoy.PollList([1])], timeout=-1),
                 lambda: group.post_error(1, timeout=-1), lambda: group.gather(high), lambda: group.poll([5]),
                 lambda: group.gather([1] * 8, active=5), lambda: group.poll([convoy.PollList([1], stamps=5)]),
                 lambda: group.poll([convoy.PollList([1], keys=array.array("q", [-1]))])])
        expect_equal(group.reduce([3]), [3], "the next round")


def test_a_signals_handler_may_look_at_what_its_thread_is_in() -> None:
    with convoy.load() as plugin, plugin.context(secret=b"x", log=False) as context:
        engine, group = context.engine(pool_bytes=1 << 20), context.group("one", members=1, rank=0)
        looks: List[Callable[[], Any]] = [engine.figures, group.info]
        seen = [0]

        def look(number: int, frame: Any) -> None:
            seen[0] += 1
            for ask in looks:
                ask()
            signal.setitimer(signal.ITIMER_REAL, 0.0003)

        before = signal.signal(signal.SIGALRM, look)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0003)
            end = time.monotonic() + 60
            while seen[0] < 2500 and time.monotonic() < end:
                for ask in looks:
                    ask()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


if __name__ == "__main__":
    runner.main(globals())
