#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the Python package: what hosts call today over gloo, and the same through convoy.

Real processes, one per rank, whose main threads are pinned to the cores in turn (gloo's own threads are free); both sides
live in the same processes and take turns in short blocks, so that what is compared lies close together. A round's figure is the mean call
of all ranks, a block's figure is the median of its rounds, and the ratio is the median over the repeats of gloo's block to
convoy's beside it.

  poll:N  gloo: tensor of the list, all_reduce MIN, tolist(). convoy: all_reduce_min(list)
  row:8   gloo: tensor of the row, all_gather, tolist() of all. convoy: gather_row(row, table) and tolist()

What the Python call adds to the call in C: a group of one member makes no exchange, so the whole call from Python, the part
in C included, is an upper bound of it. The bar holds for that bound.

BENCH_REPEATS (default 15), BENCH_CALLS (default 20; convoy makes ten times as many per block), BENCH_RANKS (default 2,4,8),
BENCH_OUTPUT (default build/bench/python.json). Exits 1 when a bar is missed. The machine must be otherwise quiet.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import random
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Tuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/python"), str(ROOT / "plugin/python")]

from lib import gang  # noqa: E402

if TYPE_CHECKING:
    import convoy.torch

REPEATS = int(os.environ.get("BENCH_REPEATS", "15"))
CALLS = int(os.environ.get("BENCH_CALLS", "20"))
RANKS = [int(ranks) for ranks in os.environ.get("BENCH_RANKS", "2,4,8").split(",")]
OUTPUT = Path(os.environ.get("BENCH_OUTPUT", ROOT / "build/bench/python.json"))
CASES = ("poll:8", "poll:64", "poll:256", "row:8")
FASTER = {2: 30, 4: 50, 8: 50}
ADDED_US = 3.0
WIDTH = 8
PATTERNS = 16
BATCH = 1000  # calls of one way in a group of one, before the next way's
LIMIT_S = 300.0

Work = Tuple[List[List[List[int]]], List[Any]]  # inputs [pattern][rank], results [pattern]


def make_work(case: str, ranks: int) -> Work:
    """Alike in every process."""
    kind, n = case.split(":")
    rng = random.Random(20240607)
    values = range(8192) if kind == "row" else (1, 2, 2, 2, 3, 3, 3)
    inputs = [[[rng.choice(values) for _ in range(int(n))] for _ in range(ranks)] for _ in range(PATTERNS)]
    if kind == "row":
        return inputs, inputs
    return inputs, [[min(states) for states in zip(*lists)] for lists in inputs]


# -- the two sides: list to list -------------------------------------------------------------------------------------


def gloo_call(case: str, ranks: int) -> Callable[[List[int]], Any]:
    import torch
    import torch.distributed

    dist: Any = torch.distributed

    def reduce(states: List[int]) -> Any:
        tensor = torch.tensor(states, dtype=torch.uint8)
        dist.all_reduce(tensor, op=dist.ReduceOp.MIN)
        return tensor.tolist()

    def gather(row: List[int]) -> Any:
        table = torch.empty((ranks, len(row)), dtype=torch.int64)
        dist.all_gather(list(table), torch.tensor(row, dtype=torch.int64))
        return table.tolist()

    return gather if case.startswith("row") else reduce


def convoy_call(case: str, ranks: int, group: convoy.torch.TorchGroup) -> Callable[[List[int]], Any]:
    import torch

    table = torch.empty((ranks, WIDTH), dtype=torch.int64)

    def gather(row: List[int]) -> Any:
        return group.gather_row(row, table).tolist()

    reduce: Callable[[List[int]], Any] = group.all_reduce_min
    return gather if case.startswith("row") else reduce


def block(call: Callable[[List[int]], Any], mine: List[List[int]], results: List[Any], calls: int) -> List[int]:
    """Nanoseconds of each call."""
    now, times = time.perf_counter_ns, []
    for index in range(calls):
        states = mine[index % PATTERNS]
        start = now()
        result = call(states)
        times.append(now() - start)
        if result != results[index % PATTERNS]:
            raise AssertionError(f"call {index}: wrong result")
    return times


def pin(rank: int) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})


def one_rank(member: gang.Member, repeats: int, calls: int) -> Dict[str, List[List[int]]]:
    """Times by "side case": a list per repeat."""
    import convoy
    import convoy.torch
    import torch.distributed

    dist: Any = torch.distributed
    pin(member.rank)
    times: Dict[str, List[List[int]]] = {}
    with convoy.load() as plugin, plugin.context() as context:
        group = convoy.torch.open_group(context, schema="sglang-8", timeout=LIMIT_S)
        gc.disable()
        for repeat in range(repeats + 1):
            for case in CASES:
                inputs, results = make_work(case, member.size)
                mine = [lists[member.rank] for lists in inputs]
                sides = [("gloo", gloo_call(case, member.size), calls),
                         ("convoy", convoy_call(case, member.size, group), 10 * calls)]
                for side, call, count in sides if repeat % 2 else sides[::-1]:
                    dist.barrier()
                    group.reduce([])
                    taken = block(call, mine, results, count)
                    if repeat:  # the first repeat warms both up
                        times.setdefault(f"{side} {case}", []).append(taken)
    return times


# -- what the Python call adds ---------------------------------------------------------------------------------------


def alone(member: gang.Member, repeats: int, batch: int) -> Dict[str, float]:
    """Microseconds of a whole call in a group of one member, by the way it is called: the median of single calls, with
    what reading the clock costs."""
    import convoy
    import convoy.torch
    import torch

    pin(1)
    with convoy.load() as plugin, plugin.context() as context:
        group = convoy.torch.open_group(context, schema="sglang-8")
        reducer, gatherer, states = group.reducer(64), group.gatherer(), [3] * 64
        tensor, out = torch.tensor(states, dtype=torch.uint8), torch.empty((1, 1, WIDTH), dtype=torch.int64)
        reducer.states[:] = bytes(states)
        ways: Dict[str, Callable[[], Any]] = {
            "reducer(64)": lambda: reducer(64), "gatherer()": gatherer,
            "all_reduce_min(tensor of 64)": lambda: group.all_reduce_min(tensor),
            "list of 64 to list": lambda: group.all_reduce_min(states),
            "gather_row(list, out)": lambda: group.gather_row(states[:WIDTH], out)}
        gc.disable()
        times: Dict[str, List[int]] = {way: [] for way in ways}
        now = time.perf_counter_ns
        for _ in range(repeats):
            for way, call in ways.items():
                for _ in range(batch):
                    start = now()
                    call()
                    times[way].append(now() - start)
    return {way: statistics.median(values) / 1e3 for way, values in times.items()}


# -- figures and bars ------------------------------------------------------------------------------------------------


def block_figures(by_rank: List[Dict[str, List[List[int]]]], key: str) -> List[float]:
    """Microseconds, one per repeat."""
    figures = []
    for blocks in zip(*(times[key] for times in by_rank)):
        figures.append(statistics.median(statistics.mean(calls) for calls in zip(*blocks)) / 1e3)
    return figures


def compare(ranks: int) -> List[Dict[str, Any]]:
    by_rank = gang.run(ranks, one_rank, args=(REPEATS, CALLS), limit_s=LIMIT_S)
    lines = []
    for case in CASES:
        gloo, ours = block_figures(by_rank, f"gloo {case}"), block_figures(by_rank, f"convoy {case}")
        ratio = statistics.median(left / right for left, right in zip(gloo, ours))
        lines.append({"case": case, "ranks": ranks, "gloo_us": statistics.median(gloo), "convoy_us": statistics.median(ours),
                      "ratio": ratio})
    return lines


def bars(lines: List[Dict[str, Any]], added: Dict[str, float]) -> List[Dict[str, Any]]:
    found = [{"name": f"{line['case']} at {line['ranks']} ranks, list to list: times as fast as gloo",
              "value": line["ratio"], "limit": FASTER[line["ranks"]], "passed": line["ratio"] >= FASTER[line["ranks"]]}
             for line in lines]
    for way in ("reducer(64)", "gatherer()", "all_reduce_min(tensor of 64)"):
        found.append({"name": f"{way} from Python, us at most", "value": added[way], "limit": ADDED_US,
                      "passed": added[way] < ADDED_US})
    return found


def show(lines: List[Dict[str, Any]], added: Dict[str, float], found: List[Dict[str, Any]]) -> None:
    print(f"{'case':10} {'ranks':>5} {'gloo us':>10} {'convoy us':>10} {'ratio':>8}")
    for line in lines:
        print(f"{line['case']:10} {line['ranks']:5} {line['gloo_us']:10.1f} {line['convoy_us']:10.2f} {line['ratio']:7.1f}x")
    print("\nwhole calls in a group of one member, us")
    for way, value in added.items():
        print(f"{way:32} {value:8.2f}")
    print()
    for one in found:
        print(f"{'PASS' if one['passed'] else 'MISS'}  {one['name']}: {one['value']:.2f}, bar {one['limit']:g}")


def main() -> None:
    os.environ.setdefault("CONVOY_LIBRARY", str(ROOT / "build/libconvoy.so.1"))
    added = gang.run(1, alone, args=(2 * REPEATS, BATCH if CALLS >= 10 else 50))[0]
    lines = [line for ranks in RANKS for line in compare(ranks)]
    found = bars(lines, added)
    show(lines, added, found)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps({"family": "python", "repeats": REPEATS, "calls": CALLS, "cores": len(os.sched_getaffinity(0)),
                                  "python": platform.python_version(), "torch": version("torch"),
                                  "comparisons": lines, "alone_us": added, "bars": found}, indent=1), encoding="utf-8")
    sys.exit(0 if all(one["passed"] for one in found) else 1)


if __name__ == "__main__":
    main()
