# SPDX-License-Identifier: Apache-2.0
"""What is polled: the thirty scenarios of the host's refactoring, and random ones, each made from its number alone.

The thirty are five poll vectors, each plain, two-level, and staged with four states of the handler, on four ranks
2t + c that differ by rotation. Random ones have 0 to 64 requests, failures on purpose, every state of gate and staging.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Sequence

from lib.host_objects import Entry, Landing

PLAIN, GATED, TWO_LEVEL, STAGED, STAGED_GATED = "plain", "gated", "two_level", "staged", "staged_gated"
FORMS = (PLAIN, GATED, TWO_LEVEL, STAGED, STAGED_GATED)

_VECTORS = ((4, 4, 4, 4, 4), (0, 1, 2, 3, 4), (4, 3, 4, 2, 4), (1, 1, 1, 1, 1), (4, 0, 4, 4, 3))
_HANDLERS = (Landing.NONE, Landing.PENDING, Landing.FINISHES, Landing.DONE)
_QUEUE_MAX = 64
_FAKE_HOST = "2.2.2.2"


@dataclass(frozen=True)
class Scenario:
    """One call on all ranks. entries: the requests of each rank, by rank; all ranks have as many.

    probability, draw_seed: of failing on purpose, with the same draws on all ranks (the host has one seed for all)."""

    name: str
    form: str
    tp: int
    cp: int
    entries: tuple[tuple[Entry, ...], ...]
    probability: float = 0.0
    draw_seed: int = 0
    backend: str = "mooncake"

    @property
    def is_gated(self) -> bool:
        return self.form in (GATED, STAGED_GATED)

    @property
    def is_staged(self) -> bool:
        return self.form in (STAGED, STAGED_GATED)


def shapes(size: int) -> list[tuple[int, int]]:
    """(tp, cp) with tp x cp = size."""
    return [(tp, size // tp) for tp in range(1, size + 1) if size % tp == 0]


def _known_entries(vector: Sequence[int], landing: str, rank: int) -> tuple[Entry, ...]:
    count = len(vector)
    return tuple(
        Entry(
            state=vector[(place + rank) % count],
            landing=landing if place % 2 == 0 else Landing.NONE,
            room=1000 + place,
            stamp=0 if (place + rank) % 4 == 0 else 1000 + place,
        )
        for place in range(count)
    )


def thirty() -> list[Scenario]:
    """For four ranks, tp 2 x cp 2."""
    made = []
    for number, vector in enumerate(_VECTORS):
        for form, landing in ((PLAIN, Landing.NONE), (TWO_LEVEL, Landing.NONE), *((STAGED_GATED, one) for one in _HANDLERS)):
            entries = tuple(_known_entries(vector, landing, rank) for rank in range(4))
            made.append(Scenario(f"vector {number}, {form}, handler {landing}", form, 2, 2, entries))
    return made


def _random_entry(draw: random.Random, success: float, is_staged: bool) -> Entry:
    room = draw.choice((0, 1, draw.getrandbits(62)))
    return Entry(
        state=4 if draw.random() < success else draw.randrange(5),
        landing=draw.choice((Landing.NONE, *_HANDLERS, Landing.LATE)) if is_staged else Landing.NONE,
        room=room,
        stamp=draw.choice((0, room, room, room ^ 1, -1, -(2**63))),
        host=draw.choice(("10.0.0.1", "10.0.0.2", "", None, _FAKE_HOST)),
        is_enum=draw.random() < 0.5,
    )


def random_scenario(seed: int, index: int, size: int) -> Scenario:
    """Scenario `index` of a seed for this number of ranks; the same wherever it is made."""
    common = random.Random(f"{seed}/{index}/{size}")
    form = FORMS[index % len(FORMS)]
    tp, cp = common.choice(shapes(size))
    count = common.choice((0, 1, _QUEUE_MAX, common.randrange(_QUEUE_MAX + 1), common.randrange(9)))
    success = common.choice((0.0, 0.5, 0.7, 0.9, 0.9, 1.0))
    entries = []
    for rank in range(size):
        own = random.Random(f"{seed}/{index}/{size}/{rank}")
        entries.append(tuple(_random_entry(own, success, form in (STAGED, STAGED_GATED)) for _ in range(count)))
    return Scenario(
        name=f"random {index} of seed {seed}, {form}, tp {tp} x cp {cp}, {count} requests",
        form=form,
        tp=tp,
        cp=cp,
        entries=tuple(entries),
        probability=common.choice((0.0, 0.0, 0.0, 0.0, 0.1, 0.1, 0.5, 1.0)),
        draw_seed=common.getrandbits(32),
        backend=common.choice(("mooncake", "fake")),
    )
