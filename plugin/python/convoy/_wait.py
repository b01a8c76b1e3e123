# SPDX-License-Identifier: Apache-2.0
"""Waiting in slices, so that signals are handled: Python runs a signal's handler only between two calls.

A wait is one call of the plugin for at most SLICE_NS. When that slice has passed and the caller's own time has not, the
operation is still open, and the next call waits for the next slice. Ctrl-C therefore raises KeyboardInterrupt within a
slice; the operation stays open, as after a time-out.
"""

from __future__ import annotations

import time
from typing import Callable

SLICE_NS = 100_000_000


class Deadline:
    """The caller's time, from now on."""

    __slots__ = ("_end",)

    def __init__(self, timeout_ns: int) -> None:
        self._end = time.monotonic_ns() + timeout_ns

    def slice(self) -> int:
        """Nanoseconds to wait next; 0 when the time is over."""
        return min(SLICE_NS, self.left())

    def left(self) -> int:
        """Nanoseconds that are left."""
        return max(0, self._end - time.monotonic_ns())


def go_on(call: Callable[[int], int], status: int, unfinished: int, timeout_ns: int, waited_ns: int) -> int:
    """Calls again as long as the status is ``unfinished`` and the time is not over. Returns the last status."""
    deadline = Deadline(timeout_ns - waited_ns)
    while status == unfinished:
        left = deadline.slice()
        if left == 0:
            break
        status = call(left)
    return status
