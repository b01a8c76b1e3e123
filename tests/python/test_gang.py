#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The gang hands back values, and what goes wrong in a rank is said with its rank and its traceback."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

from lib import gang, runner  # noqa: E402
from lib.runner import expect_equal, expect_raises  # noqa: E402


def _sums(member: gang.Member, start: int) -> dict[str, Any]:
    import torch

    dist: Any = torch.distributed

    sums = {}
    for name in sorted(member.groups):
        value = torch.tensor([start + member.rank])
        dist.all_reduce(value, group=member.groups[name])
        sums[name] = int(value)
    return {"sums": sums, "ranks": member.ranks, "process": os.getpid()}


def _raises(member: gang.Member) -> None:
    if member.rank == 1:
        raise KeyError("the reason")
    _sums(member, 0)


def _dies(member: gang.Member) -> None:
    if member.rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    _sums(member, 0)


def _hangs(member: gang.Member) -> None:
    if member.rank == 1:
        signal.pause()


def test_gang_values_come_by_rank_and_groups_are_real() -> None:
    values = gang.run(4, _sums, args=(10,), groups=gang.grid_groups(4, 2, 2))
    expect_equal(len({value["process"] for value in values}), 4, "processes")
    expect_equal([value["sums"]["world"] for value in values], [46] * 4, "sums over all")
    expect_equal([value["ranks"]["tp2x2"] for value in values], [[0, 2], [1, 3], [0, 2], [1, 3]], "TP groups")
    expect_equal([value["sums"]["tp2x2"] for value in values], [22, 24, 22, 24], "sums over TP groups")
    expect_equal([value["sums"]["cp2x2"] for value in values], [21, 21, 25, 25], "sums over CP groups")


def test_gang_exception_is_shown_with_rank_and_traceback() -> None:
    text = str(expect_raises(gang.GangError, lambda: gang.run(2, _raises)))
    for part in ("rank 1 of 2", "the reason", "in _raises"):
        assert part in text, text


def test_gang_death_is_shown_with_the_exit_code() -> None:
    text = str(expect_raises(gang.GangError, lambda: gang.run(2, _dies)))
    assert "rank 0 of 2: ended with exit code -9" in text, text


def test_gang_that_hangs_ends_within_its_limit() -> None:
    started = time.monotonic()
    text = str(expect_raises(gang.GangError, lambda: gang.run(2, _hangs, limit_s=15.0)))
    assert "were not done within 15 s" in text and "1" in text, text
    assert time.monotonic() - started < 150, "the limit bounds the whole"


if __name__ == "__main__":
    runner.need("torch")
    runner.main(globals())
