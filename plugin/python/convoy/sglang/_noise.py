# SPDX-License-Identifier: Apache-2.0
"""Which of the lines that would be logged again and again are worth it."""

from __future__ import annotations

from typing import Dict, Hashable


class Repeats:
    """Counts by cause. A cause is worth a line the 1st, 2nd, 4th, 8th... time, so that a fault of every round or of every
    request neither floods the log nor is forgotten."""

    def __init__(self) -> None:
        self._counts: Dict[Hashable, int] = {}

    def count(self, cause: Hashable) -> int:
        """How often it has happened by now; 0 = not worth a line this time."""
        count = self._counts[cause] = self._counts.get(cause, 0) + 1
        return count if count & (count - 1) == 0 else 0


def times(count: int) -> str:
    """What a line says of its count: nothing the first time."""
    return "" if count == 1 else " (%d times by now)" % count
