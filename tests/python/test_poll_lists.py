#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Lists of poll rounds in real processes: keys, generations, gates, staging, states that are none, callbacks."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any, List

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

import convoy  # noqa: E402
from convoy import PollList, Stamp, poll  # noqa: E402
from lib import crew, runner  # noqa: E402
from lib.crew import Member  # noqa: E402
from lib.runner import expect_equal, expect_raises  # noqa: E402

_LATE_S = 20.0  # far beyond what any of these waits takes


def _unequal_digests(member: Member) -> Any:
    group = member.group(timeout=_LATE_S)
    failure = expect_raises(convoy.Diverged, lambda: group.reduce([4], digest=2**64 - 1 - member.rank // 3))
    assert isinstance(failure, convoy.Diverged) and failure.report is not None
    return failure.report.field, [m.digest for m in failure.report.members], group.reduce([3], digest=5)


# sgl-project/sglang PR 37909
def test_unequal_digests_are_divergence() -> None:
    digests = [2**64 - 1] * 3 + [2**64 - 2]
    expect_equal(crew.run(4, _unequal_digests), [("digest", digests, [3])] * 4, "values")


def _keyed_order(member: Member) -> Any:
    group = member.group(timeout=_LATE_S)
    keys = [11, 2**64 - 1, 7, 13]
    states = {11: 4, 2**64 - 1: 3, 7: 4, 13: 4 if member.rank != 2 else 0}
    random.Random(member.rank).shuffle(keys)
    result = group.poll([PollList([states[key] for key in keys], keys=keys, keyed=True, name="queue")]).lists[0]
    return dict(zip(keys, result.states)), [tuple(outcome) for outcome in result.outcomes]


def test_keyed_lists_in_any_order_match_by_key() -> None:
    values = crew.run(4, _keyed_order)
    expected = {11: 4, 2**64 - 1: 3, 7: 4, 13: 0}
    outcomes = sorted((key, 0, state, 4, False) for key, state in expected.items())
    expect_equal(values, [(expected, outcomes)] * 4, "values")


def _keyed_lengths(member: Member, absent_skip: bool) -> Any:
    group = member.group(timeout=_LATE_S)
    keys = list(range(100, 100 + 8 - 7 * (member.rank > 0)))
    lists = [PollList([4] * len(keys), keys=keys, keyed=True, absent_skip=absent_skip)]
    result = group.poll(lists).lists[0]
    return result.states, [(o.key, o.state, o.listed_by) for o in result.outcomes]


def test_a_key_that_a_member_lacks_is_bootstrapping_or_skipped() -> None:
    for skip in (False, True):
        values = crew.run(4, _keyed_lengths, skip)
        rest = [4 if skip else 1] * 7
        outcomes = [(100, 4, 4)] + [(key, rest[0], 1) for key in range(101, 108)]
        expect_equal(values[0], ([4] + rest, outcomes), "rank 0")
        for rank in (1, 2, 3):
            expect_equal(values[rank], ([4], outcomes), "rank %d" % rank)


def _many_outcomes(member: Member) -> Any:
    group = member.group(timeout=_LATE_S)
    keys = list(range(1, 301)) if member.rank == 0 else []
    for _ in range(2):
        result = group.poll([PollList([3] * len(keys), keys=keys, keyed=True)]).lists[0]
    return [o.key for o in result.outcomes]


def test_outcomes_beyond_the_first_room_are_all_there() -> None:
    expect_equal(crew.run(2, _many_outcomes), [list(range(1, 301))] * 2, "keys")


def _late_keys(member: Member) -> Any:
    group = member.group(timeout=_LATE_S)
    known_from = (5, 6, 8, 12)[member.rank]
    seen = []
    for number in range(1, 14):
        entries = [9] if number >= known_from else []
        result = group.poll([PollList([4] * len(entries), keys=entries, keyed=True)]).lists[0]
        seen.append([o.state for o in result.outcomes])
    return seen


# sgl-project/sglang issue 21297, PR 21299
def test_a_key_is_bootstrapping_until_the_last_member_knows_it() -> None:
    expected = [[]] * 4 + [[1]] * 7 + [[4]] * 2
    expect_equal(crew.run(4, _late_keys), [expected] * 4, "outcomes by round")


def _early_failures(member: Member) -> Any:
    group = member.group(timeout=_LATE_S)
    keys = list(range(100)) if member.rank == 3 else list(range(50, 100))
    states = [0 if member.rank == 3 and key < 50 else 3 for key in keys]
    result = group.poll([PollList(states, keys=keys, keyed=True)]).lists[0]
    return sorted(o.key for o in result.outcomes if o.state == 0)


# sgl-project/sglang issue 26912, PR 27028
def test_a_failure_reaches_members_that_do_not_list_it() -> None:
    expect_equal(crew.run(4, _early_failures), [list(range(50))] * 4, "failed keys")


def _wrong_states(member: Member, start: str) -> Any:
    group = member.group(timeout=_LATE_S)
    texts = []
    for wrong in (5, 255, -1, 2**31, 2**63 - 1):
        if member.rank == 1:
            failure = expect_raises(convoy.InvalidArgument, lambda: group.reduce([3, wrong]))
            texts.append(str(failure))
    if member.rank == 1 and start == "post":
        failure = expect_raises(convoy.InvalidArgument, lambda: group.poll([PollList([9])], post_error=77))
        texts.append(str(failure))
    if start == "post" and member.rank == 0:
        failure = expect_raises(convoy.PeerFailed, lambda: group.reduce([4]))
        assert isinstance(failure, convoy.PeerFailed) and failure.report is not None
        texts.append(failure.report.members[0].reason)
    first = group.reduce([3, 4]) if member.rank == 0 or start != "post" else _after_post(group)
    return texts, first, group.reduce([1, 4])


def _after_post(group: Any) -> List[int]:
    """The row of the refused call was posted; it is the group's operation, and finished like any other."""
    expect_raises(convoy.PeerFailed, group.wait)
    states: List[int] = group.reduce([3, 4])
    return states


# sgl-project/sglang PR 31075, PR 14494
def test_a_wrong_state_is_refused_with_its_place_and_nothing_is_sent() -> None:
    values = crew.run(2, _wrong_states, "plain")
    expect_equal(values[0], ([], [3, 4], [1, 4]), "rank 0")
    for text, wrong in zip(values[1][0], (5, 255, -1, 2**31, 2**63 - 1)):
        assert "entry 1" in text and str(wrong) in text and "0 to 4" in text, text


def test_a_refused_call_can_tell_its_peers_at_once() -> None:
    values = crew.run(2, _wrong_states, "post")
    expect_equal(values[0], ([77], [3, 4], [1, 4]), "rank 0")
    expect_equal(values[1][1:], ([3, 4], [1, 4]), "rank 1")


def _repeated_keys(member: Member) -> Any:
    group = member.group(timeout=_LATE_S)
    text = str(expect_raises(convoy.InvalidArgument, lambda: group.poll([PollList([4, 4, 4], keys=[7, 7, 9], keyed=True)])))
    listed = group.poll([PollList([4, 3], keys=[7, 9], keyed=True)]).lists[0]
    again = group.poll([PollList([1, 3], keys=[7, 9], keyed=True)]).lists[0]
    fresh = group.poll([PollList([1, 3], keys=[7, 9], generations=[1, 0], keyed=True)]).lists[0]
    return ["7" in text and "twice" in text or "different" in text or "7" in text, listed.states,
            [(o.key, o.state, o.decided) for o in again.outcomes],
            [(o.key, o.generation, o.state, o.decided) for o in fresh.outcomes]]


# sgl-project/sglang issue 40125
def test_a_key_twice_is_refused_and_an_ended_one_needs_a_new_generation() -> None:
    expected = [True, [4, 3], [(7, 4, True), (9, 3, False)], [(7, 1, 1, False), (9, 0, 3, False)]]
    expect_equal(crew.run(2, _repeated_keys), [expected] * 2, "values")


def _gate(member: Member) -> Any:
    group = member.group(timeout=_LATE_S)
    stamps = [Stamp(70, 1), Stamp(0), Stamp(71, 1), Stamp(72, 9), Stamp(73)]
    past = time.monotonic() - 1
    lists = [PollList([4] * 5, keys=[70, 71, 99, 72, 73], generations=[1, 1, 1, 1, 1], keyed=True, gate=poll.GATE_IDENTITY,
                      stamps=stamps, gate_deadlines=[0, 0, 0, past, 0])]
    identity = group.poll(lists).lists[0]
    host = group.poll([PollList([4, 4], gate=poll.GATE_HOST, stamps=[Stamp(0), Stamp(5)])]).lists[0]
    return identity.states, identity.foreign_count, identity.demoted_count, host.states


# sgl-project/sglang issues 17259 and 22716, PR 17430
def test_a_foreign_stamp_never_passes_the_gate() -> None:
    expect_equal(crew.run(2, _gate), [([4, 3, 3, 0, 4], 2, 2, [3, 4])] * 2, "values")


def _staging(member: Member) -> Any:
    group = member.group(timeout=_LATE_S)
    calls: List[Any] = []

    def advance(number: int, entry: int) -> bool:
        calls.append(("advance", number, entry))
        return entry == 2

    def read(number: int, entry: int) -> int:
        calls.append(("read", number, entry))
        return 4

    result = group.poll([PollList(entry_flags=[1, 0, 1, 3], advance=advance, read=read, count=4), PollList([2])])
    return calls, result.lists[0].states, result.lists[0].demoted_count, result.lists[1].states


def test_staging_is_advanced_before_states_are_read() -> None:
    calls = [("advance", 0, 0), ("advance", 0, 2)] + [("read", 0, entry) for entry in range(4)]
    expect_equal(crew.run(2, _staging), [(calls, [3, 4, 4, 4], 1, [2])] * 2, "values")


class _Own(Exception):
    pass


def _failing_callbacks(member: Member) -> Any:
    group = member.group(timeout=_LATE_S)

    def raises(number: int, entry: int) -> int:
        raise _Own("no")

    expect_raises(_Own, lambda: group.poll([PollList(read=raises, count=1)]))
    expect_raises(_Own, lambda: group.poll([PollList([4], entry_flags=[1], advance=raises)]))
    for wrong in (7, -3, 2**32 + 4, 2**80):
        expect_raises(convoy.InvalidArgument, lambda: group.poll([PollList(read=lambda n, e: wrong, count=1)]))
    expect_raises(convoy.Busy, lambda: group.poll([PollList(read=lambda n, e: group.reduce([4])[0], count=1)]))
    expect_raises(convoy.Busy, lambda: group.poll([PollList(read=lambda n, e: group.close() or 4, count=1)]))
    expect_raises(convoy.Busy, lambda: group.poll([PollList(read=lambda n, e: member.context.close() or 4, count=1)]))
    looks: List[str] = []
    group.poll([PollList(read=lambda n, e: looks.append(group.info().state) or 4, count=1)])
    return len(looks), group.reduce([2])


def test_what_a_callback_raises_comes_out_and_nothing_was_sent() -> None:
    expect_equal(crew.run(2, _failing_callbacks), [(1, [2])] * 2, "values")


def test_consensus_puts_failure_before_success() -> None:
    plugin = convoy.load(crew.LIBRARY)
    expect_equal(plugin.consensus([1, 2, 3, 2**64 - 1], [1, 2, 2**64 - 1], [2], 4), [4, 0, None, 4], "states")
    expect_equal(plugin.consensus([], [], [], 4), [], "no ids")
    expect_raises(convoy.InvalidArgument, lambda: plugin.consensus([1], [], [], 5))
    expect_raises(convoy.InvalidArgument, lambda: plugin.consensus([-1], [], [], 4))
    expect_raises(convoy.InvalidArgument, lambda: plugin.consensus([2**64], [], [], 4))


if __name__ == "__main__":
    runner.main(globals())
