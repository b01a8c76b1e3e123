#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The host's poll reduce with convoy's hooks cannot be told from the host's own on real gloo groups.

Judged by results, by every reduction (group, operation, what went in, what came out), by the order of calls to the
host's objects, and by the random numbers taken. The host alone is first held against a computation that shares
nothing with it. CONVOY_SCALE: 500 random scenarios over shapes and sizes at 1,
5,000 over more of them from 10 on.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

from lib import gang, poll_check, runner, scenarios  # noqa: E402
from lib.report import Report, judge_convoy, judge_host  # noqa: E402

_SEED = 20
_RANDOM, _RANDOM_FULL = 500, 5000
_EACH = [("today", 1), ("today", 2), ("today", 4), ("today", 8), ("before", 4), ("future", 2)]
_MORE = [("today", 3), ("today", 5), ("today", 6), ("today", 7), ("before", 6), ("future", 4)]
_PLACES = _EACH + (_MORE if runner.scale() > 1 else [])  # starting torch in a process takes longer than its scenarios
_LIMIT_S = 200.0


def _random_here() -> int:
    """Random scenarios of one shape and size."""
    total = runner.scaled(_RANDOM, _RANDOM_FULL)
    return -(-total // len(_PLACES))


@functools.lru_cache(maxsize=None)
def _reports(shape: str, size: int) -> list[Report]:
    """Both halves of one shape and size, in one gang."""
    groups = {}
    for tp, cp in scenarios.shapes(size):
        groups.update(gang.grid_groups(size, tp, cp))
    args = (shape, _SEED, _random_here())
    return gang.run(size, poll_check.check, args, groups, limit_s=_LIMIT_S + runner.scale() * 10)


def _host(shape: str, size: int) -> None:
    judge_host(_reports(shape, size), _random_here() + (30 if size == 4 else 0))


def _convoy(shape: str, size: int) -> None:
    judge_convoy(lambda: _reports(shape, size))


def _tests() -> dict[str, object]:
    tests: dict[str, object] = {}
    for shape, size in _PLACES:
        tests[f"test_polls_of_{shape}_on_{size}_alone_equal_the_reference"] = functools.partial(_host, shape, size)
        verb = "are_left_alone" if shape == "future" else "hooked_equal_alone"
        tests[f"test_polls_of_{shape}_on_{size}_{verb}"] = functools.partial(_convoy, shape, size)
    return tests


if __name__ == "__main__":
    runner.need("torch")
    runner.main(_tests())
