#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The host's DP sync gather with convoy's hooks cannot be told from the host's own on real gloo groups.

Judged by every field that it sets (values, types, the shape of tensors) and by what went into each gather and came
out. The host alone is first held against a computation that shares nothing with it. CONVOY_SCALE: about 500 random
scenarios at 1, 5,000 over more sizes from 10 on; all masks of four ranks at any scale.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

from lib import gang, gather_check, runner  # noqa: E402
from lib.report import Report, judge_convoy, judge_host  # noqa: E402

_SEED = 21
_RANDOM, _RANDOM_FULL = 500, 5000
_EACH = [("today", 1), ("today", 2), ("today", 4), ("today", 8), ("before", 4), ("future", 2)]
_MORE = [("today", 3), ("today", 5), ("today", 6), ("today", 7), ("before", 6), ("future", 4)]
_PLACES = _EACH + (_MORE if runner.scale() > 1 else [])  # starting torch in a process takes longer than its scenarios
_LIMIT_S = 200.0


def _random_here() -> int:
    """Random scenarios of one shape and size; a shape without sums leaves out half of them."""
    return -(-runner.scaled(_RANDOM, _RANDOM_FULL) // len(_PLACES))


@functools.lru_cache(maxsize=None)
def _reports(shape: str, size: int) -> list[Report]:
    """Both halves of one shape and size, in one gang."""
    args = (shape, _SEED, _random_here())
    return gang.run(size, gather_check.check, args, limit_s=_LIMIT_S + runner.scale() * 10)


def _host(shape: str, size: int) -> None:
    judge_host(_reports(shape, size), len(gather_check.selection(shape, size, _SEED, _random_here())))


def _convoy(shape: str, size: int) -> None:
    judge_convoy(lambda: _reports(shape, size))


def _tests() -> dict[str, object]:
    tests: dict[str, object] = {}
    for shape, size in _PLACES:
        tests[f"test_gather_of_{shape}_on_{size}_alone_equals_the_reference"] = functools.partial(_host, shape, size)
        verb = "is_left_alone" if shape == "future" else "hooked_equals_alone"
        tests[f"test_gather_of_{shape}_on_{size}_{verb}"] = functools.partial(_convoy, shape, size)
    return tests


if __name__ == "__main__":
    runner.need("torch")
    runner.main(_tests())
