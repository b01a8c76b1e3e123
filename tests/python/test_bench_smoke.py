#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the Python package runs, says what it must."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Tuple

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]
sys.path[:0] = [str(_HERE), str(_ROOT / "plugin" / "python"), str(_ROOT / "tests" / "bench")]

from lib import runner  # noqa: E402
from lib.runner import expect_equal  # noqa: E402

try:
    import torch  # noqa: F401
except ImportError:
    runner.skip_program("torch is not installed")

import python_bench  # noqa: E402

_LIMIT_S = 200


def _run() -> Tuple[int, str, Dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "deeper", "python.json")
        environment = {**os.environ, "BENCH_REPEATS": "3", "BENCH_CALLS": "3", "BENCH_RANKS": "2",
                       "BENCH_OUTPUT": str(output)}
        done = subprocess.run([sys.executable, "-B", str(_ROOT / "tests/bench/python_bench.py")], env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_LIMIT_S, check=False)
        expect_equal(output.exists(), True, f"it wrote its figures; it said {done.stdout}")
        figures: Dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    return done.returncode, done.stdout, figures


def test_a_small_run_has_all_figures() -> None:
    code, text, figures = _run()
    expect_equal([(line["case"], line["ranks"]) for line in figures["comparisons"]],
                 [(case, 2) for case in python_bench.CASES], "comparisons")
    for line in figures["comparisons"]:
        expect_equal(all(line[figure] > 0 for figure in ("ratio", "convoy_us", "gloo_us")), True, f"figures of {line}")
    for way, value in figures["alone_us"].items():
        expect_equal(value > 0, True, f"{way} takes {value:.2f} us")
    said = [line for line in text.splitlines() if line.startswith(("PASS", "MISS"))]
    expect_equal(len(said), len(figures["bars"]), "one line for each bar")
    expect_equal(code, 0 if all(bar["passed"] for bar in figures["bars"]) else 1, f"exit code of {said}")


def _passed(ratio: float, ranks: int, added: float) -> List[bool]:
    line = {"case": "poll:64", "ranks": ranks, "ratio": ratio}
    ways = dict.fromkeys(("reducer(64)", "gatherer()", "all_reduce_min(tensor of 64)"), added)
    return [bar["passed"] for bar in python_bench.bars([line], ways)]


def test_a_bar_that_is_missed_is_a_miss() -> None:
    expect_equal(_passed(30.0, 2, 2.9), [True] * 4, "at the bar of two ranks")
    expect_equal(_passed(29.9, 2, 2.9), [False] + [True] * 3, "below the bar of two ranks")
    expect_equal(_passed(49.9, 4, 2.9)[0], False, "below the bar of four ranks")
    expect_equal(_passed(50.0, 8, 3.0), [True] + [False] * 3, "the call adds too much")


if __name__ == "__main__":
    runner.main(globals())
