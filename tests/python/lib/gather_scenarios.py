# SPDX-License-Identifier: Apache-2.0
"""What is gathered: rows of every rank of a world in every shape dp x tp x cp, at the ends of int64, all zero, under
masks of every form. Each scenario is made from its number alone."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

WIDTHS = {"today": 8, "before": 7, "future": 10}
_MIN, _MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Gather:
    """One gather over the world. rows: of each rank. mask: one number per rank, 0 = inactive. by_sum: the gather by
    an all-reduce. fits: there are as many slots (dp x tp x cp) as ranks; a host may have more or fewer when it sums."""

    name: str
    dp: int
    tp: int
    cp: int
    rows: tuple[tuple[int, ...], ...]
    mask: tuple[int, ...]
    by_sum: bool = False

    @property
    def slots(self) -> int:
        return self.dp * self.tp * self.cp

    @property
    def fits(self) -> bool:
        return self.slots == len(self.rows)


def shapes(slots: int) -> list[tuple[int, int, int]]:
    """(dp, tp, cp) with dp x tp x cp = slots."""
    ends = [i for i in range(1, slots + 1) if slots % i == 0]
    return [(dp, tp, slots // (dp * tp)) for dp in ends for tp in ends if slots % (dp * tp) == 0]


def _row(draw: random.Random, width: int) -> tuple[int, ...]:
    kind = draw.randrange(5)
    if kind == 0:
        return (0,) * width
    if kind == 1:  # an end of int64 in one column
        row = [0] * width
        row[draw.randrange(width)] = draw.choice((_MIN, _MAX, -1))
        return tuple(row)
    if kind == 2:
        return tuple(draw.choice((_MIN, _MAX, _MIN + 1, _MAX - 1, -1, 0, 1)) for _ in range(width))
    usual = (draw.randrange(9000), draw.randrange(64), draw.randrange(2), draw.randrange(2), draw.randrange(2))
    more = (draw.randrange(1, 6), draw.randrange(2), draw.randrange(1 << 17))
    return (usual + more + (0,) * width)[:width]


def _rows(draw: random.Random, size: int, width: int) -> tuple[tuple[int, ...], ...]:
    return tuple(_row(draw, width) for _ in range(size))


def _random_mask(draw: random.Random, size: int) -> tuple[int, ...]:
    length = draw.choice((size, size, size, size - 1, 0, size + 2))
    chance = draw.choice((1.0, 0.8, 0.3, 0.0))
    return tuple(int(draw.random() < chance) for _ in range(length))


def every_mask(size: int, width: int) -> list[Gather]:
    """All masks of so many ranks, both ways of gathering, in every shape."""
    made = []
    for bits, by_sum in itertools.product(itertools.product((0, 1), repeat=size), (False, True)):
        for dp, tp, cp in shapes(size):
            draw = random.Random(f"mask/{bits}/{by_sum}/{dp}/{tp}")
            name = f"mask {bits}, dp {dp} x tp {tp} x cp {cp}{', summed' * by_sum}"
            made.append(Gather(name, dp, tp, cp, _rows(draw, size, width), bits, by_sum))
    return made


def random_gather(seed: int, index: int, size: int, width: int) -> Gather:
    """Scenario `index` of a seed for this number of ranks; the same wherever it is made."""
    draw = random.Random(f"{seed}/{index}/{size}/{width}")
    by_sum = index % 2 == 1
    slots = draw.choice((size, size, size, size, size + 1, max(1, size - 1), 2 * size)) if by_sum else size
    dp, tp, cp = draw.choice(shapes(slots))
    name = f"random {index} of seed {seed}, dp {dp} x tp {tp} x cp {cp} on {size}{', summed' * by_sum}"
    return Gather(name, dp, tp, cp, _rows(draw, size, width), _random_mask(draw, size), by_sum)
