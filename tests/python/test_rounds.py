#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Poll rounds of real processes: members that disagree, fail, are late, die, come back."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, List

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

import convoy  # noqa: E402
from convoy import PollList  # noqa: E402
from lib import crew, runner  # noqa: E402
from lib.crew import Member  # noqa: E402
from lib.runner import expect_equal, expect_raises  # noqa: E402

_LATE_S = 20.0  # far beyond what any of these waits takes


def _is_sentence(failure: convoy.ConvoyError) -> None:
    text = str(failure)
    assert " " in text and len(text) > 10 and failure.status == type(failure).STATUS, (text, failure.status)


def _unequal_counts(member: Member) -> Any:
    group = member.group(timeout=_LATE_S)
    failure = expect_raises(convoy.Diverged, lambda: group.reduce([4] * (8 if member.rank == 0 else 1), tag=7))
    assert isinstance(failure, convoy.Diverged) and failure.report is not None
    _is_sentence(failure)
    states = group.reduce([4] * 7 + [member.rank], tag=8)
    report = failure.report
    seen = [(m.rank, m.entries, m.lists, m.tag, m.operation) for m in report.members]
    return report.field, report.own_rank, failure.round == report.round, seen, states


# sgl-project/sglang PR 37909
def test_unequal_counts_are_divergence_on_all_with_names() -> None:
    values = crew.run(4, _unequal_counts)
    seen = [(rank, 8 if rank == 0 else 1, 1, 7, "poll") for rank in range(4)]
    for rank, value in enumerate(values):
        expect_equal(value, ("counts", rank, True, seen, [4] * 7 + [0]), "rank %d" % rank)


def _none_take_part(member: Member) -> Any:
    group = member.group(timeout=_LATE_S)
    failure = expect_raises(convoy.Diverged, lambda: group.reduce([] if member.rank == 1 else [4, 4, 4]))
    assert isinstance(failure, convoy.Diverged) and failure.report is not None
    none = group.reduce([])
    keyed = group.poll([PollList([4] * 3 if member.rank != 1 else [], keys=[1, 2, 3] if member.rank != 1 else [], keyed=True)])
    votes = group.poll([], votes=0b101 if member.rank else 0b110)
    return ([m.entries for m in failure.report.members], none, [o.state for o in keyed.lists[0].outcomes],
            votes.votes_and, votes.votes_or, votes.lists)


# SemiAnalysisAI/InferenceX issue 2151
def test_an_empty_list_takes_part() -> None:
    expect_equal(crew.run(4, _none_take_part), [([3, 0, 3, 3], [], [1, 1, 1], 0b100, 0b111, ())] * 4, "values")


def _steps(member: Member) -> Any:
    group = member.group(timeout=_LATE_S)
    for step in range(1, 57):
        group.reduce([4], tag=step)
    failure = expect_raises(convoy.Diverged, lambda: group.reduce([4], tag=58 - member.rank))
    assert isinstance(failure, convoy.Diverged) and failure.report is not None
    return failure.report.field, [m.tag for m in failure.report.members]


# vllm-project/vllm issue 28224
def test_a_rank_that_is_a_step_ahead_is_named_at_once() -> None:
    expect_equal(crew.run(2, _steps), [("tag", [58, 57])] * 2, "values")


def _error_rows(member: Member) -> Any:
    group = member.group(timeout=_LATE_S)
    if member.rank == 2:
        group.post_error(-41)
        return group.reduce([4])
    failure = expect_raises(convoy.PeerFailed, lambda: group.reduce([4, 4]))
    assert isinstance(failure, convoy.PeerFailed) and failure.report is not None
    _is_sentence(failure)
    expect_equal([(m.rank, m.condition, m.reason) for m in failure.report.members], [(2, "error", -41)], "report")
    return group.reduce([4])


def test_an_error_row_reaches_all_and_the_group_goes_on() -> None:
    expect_equal(crew.run(4, _error_rows), [[4]] * 4, "values")


def _timeout(member: Member) -> Any:
    group = member.group(timeout=_LATE_S)
    if member.rank == 3:
        member.meet()
        return group.reduce([3])
    failure = expect_raises(convoy.TimedOut, lambda: group.reduce([4], timeout=0.3))
    assert isinstance(failure, convoy.TimedOut) and isinstance(failure, TimeoutError) and failure.report is not None
    _is_sentence(failure)
    expect_equal([(m.rank, m.condition) for m in failure.report.members], [(3, "missing")], "report")
    expect_equal(group._report.read(), None, "a report that was read already")
    expect_raises(convoy.Busy, lambda: group.reduce([4]))
    expect_equal(group.info().state, "stuck", "state")
    member.meet()
    return group.wait()


def test_a_timeout_names_who_is_missing_and_can_be_waited_on() -> None:
    expect_equal(crew.run(4, _timeout), [[3]] * 4, "values")


def _killed(member: Member) -> Any:
    group = member.group(timeout=_LATE_S)
    for _ in range(3):
        group.reduce([4])
    member.meet()
    if member.rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    failure = expect_raises(convoy.PeerLost, lambda: group.reduce([4]))
    assert isinstance(failure, convoy.PeerLost) and failure.report is not None
    seen = [(m.rank, m.condition, m.noticed_by in ("process", "peer")) for m in failure.report.members if m.rank == 3]
    expect_equal(seen, [(3, "lost", True)], "report")
    again = expect_raises((convoy.PeerLost, convoy.Broken), lambda: group.poll([PollList([4])]))  # type: ignore[arg-type]
    _is_sentence(again)  # type: ignore[arg-type]
    assert again.report is not None and 3 in again.report.ranks, again.report  # type: ignore[attr-defined]
    assert time.monotonic() - began < _LATE_S / 2
    opened = group.reopen()
    expect_equal(opened.lost, 1, "lost")
    return group.reduce([4 - member.rank]), opened.epoch


def test_a_killed_rank_is_lost_and_the_others_reopen() -> None:
    values = crew.run(4, _killed, may_die=[3])
    expect_equal(values[3], crew.Died(-signal.SIGKILL), "rank 3")
    expect_equal([value[0] for value in values[:3]], [[2]] * 3, "states")
    assert len({value[1] for value in values[:3]}) == 1, values


def _abandoned(member: Member) -> Any:
    group = member.group(timeout=_LATE_S)
    if member.rank == 1:
        operation = group.poll_start([PollList([4])])
        expect_equal(operation.test(), None, "before the peer came")
        expect_equal(operation.abandon(), False, "complete before")
        expect_raises(convoy.Closed, operation.abandon)
        member.meet()
    else:
        member.meet()
        failure = expect_raises(convoy.Broken, lambda: group.reduce([4]))
        assert isinstance(failure, convoy.Broken) and failure.report is not None
        expect_equal([(m.rank, m.condition) for m in failure.report.members if m.rank == 1], [(1, "abandoned")], "report")
    group.reopen()
    return group.reduce([member.rank])


def test_an_abandoned_round_is_broken_for_all_until_reopened() -> None:
    expect_equal(crew.run(2, _abandoned), [[0]] * 2, "values")


def test_two_levels_give_the_least_of_all() -> None:
    _two_ports(False, [[0, 1, 2, 3]] * 4)


def test_a_divergence_at_the_first_level_reaches_the_second() -> None:
    _two_ports(True, ["Diverged", "PeerFailed", "Diverged", "PeerFailed"])


def _two_ports(wrong: bool, expected: List[Any]) -> None:
    expect_equal(crew.run(4, _two_level, wrong, [crew.free_endpoint() for _ in range(4)]), expected, "values")


def _two_level(member: Member, wrong: bool, ports: List[str]) -> Any:
    tp, cp = divmod(member.rank, 2)
    context = member.open()
    first = context.group("tp", [cp, 2 + cp], member.rank, ports[cp], timeout=_LATE_S)
    second = context.group("cp", [2 * tp, 2 * tp + 1], member.rank, ports[2 + tp], timeout=_LATE_S)
    states = [4, 4, 4, 4]
    states[member.rank] = member.rank
    if not wrong:
        return convoy.reduce_two_level(first, second, states)
    if member.rank == 0:
        states = states[:3]
    failure = expect_raises(convoy.ConvoyError, lambda: convoy.reduce_two_level(first, second, states))
    expect_raises(convoy.InvalidArgument, lambda: convoy.reduce_two_level(first, first, states))
    second.close()
    expect_raises(convoy.Closed, lambda: convoy.reduce_two_level(first, second, states))
    return type(failure).__name__


def _many(member: Member, rounds: int) -> Any:
    group = member.group(timeout=_LATE_S)
    reducer = group.reducer(64)
    for number in range(rounds):
        own = [random.Random("%d/%d" % (number, rank)).choices(range(5), k=number % 65) for rank in range(member.size)]
        reducer.states[: number % 65] = bytes(own[member.rank])
        reducer.tag = number
        reducer(number % 65)
        expected = [min(column) for column in zip(*own)]
        expect_equal(reducer.result[: number % 65].tolist(), expected, "round %d" % number)
    return reducer.round


def test_random_rounds_equal_the_reference() -> None:
    count = runner.scaled(300, 10000)
    expect_equal(crew.run(4, _many, count), [count] * 4, "rounds")


def _eight_groups(member: Member, endpoints: List[str], rounds: int) -> Any:
    context = member.open()
    groups = [context.group("g%d" % i, 2, member.rank, endpoints[i], timeout=_LATE_S) for i in range(8)]
    bad: List[Any] = []

    def work(number: int) -> None:
        try:
            for step in range(rounds):
                if groups[number].reduce([4, (number + step + member.rank) % 5]) != [4, min(
                        (number + step) % 5, (number + step + 1) % 5)]:
                    bad.append((number, step))
        except BaseException as failure:
            bad.append(failure)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(member.limit_s)
    return bad


def test_eight_threads_on_eight_groups() -> None:
    endpoints = [crew.free_endpoint() for _ in range(8)]
    expect_equal(crew.run(2, _eight_groups, endpoints, runner.scaled(50, 2000)), [[]] * 2, "wrong results")


def test_an_unknown_status_is_its_band() -> None:
    from convoy import _abi, errors

    bands = {-199: convoy.CallerError, -299: convoy.ResourceError, -399: convoy.PeerError, -499: convoy.ProtocolError,
             -599: convoy.LoadError, -999: convoy.InternalError, -1234: convoy.ConvoyError, -777: convoy.ConvoyError}
    for status, cls in bands.items():
        error = _abi.Error(status=status, text=b"what it says", rank=3, round=9, sys_errno=2, ucx_status=-4)
        failure = errors.make(status, error)
        assert type(failure) is cls, (status, type(failure))
        expect_equal((str(failure), failure.status, failure.rank, failure.round, failure.errno, failure.ucx_status),
                     ("what it says", status, 3, 9, 2, -4), "its parts")


if __name__ == "__main__":
    runner.main(globals())
