#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Logs of reductions: the host's by wrapping torch.distributed, convoy's from the JSON that its groups write."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

from lib import convoy_side, gang, recorder, runner  # noqa: E402
from lib.recorder import GATHER, MIN, SUM, Record  # noqa: E402
from lib.runner import expect_equal, expect_raises  # noqa: E402


def _reduce_in_every_way(member: gang.Member) -> list[Record]:
    import torch

    dist: Any = torch.distributed

    own, world = torch.tensor([member.rank, 7]), member.groups["world"]
    with recorder.Recorder({"pair": member.groups["pair"], "all": world}).recording() as log:
        dist.all_reduce(own.clone(), op=dist.ReduceOp.MIN, group=member.groups["pair"])
        work = dist.all_reduce(own.clone(), group=world, async_op=True)
        work.wait()
        dist.all_gather([torch.zeros(2, dtype=torch.int64) for _ in range(member.size)], own, group=world)
        dist.all_reduce(torch.tensor([], dtype=torch.uint8), dist.ReduceOp.MIN)
        records = log.take()
        expect_equal(log.take(), [], "records taken twice")
    dist.all_reduce(own, group=world)
    expect_equal(log.take(), [], "records after the end")
    return records


def test_recorder_has_group_operation_input_and_output() -> None:
    for rank, records in enumerate(gang.run(2, _reduce_in_every_way, groups={"pair": [[0, 1]]})):
        expect_equal(
            records,
            [
                Record("pair", MIN, (rank, 7), (0, 7)),
                Record("all", SUM, (rank, 7), (1, 14)),
                Record("all", GATHER, (rank, 7), (0, 7, 1, 7)),
                Record("unnamed", MIN, (), ()),
            ],
            f"records of rank {rank}",
        )


def _call(number: int, **other: Any) -> dict[str, Any]:
    one = {"name": "x", "count": 1, "input": [number], "output": [0]}
    call = {"operation": "poll", "round": number, "status": "OK", "cut": False, "lists": [one]}
    return {**call, "input_bytes": 1, "output_bytes": 1, **other}


def test_call_log_gives_the_same_records() -> None:
    rows = [{"name": "rows", "count": 2, "input": [[7, -1]], "output": [[7, -1], [-(2**63), 8]]}]
    two = [{"name": "a", "count": 2, "input": [1, 4], "output": [1, 2]}, {"name": "b", "count": 1, "input": [3], "output": [0]}]
    calls = [_call(1), _call(2, operation="sync", lists=rows), _call(3, lists=two)]
    expected = [
        Record("g", MIN, (1,), (0,)),
        Record("g", GATHER, (7, -1), (7, -1, -(2**63), 8)),
        Record("g", MIN, (1, 4, 3), (1, 2, 0)),
    ]
    expect_equal(recorder.from_call_log("g", calls), expected, "records")


def test_call_log_that_does_not_tell_all_is_refused() -> None:
    for call in (_call(1, cut=True), _call(1, status="TIMED_OUT"), _call(1, status="IN_PROGRESS")):
        expect_raises(ValueError, functools.partial(recorder.from_call_log, "g", [call]))


def test_call_log_is_followed_until_it_loses_calls() -> None:
    calls, tail = [_call(number) for number in range(9)], recorder.CallLogTail()
    expect_equal(tail.take("g", calls[:3]), calls[:3], "at first")
    expect_equal(tail.take("other", []), [], "an empty log")
    expect_equal(tail.take("g", calls[:3]), [], "nothing new")
    expect_equal(tail.take("g", calls[2:6]), calls[3:6], "a log that has forgotten some which were seen")
    expect_raises(ValueError, lambda: tail.take("g", calls[7:]))


def test_call_log_of_a_real_group_is_read() -> None:
    if not Path(convoy_side.library()).exists():
        raise runner.Skip(f"{convoy_side.library()} has not been built")
    import convoy

    with convoy.load(convoy_side.library()) as plugin, plugin.context(secret=b"ours") as context:
        with context.group("alone", members=1, rank=0) as group:
            group.reduce([4, 0, 3])
            group.reduce([])
            records = recorder.from_call_log("alone", group.call_log())
    expect_equal(records, [Record("alone", MIN, (4, 0, 3), (4, 0, 3)), Record("alone", MIN, (), ())], "records")


if __name__ == "__main__":
    runner.need("torch")
    runner.main(globals())
