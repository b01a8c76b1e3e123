#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Groups of torch and the hooked host while builds take over from each other: results are those of gloo."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any, List

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

from lib import gang, runner, sglang_gang, swaps  # noqa: E402
from lib.gang import Member  # noqa: E402
from lib.runner import expect_equal, need  # noqa: E402

_LIMIT_S = 90.0
_TURNS = 24


def _swap_if(member: Member, turn: int, swap: Any) -> None:
    """All ranks at once in some turns, one rank alone in others."""
    if turn % 6 == 1 or turn % 6 == 3 and turn // 6 % member.size == member.rank:
        swap()


def _torch_groups(member: Member) -> int:
    import convoy.torch
    import torch
    from lib.torch_calls import min_over

    world, rng = member.groups["world"], random.Random(member.rank)
    with convoy.load(swaps.FIRST) as plugin, plugin.context(secret=b"test", log=False) as context:
        group = convoy.torch.open_group(context, world, schema="sglang-8")
        row = torch.empty(8, dtype=torch.int64)
        for turn in range(_TURNS):
            _swap_if(member, turn, lambda: swaps.swap(plugin))
            states = [rng.randrange(5) for _ in range(9)]
            tensor = torch.tensor(states, dtype=torch.uint8)
            expect_equal(group.all_reduce_min(tensor).tolist(), min_over(world, states), "reduced in turn %d" % turn)
            row[:] = torch.arange(8) + 100 * member.rank + turn
            expected = [[100 * rank + turn + i for i in range(8)] for rank in range(member.size)]
            expect_equal([r[0] for r in group.gather(row.tolist()).table], expected, "gathered in turn %d" % turn)
        return int(plugin.info().path == swaps.SECOND)


def test_swapped_groups_of_torch_give_what_gloo_gives() -> None:
    gang.run(3, _torch_groups, limit_s=_LIMIT_S)


def _hooked(member: Member, shape: str, is_swapping: bool) -> List[Any]:
    import convoy.sglang

    utils = sglang_gang.hooked(shape)
    sglang_gang.all_active(member.size)
    world, results, paths = member.groups["world"], [], [swaps.SECOND, swaps.FIRST]
    calls = sglang_gang.TorchCalls()

    def swap() -> None:
        convoy.sglang.swap(paths[0], timeout=_LIMIT_S)
        paths.reverse()

    for turn in range(_TURNS):
        if is_swapping:
            _swap_if(member, turn, swap)
        states = [(member.rank + turn * i) % 5 for i in range(turn % 7)]
        results.append(sglang_gang.reduce(utils, shape, states, world))
        results.append(sglang_gang.gathered(sglang_gang.batch(shape, member, 10 * turn + member.rank), world))
    results.append(calls.taken())
    if is_swapping:
        expect_equal({group._build.file.path for group in convoy.sglang.groups()}, {paths[1]}, "builds of the hooks' groups")
        expect_equal(bool(convoy.sglang.groups()), True, "groups")
    return results


def test_swapped_hooks_give_the_results_of_a_run_without() -> None:
    for shape in ("today", "before"):
        plain = gang.run(2, _hooked, (shape, False), limit_s=_LIMIT_S)
        expect_equal(gang.run(2, _hooked, (shape, True), limit_s=_LIMIT_S), plain, "results of " + shape)
        expect_equal([rank[-1] for rank in plain], [0, 0], "collectives of torch")


if __name__ == "__main__":
    swaps.need_second()
    need("torch")
    os.environ["CONVOY_LIBRARY"] = swaps.FIRST
    runner.main(globals())
