# SPDX-License-Identifier: Apache-2.0
"""What a gather must give, computed from all ranks' rows by plain lists: no stand-in, no torch."""

from __future__ import annotations

from dataclasses import dataclass

from lib.gather_scenarios import Gather

FALLBACK = (0, 0, 1, 0, 1, 4, 0, 0, -1, -1)


@dataclass(frozen=True)
class Expected:
    """given, taken: what this rank's reduction takes in and gives out. table: of all slots, when all is done."""

    given: tuple[int, ...]
    taken: tuple[int, ...]
    table: tuple[tuple[int, ...], ...]
    first: tuple[tuple[int, ...], ...]


def _slot_row(gather: Gather, slot: int, width: int) -> tuple[int, ...]:
    """The row of a slot as it comes out of the reduction."""
    return gather.rows[slot] if slot < len(gather.rows) else (0,) * width


def _final_row(gather: Gather, slot: int, width: int) -> tuple[int, ...]:
    is_inactive = len(gather.mask) >= gather.slots and gather.mask[slot] == 0
    row = _slot_row(gather, slot, width)
    is_empty = gather.by_sum and not any(row)
    return FALLBACK[:width] if is_inactive or is_empty else row


def expect(gather: Gather, rank: int) -> Expected:
    width = len(gather.rows[rank])
    nothing = (0,) * width
    own = given = gather.rows[rank]
    if gather.by_sum:
        given = tuple(value for slot in range(gather.slots) for value in (own if slot == rank else nothing))
    taken = tuple(value for slot in range(gather.slots) for value in _slot_row(gather, slot, width))
    table = tuple(_final_row(gather, slot, width) for slot in range(gather.slots))
    return Expected(given, taken, table, table[:: gather.tp * gather.cp])
