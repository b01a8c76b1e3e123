#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Sync gathers in real processes: idle, inactive, failed and lost ranks, reduced facts, world slots, padded sizes."""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path
from typing import Any, List

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

import convoy  # noqa: E402
from convoy import Column, sync  # noqa: E402
from lib import crew, runner  # noqa: E402
from lib.crew import Member  # noqa: E402
from lib.runner import expect_equal, expect_raises  # noqa: E402

_LATE_S = 20.0  # far beyond what any of these waits takes
_LEAST, _MOST = -(2**63), 2**63 - 1
_FACTS = [Column("least", 5, "min"), Column("most", 0, "max"), Column("total", 0, "sum"),
          Column("mode", 3, "all_equal", ignored=3), Column("note", -1)]


def _facts(member: Member) -> Any:
    group = member.group(schema=_FACTS, timeout=_LATE_S)
    rows = [[4, 10, _MOST, 1, 100], [9, 30, _MOST, 3, 101], [7, _MOST, 2, 1, 102], None]
    result = group.gather(rows[member.rank], votes=1 << member.rank | 16)
    return ([row[0] for row in result.table], [tuple(r) for r in result.reduced], result.presence, result.votes_and,
            result.votes_or, result.first == [row[0] for row in result.table], result.round)


# sgl-project/sglang PR 20853, issue 26454
def test_reduced_facts_are_alike_and_idle_ranks_have_fallbacks() -> None:
    table = [[4, 10, _MOST, 1, 100], [9, 30, _MOST, 3, 101], [7, _MOST, 2, 1, 102], [5, 0, 0, 3, -1]]
    reduced = [(4, True), (_MOST, True), (_MOST, True), (1, True), (0, True)]
    expected = (table, reduced, [[0]] * 4, 16, 31, True, 1)
    expect_equal(crew.run(4, _facts), [expected] * 4, "values")


def _all_idle(member: Member) -> Any:
    group = member.group(schema="sglang-7", timeout=_LATE_S)
    idle = group.gather(None)
    extremes = group.gather([_LEAST if member.rank else _MOST] * 7)
    return [row[0] for row in idle.table], [row[0] for row in extremes.table]


def test_all_idle_and_the_ends_of_int64() -> None:
    values = crew.run(2, _all_idle)
    fallback = values[0][0][0]
    expect_equal(values, [([fallback] * 2, [[_MOST] * 7, [_LEAST] * 7])] * 2, "values")


def _masks(member: Member) -> Any:
    group = member.group(schema=[Column("n", -7)], timeout=_LATE_S)
    version = 2 if member.rank == 1 else 1
    newest = group.gather([member.rank], active=[1, 1, 0, 1] if member.rank == 1 else [1, 1, 1, 1], mask_version=version)
    failure = expect_raises(convoy.Diverged, lambda: group.gather([1], active=[1, 1, 1, member.rank % 2], mask_version=9))
    assert isinstance(failure, convoy.Diverged)
    short = group.gather([member.rank], active=[0])
    return newest.table, newest.presence, newest.mask_version, newest.mask_skew, short.presence


def test_the_newest_mask_wins_and_one_version_has_one_mask() -> None:
    table = [[[0]], [[1]], [[-7]], [[3]]]
    expected = (table, [[0], [0], [sync.INACTIVE], [0]], 2, 3, [[0]] * 4)
    expect_equal(crew.run(4, _masks), [expected] * 4, "values")


def _error_rows(member: Member) -> Any:
    group = member.group(schema=[Column("n", -7)], timeout=_LATE_S)
    steps: List[Any] = []
    for step in range(1, 4):
        try:
            if member.rank == 1 and step == 2:
                group.gather_start(None, error_row=55, tag=step).wait()
            else:
                group.gather([step], tag=step)
            steps.append("ok")
        except convoy.PeerFailed as failure:
            assert failure.report is not None
            steps.append([(m.rank, m.reason) for m in failure.report.members])
    if member.rank == 1:
        result = group.gather_start(None, error_row=56, errors_as_presence=True).wait()
    else:
        result = group.gather([8], errors_as_presence=True)
    return steps, result.presence, result.table


# sgl-project/sglang PR 25404
def test_an_error_row_is_seen_by_all_in_that_step() -> None:
    expected = (["ok", [(1, 55)], "ok"], [[0], [sync.ERROR], [0]], [[[8]], [[-7]], [[8]]])
    expect_equal(crew.run(3, _error_rows), [expected] * 3, "values")


def _world(member: Member) -> Any:
    group = member.group(schema=[Column("n", -7)], sync_slots=4, timeout=_LATE_S)
    result = group.gather([member.rank], world_slot=3 - member.rank if member.rank < 2 else -1)
    expect_raises(convoy.Diverged, lambda: group.gather([0], world_slot=1))
    expect_raises(convoy.InvalidArgument, lambda: group.gather([0], world_slot=4))
    return result.table, result.presence


def test_a_world_gather_puts_rows_into_slots() -> None:
    expected = ([[[-7]], [[-7]], [[1]], [[0]]], [[sync.EMPTY], [sync.EMPTY], [0], [0]])
    expect_equal(crew.run(3, _world), [expected] * 3, "values")


def _killed(member: Member, degrade: bool) -> Any:
    group = member.group(schema=[Column("n", -7)], degrade=degrade, timeout=2.0 if not degrade else _LATE_S)
    for step in range(1, 5):
        group.gather([step], tag=step)
    member.meet()
    if member.rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if degrade:
        return group.gather([5], tag=5).presence
    failure = expect_raises(convoy.PeerLost, lambda: group.gather([5], tag=5))
    assert isinstance(failure, convoy.PeerLost) and failure.report is not None
    return 3 in failure.report.ranks


# sgl-project/sglang issue 29123
def test_a_killed_rank_is_named_or_counts_as_lost() -> None:
    expect_equal(crew.run(4, _killed, False, may_die=[3])[:3], [True] * 3, "named")
    expect_equal(crew.run(4, _killed, True, may_die=[3])[:3], [[[0], [0], [0], [sync.LOST]]] * 3, "presence")


def _gatherer(member: Member) -> Any:
    group = member.group(schema=_FACTS, sync_inner=2, timeout=_LATE_S)
    gatherer = group.gatherer()
    for step in range(1, 30):
        own = [[random.Random("%d/%d/%d" % (step, rank, i)).randrange(-9, 9) for i in range(5)] for rank in range(4)]
        for i, value in enumerate(own[member.rank]):
            gatherer.row[i] = value
        gatherer()
        expect_equal(gatherer.table.tolist(), [value for row in own for value in row], "table")
        expect_equal(gatherer.first.tolist(), own[0] + own[2], "first")
        expect_equal(gatherer.reduced[2].value, own[0][2] + own[2][2], "sum")
    if member.rank == 0:
        expect_raises(convoy.TimedOut, lambda: gatherer(0.2))
        member.meet()
        gatherer.wait()
    else:
        member.meet()
        gatherer()
    return gatherer.answer.round


def test_a_gatherer_gives_the_tables_and_waits_on() -> None:
    expect_equal(crew.run(4, _gatherer), [30] * 4, "rounds")


def _refused(member: Member) -> Any:
    group = member.group(schema="sglang-8", timeout=_LATE_S)
    for wrong in ([1] * 7, [1] * 9, [1.5] * 8, ["1"] * 8, [2**63] * 8, 5, "12345678", [[1]] * 8, [None] * 8):
        expect_raises(convoy.InvalidArgument, lambda: group.gather(wrong))
    for name, values in {"tag": (-1, 2**64, 1.0, "1"), "votes": (-1, 2**32), "mask_version": (-1, 2**64),
                         "world_slot": (2**32, 0.5)}.items():
        for value in values:
            expect_raises(convoy.InvalidArgument, lambda: group.gather([1] * 8, **{name: value}))
    plain = member.context.group("plain", 1, 0)
    expect_raises(convoy.Unsupported, lambda: plain.gather([1]))
    expect_raises(convoy.Unsupported, plain.gatherer)
    return group.gather(list(range(8))).table


def test_wrong_rows_and_options_are_refused_and_nothing_is_sent() -> None:
    expect_equal(crew.run(2, _refused), [[[list(range(8))]] * 2] * 2, "values")


# sgl-project/sglang PR 39899
def test_padded_sizes() -> None:
    plugin = crew.plugin()
    padded = plugin.padded_size([64, 0], captures=[16, 64, 128])
    expect_equal((padded.extent, padded.figure, padded.eligible, padded.lengths, padded.starts),
                 (64, 64, True, [64, 0], [0, 64]), "idle stays idle")
    expect_equal(plugin.padded_size([0, 0], captures=[16]).reason, "all idle", "all idle")
    expect_equal(plugin.padded_size([65], captures=[16, 64]).reason, "no capture size is large enough", "too large")
    expect_equal(plugin.padded_size([5, 6], limit=10, layout="sum").reason, "over the limit", "limit")
    expect_equal(plugin.starts([3, 0, 4], 0, "sum"), [0, 3, 3], "starts")
    for wrong in ([-1], [2**63], [1.5], None, "12"):
        expect_raises(convoy.InvalidArgument, lambda: plugin.padded_size(wrong))
    for layout in ("min", None, 3, []):
        expect_raises(convoy.InvalidArgument, lambda: plugin.padded_size([1], layout=layout))
    expect_raises(convoy.InvalidArgument, lambda: plugin.padded_size([1], limit=2**63))
    expect_raises(convoy.InvalidArgument, lambda: plugin.padded_size([_MOST, _MOST], layout="sum"))


if __name__ == "__main__":
    runner.main(globals())
