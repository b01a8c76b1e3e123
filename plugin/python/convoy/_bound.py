# SPDX-License-Identifier: Apache-2.0
"""A build and the plugin's pointer in it, read as one; and what a call does while its context is between two builds.

Whoever calls the plugin reads a ``Bound`` once, so a pointer never meets the functions of another build. A swap puts other
Bounds in their places at any moment. Whoever has read one before calls the old build, whose handles are good until the
context is closed: it answers MOVED, and the call is made again.
"""

from __future__ import annotations

import threading
import time
from ctypes import c_void_p
from typing import Callable, NamedTuple, Optional

from convoy import _abi, _callbacks, errors
from convoy._build import Build

_SLICE_S = 0.1


class Bound(NamedTuple):
    """``handle`` stays the same object, so that what was prepared with it sees it emptied."""

    build: Build
    handle: c_void_p


class Left:
    """What is left of a caller's time, as an argument of the plugin: a call that is made again has less of it."""

    __slots__ = ("_end",)

    def __init__(self, timeout_ns: int) -> None:
        self._end = time.monotonic_ns() + timeout_ns

    @property
    def _as_parameter_(self) -> int:
        return max(1, self._end - time.monotonic_ns())


class Gate:
    """Where calls wait that came while their context moves. They wait for the end of the move, however short their own time
    is, so that a round is always begun and can be waited for; the move itself has a deadline."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._ended.set()
        self._mover: Optional[threading.Thread] = None
        self.count = 0  # moves that were begun

    def shut(self) -> None:
        """A move begins, on this thread."""
        self._mover = threading.current_thread()
        self.count += 1
        self._ended.clear()

    def open(self) -> None:
        """The move has ended, or was undone."""
        self._ended.set()

    def after_fork(self) -> None:
        """In a forked child, where nothing moves: its calls hear that they were forked."""
        self._ended = threading.Event()
        self._ended.set()

    def _wait(self) -> None:
        _callbacks.refuse_inside("the plugin is being swapped; a call")
        mover = self._mover
        while not self._ended.wait(_SLICE_S):
            if mover is None or not mover.is_alive():
                return

    def again(self, call: Callable[[], int]) -> int:
        """Makes a call again that was told MOVED, on what is bound by then. Raises Moved: nothing moves, and it is told so
        all the same."""
        seen = -1
        while True:
            if not self._ended.is_set():
                self._wait()
            elif seen == self.count:
                raise errors.Moved("it is halted for a swap that has failed, and could not go on; swap again")
            seen = self.count
            status = call()
            if status != _abi.MOVED:
                return status
