# SPDX-License-Identifier: Apache-2.0
"""How long handles of a context may be used: closing it waits until no call that took one is still inside.

The plugin frees every handle of a context when the context is closed. So whoever passes a handle does it inside ``Life.call``
or as the owner of a group (``Rounds.alone``), and close frees only when neither is left. Entries are tokens that a finally
clause takes back without a call before it, so that Ctrl-C at any place leaves none behind. Locks are re-entrant: a signal's
handler, or the end of an object, may call in at any place, also while its own thread holds one.
"""

from __future__ import annotations

import sys
import threading
import time
from ctypes import c_void_p
from typing import Any, Callable, Dict, List, Optional, Protocol, Set, TypeVar

from convoy import _abi, _callbacks, errors
from convoy._bound import Bound, Gate
from convoy._build import Build

_PAUSE_S = 0.001
T = TypeVar("T")


class Member(Protocol):
    """What has handles of its own in a context. It may have more:

    bound, rebind(build, pointer): what it calls, and another build and pointer in its place.
    _retire(until): hands out no handle from now on, and ends its waits; until: of time.monotonic().
    _is_inside() -> bool: whether a call that took a handle has not returned.
    _forked(): this process is a forked child, and threads that were inside are gone.
    """

    def _dead(self) -> None:
        """Its context has been closed."""


def is_below(token: object) -> bool:
    """Whether a call with this token is suspended further down this thread's own stack, as under a signal handler."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_locals.get("me") is token:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


class Turn:
    """One holder at a time."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self.owner: Optional[object] = None

    def take(self, me: object) -> bool:
        """Whether it is now held by this token. The holder sets ``owner`` to None in a finally clause."""
        with self._mutex:
            if self.owner is None:
                self.owner = me
        return self.owner is me

    def take_until(self, me: object, until: float, what: str) -> None:
        """Waits for its turn. Raises DrainTimeout."""
        while not self.take(me):
            if time.monotonic() >= until or is_below(self.owner):
                raise errors.DrainTimeout("%s is being closed by another call, which has not ended" % what)
            time.sleep(_PAUSE_S)


class Life:
    """The handle of a context and who is using it."""

    def __init__(self, build: Build) -> None:
        self.bound = Bound(build, c_void_p())
        self.gate = Gate()
        self.opening: List[Member] = []  # those whose open has begun; they have a handle, or will
        self.former: List[Bound] = []  # contexts of builds before, whose handles may still be called until the close
        self._mutex = threading.RLock()
        self._inside: Set[object] = set()
        self.closing = False
        self.forked = False
        self.members: List[Member] = []

    @property
    def inner(self) -> Optional[int]:
        """The plugin's pointer, None when there is no context."""
        return self.bound.handle.value

    @inner.setter
    def inner(self, pointer: Optional[int]) -> None:
        self.bound.handle.value = pointer

    def use(self, family: str, slot: str, *arguments: Any) -> int:
        """Calls a slot on the context. For whoever is inside ``call``."""
        def once() -> int:
            bound = self.bound
            status: int = getattr(getattr(bound.build, family), slot)(bound.handle, *arguments)
            return status

        status = once()
        return self.gate.again(once) if status == _abi.MOVED else status

    def begin_open(self, member: Member) -> None:
        """What the member's open gives it is moved as well from now on, until ``end_open``."""
        with self._mutex:
            self.opening.append(member)

    def end_open(self, member: Member) -> None:
        """It has been adopted, or has failed."""
        with self._mutex:
            self.opening = [m for m in self.opening if m is not member]

    def rebind(self, bound: Bound, moved: Dict[int, int]) -> None:
        """Puts another build behind the context and its members. moved: their pointers in it, by those before. What is not
        among them was closed, and stays where it was."""
        with self._mutex:
            self.former.append(self.bound)
            self.bound = bound
            for member in self.members + self.opening:
                mine: Optional[Bound] = getattr(member, "bound", None)
                pointer = moved.get(mine.handle.value or 0) if mine is not None else None
                if pointer is not None:
                    getattr(member, "rebind")(bound.build, pointer)

    def call(self, function: Callable[[], T]) -> T:
        """Calls a function that passes a handle. Raises Closed when the context is closed or closing."""
        me = object()
        try:
            with self._mutex:
                if not self.closing:
                    self._inside.add(me)
            if me not in self._inside:
                raise errors.Closed("the context is closed")
            result = function()
            if _callbacks.interrupted:
                _callbacks.raise_interrupt()
            return result
        finally:
            self._inside.discard(me)

    def adopt(self, member: Member, give: Callable[[], None]) -> None:
        """Calls ``give``, which hands a fresh handle to the member, unless the context is closing: raises Closed then."""
        with self._mutex:
            if not self.closing:
                self.members = [m for m in self.members if m is not member] + [member]
                give()
        if self.closing:
            raise errors.Closed("the context is closed")

    def leave(self, member: Member) -> None:
        """The member has closed its handle, which stays valid and is not given out any more."""
        with self._mutex:
            self.members = [m for m in self.members if m is not member]

    def end(self, until: float) -> List[Member]:
        """Lets nothing new begin, and waits for what is inside. Raises DrainTimeout. Returns who is dead then."""
        with self._mutex:
            self.closing = True
            members = list(self.members)
        for member in members:
            retire = getattr(member, "_retire", None)
            if retire is not None:
                retire(until)
        while any(not is_below(token) for token in list(self._inside)) or any(_is_inside(m) for m in members):
            if time.monotonic() >= until:
                raise errors.DrainTimeout("the context is still in use by another thread; close it again")
            time.sleep(_PAUSE_S)
        return members

    def after_fork(self) -> None:
        """In a forked child: locks may be held by threads that are not there."""
        self._mutex = threading.RLock()
        self._inside = set()
        self.forked = True
        self.gate.after_fork()
        for member in self.members:
            forked = getattr(member, "_forked", None)
            if forked is not None:
                forked()


def _is_inside(member: Any) -> bool:
    inside = getattr(member, "_is_inside", None)
    return inside is not None and bool(inside())
