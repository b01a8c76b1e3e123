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
from typing import Callable, List, NamedTuple, Optional

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
        self._later: List[Callable[[], object]] = []

    def shut(self) -> None:
        """A move begins, on this thread."""
        self._mover = threading.current_thread()
        self.count += 1
        self._ended.clear()

    def open(self) -> None:
        """The move has ended, or was undone."""
        self._ended.set()
        while self._later:
            try:
                self._later.pop(0)()
            except errors.ConvoyError:  # nobody waits for it
                pass

    def may_wait(self) -> bool:
        """Whether a call of this thread may wait for the end: not the mover's, nor one within a call of the plugin. Ends of
        objects come on any thread."""
        return self._ended.is_set() or not (_callbacks.is_inside() or threading.current_thread() is self._mover)

    def later(self, call: Callable[[], object]) -> None:
        """Calls this when the move has ended. For threads that may not wait."""
        self._later.append(call)
        if self._ended.is_set() and call in self._later:  # it has just ended, and may have overlooked it
            self.open()

    def after_fork(self) -> None:
        """In a forked child, where nothing moves: its calls hear that they were forked."""
        self._ended = threading.Event()
        self._ended.set()
        self._later = []

    def _wait(self) -> None:
        if not self.may_wait():
            raise errors.Busy("the plugin is being swapped, which a call from here would have to wait for")
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
