#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The gang hands back values, and what goes wrong in a rank is said with its rank and its traceback."""

from __future__ import annotations

import atexit
import os
import select
import signal
import subprocess
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


def _dies_at_its_end(member: gang.Member) -> None:
    if member.rank == 1:
        atexit.register(os._exit, 9)


def _fresh(member: gang.Member, name: str) -> dict[str, Any]:
    """What a process has from elsewhere."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        is_loaded = "libconvoy" in maps.read()
    others = sorted(one for one in sys.modules if one.split(".")[0] in ("convoy", "sglang", "gone"))
    sys.modules["gone"] = sys  # the next process must not see it
    return {"environment": os.environ.get(name), "others": others, "loaded": is_loaded, "hash": hash(name)}


def _waits(member: gang.Member) -> None:
    os.write(1, b"%d\n" % os.getpid())  # one write: others print at the same time
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
    text = str(expect_raises(gang.GangError, lambda: gang.run(2, _hangs, limit_s=5.0)))
    assert "were not done within 5 s" in text and "1" in text, text
    assert time.monotonic() - started < 50, "the limit bounds the whole"


def test_gang_bad_end_after_the_answer_is_told() -> None:
    text = str(expect_raises(gang.GangError, lambda: gang.run(2, _dies_at_its_end)))
    assert "exit code 9" in text and "1:" in text and "0:" not in text, text


def test_gang_processes_have_the_environment_of_the_moment_and_nothing_of_others() -> None:
    name, hashes = "GANG_TEST", set()
    for value in ("first", None, "second"):
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
        for one in gang.run(2, _fresh, args=(name,)):
            hashes.add(one.pop("hash"))
            expect_equal(one, {"environment": value, "others": [], "loaded": False}, "what a process has")
    expect_equal(len(hashes), 1 if "PYTHONHASHSEED" in os.environ else 2, "seeds of hashes")


def test_gang_ends_with_the_program_that_started_it() -> None:
    script = "import sys; sys.path[:0] = %r; from lib import gang; import test_gang; gang.run(3, test_gang._waits)"
    with subprocess.Popen([sys.executable, "-c", script % sys.path[:2]], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        members = [os.pidfd_open(int(program.stdout.readline())) for _ in range(3)]
        program.kill()
    for member in members:
        expect_equal(select.select([member], [], [], 30.0)[0], [member], "a process that has ended")
        os.close(member)


if __name__ == "__main__":
    runner.need("torch")
    runner.main(globals())
