# SPDX-License-Identifier: Apache-2.0
"""A swap of all contexts of a plugin, made by a thread of its own.

Python runs signal handlers on the main thread only, so none can end the swap half way. Whoever asked for it waits; what a
handler raises there (Ctrl-C) stops a swap that has not been committed, and is raised when the swap has ended.

Contexts go over one after another, each with its own commit: one that goes on takes part in rounds that the next is waiting
for, when both are in one group. When a later one fails, those that are over are swapped back.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from convoy import _abi, _build, _elf, errors
from convoy._crossing import Course, Crossing, say

if TYPE_CHECKING:
    from convoy.library import Plugin

_SLICE_S = 0.1


@dataclass(frozen=True)
class Swapped:
    """What a swap has done. Times in seconds."""

    path: str  # of the build that is there now
    from_release: str
    from_build_id: str
    to_release: str
    to_build_id: str
    contexts: int
    groups: int
    engines: int
    state_bytes: int  # that were handed over
    pause: float  # the longest for which calls of one context had to wait
    phases: Dict[str, float]  # inspect, load, open, quiesce, export, import, resume, bind, retire: each over all contexts
    left: str  # what could not be freed yet of the build before, and why; it goes with the contexts. Usually empty


class Swap:
    """One swap, from its request to its end."""

    def __init__(self, plugin: "Plugin", path: str, timeout_s: float) -> None:
        self._plugin = plugin
        self._path = path
        self._course = Course(timeout_s)
        self._done = threading.Event()
        self._pid = os.getpid()
        self._takers: Dict[int, int] = {}  # whoever has put itself in first is the thread that swaps
        self._thread = threading.Thread(target=self._run, name="convoy swap")
        self._result: Optional[Swapped] = None
        self._failure: Optional[BaseException] = None

    # -- whoever asked for it -----------------------------------------------------------------------------------------

    def result(self) -> Swapped:
        """Makes it, and waits for its end."""
        interrupt: Optional[BaseException] = None
        while not self._done.is_set():
            try:
                self._wait()
            except BaseException as failure:  # of a signal's handler
                if os.getpid() != self._pid:
                    raise
                self._course.is_stopped = True
                interrupt = interrupt or failure
        self._thread.join()  # it has said its last word
        if interrupt is not None:
            raise interrupt
        if self._failure is not None:
            raise self._failure
        assert self._result is not None
        return self._result

    def _wait(self) -> None:
        if self._thread.ident is None:
            self._thread.start()
        while not self._done.wait(_SLICE_S):
            if os.getpid() != self._pid:
                raise errors.Forked("this process was forked in the middle of a swap; only a fresh context works in it")

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        if self._takers.setdefault(0, threading.get_ident()) != threading.get_ident():
            return  # a signal came while the thread was started, so it was started twice
        running = self._plugin._swaps.setdefault(self._pid, self)
        try:
            if running is not self:
                raise errors.Busy("another swap of this plugin is under way")
            self._result = self._make()
        except BaseException as failure:
            self._failure = failure
        finally:
            if running is self:
                self._plugin._swaps.pop(self._pid, None)
            self._done.set()

    def _make(self) -> Swapped:
        plugin, course = self._plugin, self._course
        old = plugin._build
        with course.phase("inspect"):
            file = _elf.inspect(self._path)
            _build.check_successor(old, file)
        with course.phase("load"):
            new = _build.load_successor(old, file)
        over: List[Crossing] = []
        try:
            while not plugin._settle(new):
                self._cross(plugin._behind(new), new, over)
        except BaseException as failure:
            self._put_back(over, old, failure)
            raise
        kinds = course.kinds
        return Swapped(file.path, old.file.release, old.file.build_id, file.release, file.build_id, len(over),
                       kinds.count(_abi.MOVED_GROUP), kinds.count(_abi.MOVED_ENGINE), course.state_bytes, course.pause,
                       course.phases, "; ".join(course.left))

    def _cross(self, contexts: List[Any], build: _build.Build, over: List[Crossing]) -> None:
        """All are prepared before the first is touched."""
        ready: List[Crossing] = []
        try:
            for context in contexts:
                crossing = Crossing(context, build, self._course)
                ready.append(crossing)
                if not crossing.prepare():
                    ready.remove(crossing)
                    crossing.leave()
            for crossing in ready:
                crossing.go()
                over.append(crossing)
                crossing.retire()
        finally:
            for crossing in ready:
                crossing.leave()

    def _put_back(self, over: List[Crossing], old: _build.Build, failure: BaseException) -> None:
        course = Course(self._course.timeout_s)
        for done in reversed(over):
            back = Crossing(done.context, old, course)
            try:
                if back.prepare():
                    back.go()
                    back.retire()
            except errors.ConvoyError as reason:
                if isinstance(failure, errors.ConvoyError):
                    say(failure, "%s; and a context stays with %s: %s" % (failure.text, self._path, reason.text))
            finally:
                back.leave()
