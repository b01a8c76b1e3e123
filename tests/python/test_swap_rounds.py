#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Processes that make rounds together while builds take over from each other: every result is what it is without."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any, Callable, List, Tuple

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

import convoy  # noqa: E402
from convoy import PollList  # noqa: E402
from lib import crew, runner, swaps  # noqa: E402
from lib.crew import Member  # noqa: E402
from lib.runner import expect_equal  # noqa: E402

_LATE_S = 30.0
_SIZE = 4
_STATES = 6
Calls = List[Callable[[int], None]]


def _states(rank: int, turn: int) -> List[int]:
    return [(rank * 7 + turn * 3 + entry) % 4 + 1 for entry in range(_STATES)]


def _least(turn: int) -> List[int]:
    return [min(column) for column in zip(*(_states(rank, turn) for rank in range(_SIZE)))]


def _rows(turn: int) -> List[List[int]]:
    return [[rank * 1000 + turn * 8 + column for column in range(8)] for rank in range(_SIZE)]


def _calls(group: Any, rank: int) -> Calls:
    """Each makes one round and compares what it gives."""
    reducer, gatherer = group.reducer(_STATES), group.gatherer()

    def reduce(turn: int) -> None:
        expect_equal(group.reduce(_states(rank, turn), tag=turn + 1), _least(turn), "reduce %d" % turn)

    def prepared(turn: int) -> None:
        reducer.states[:] = bytes(_states(rank, turn))
        reducer(_STATES)
        expect_equal(reducer.result.tolist(), _least(turn), "prepared %d" % turn)

    def keyed(turn: int) -> None:
        keys = [turn * 100 + entry for entry in range(_STATES)]
        order = keys[rank:] + keys[:rank]
        states = dict(zip(keys, _states(rank, turn)))
        given = PollList([states[key] for key in order], keys=order, keyed=True)
        result = group.poll([given], votes=1 << rank)
        expect_equal(dict(zip(order, result.lists[0].states)), dict(zip(keys, _least(turn))), "keyed %d" % turn)
        expect_equal(([o.key for o in result.lists[0].outcomes], result.votes_or), (keys, 15), "outcomes %d" % turn)

    def started(turn: int) -> None:
        operation = group.gather_start(_rows(turn)[rank], tag=turn + 1)
        result = operation.wait()
        expect_equal(([row[0] for row in result.table], result.presence), (_rows(turn), [[0]] * _SIZE), "gather %d" % turn)

    def gathered(turn: int) -> None:
        gatherer.row[:] = memoryview(bytes(64)).cast("q")
        for column, value in enumerate(_rows(turn)[rank]):
            gatherer.row[column] = value
        gatherer()
        expect_equal(gatherer.table.tolist(), sum(_rows(turn), []), "gatherer %d" % turn)

    return [reduce, keyed, prepared, started, gathered]


def _open(member: Member) -> Any:
    return member.group(schema="sglang-8", timeout=_LATE_S)


def _rounds(member: Member, turns: int, moves: Callable[[int, int], bool]) -> Tuple[int, int]:
    group, swapped = _open(member), 0
    calls = _calls(group, member.rank)
    for turn in range(turns):
        if moves(member.rank, turn):
            swaps.swap(crew.plugin())
            swapped += 1
        calls[turn % len(calls)](turn)
    return group.info().round, swapped


def _run(turns: int, moves: Callable[[int, int], bool]) -> List[Tuple[int, int]]:
    values: List[Tuple[int, int]] = crew.run(_SIZE, _rounds, turns, moves, limit_s=100.0)
    expect_equal(len({rounds for rounds, _ in values}), 1, "round numbers of all members")
    return values


def test_swapped_rounds_of_one_member_are_the_same() -> None:
    values = _run(runner.scaled(60, 600), lambda rank, turn: rank == 1 and turn % 4 == 1)
    expect_equal(values[1][1] >= 15, True, "swaps")


def test_swapped_rounds_of_all_members_at_once_are_the_same() -> None:
    _run(runner.scaled(24, 240), lambda rank, turn: turn % 6 == 3)


def test_swapped_rounds_of_one_member_after_another_are_the_same() -> None:
    _run(runner.scaled(40, 400), lambda rank, turn: turn % 8 == 2 * rank)


def _rounds_beside_swaps(member: Member, turns: int, has_swapper: bool) -> int:
    """Rounds on this thread while another swaps, looks, and opens and closes groups."""
    group, failures, done = _open(member), [], threading.Event()
    calls, swapped, context = _calls(group, member.rank), [0], member.context

    def swapper() -> None:
        try:
            while not done.is_set():
                swaps.swap(crew.plugin(), _LATE_S)
                swapped[0] += 1
        except BaseException as failure:
            failures.append(repr(failure))

    def looker() -> None:
        try:
            while not done.wait(0.0005):
                assert group.info().members == _SIZE and context.stats() and group.dump()
                with context.group("alone", 1, 0) as other:
                    expect_equal(other.reduce([3]), [3], "alone")
        except BaseException as failure:
            failures.append(repr(failure))

    threads = [threading.Thread(target=work) for work in ((swapper, looker) if has_swapper else (looker,))]
    for thread in threads:
        thread.start()
    try:
        for turn in range(turns):
            calls[turn % len(calls)](turn)
    finally:
        done.set()
        for thread in threads:
            thread.join(_LATE_S)
    expect_equal(failures, [], "what threads raised")
    return swapped[0]


def _one_swaps(member: Member, turns: int) -> int:
    return _rounds_beside_swaps(member, turns, member.rank == 2)


def _all_swap(member: Member, turns: int) -> int:
    return _rounds_beside_swaps(member, turns, True)


def test_swapped_beside_threads_that_call() -> None:
    values = crew.run(_SIZE, _one_swaps, runner.scaled(200, 2000), limit_s=100.0)
    expect_equal([count > 0 for count in values], [False, False, True, False], "who swapped")


def test_swapped_by_all_beside_threads_that_call() -> None:
    values = crew.run(_SIZE, _all_swap, runner.scaled(60, 600), limit_s=100.0)
    expect_equal([count > 0 for count in values], [True] * _SIZE, "who swapped")


def _two_levels(member: Member) -> List[int]:
    pairs = [[0, 1], [2, 3]], [[0, 2], [1, 3]]
    member.open(timeout_ms=30_000)
    opened = []
    for level, groups in enumerate(pairs):
        mine = next(ranks for ranks in groups if member.rank in ranks)
        endpoint = member.endpoint.rsplit(":", 1)[0] + ":%d" % (int(member.endpoint.rsplit(":", 1)[1]) + 1 + level * _SIZE + mine[0])
        opened.append(member.group("level%d-%d" % (level, mine[0]), members=mine, rendezvous=endpoint, timeout=_LATE_S))
    swapped = 0
    done, failures = threading.Event(), []

    def swapper() -> None:
        nonlocal swapped
        try:
            while not done.is_set():
                swaps.swap(crew.plugin(), _LATE_S)
                swapped += 1
        except BaseException as failure:
            failures.append(repr(failure))

    thread = threading.Thread(target=swapper)
    if member.rank == 0:
        thread.start()
    try:
        for turn in range(40):
            expect_equal(convoy.reduce_two_level(opened[0], opened[1], _states(member.rank, turn)), _least(turn), "two levels")
    finally:
        done.set()
        if member.rank == 0:
            thread.join(_LATE_S)
    expect_equal(failures, [], "what the swaps raised")
    return [swapped]


def test_swapped_beside_calls_of_two_levels() -> None:
    assert crew.run(_SIZE, _two_levels, limit_s=100.0)[0][0] > 0


if __name__ == "__main__":
    swaps.need_second()
    os.environ["CONVOY_LIBRARY"] = swaps.FIRST
    runner.main(globals())
