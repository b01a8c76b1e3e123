# SPDX-License-Identifier: Apache-2.0
"""One context on its way to another build.

  state       step                    it works    it fails
  running     prepare: open the new   prepared    running: nothing was touched
  prepared    quiesce the old         quiesced    undo
  quiesced    export from the old     exported    undo
  exported    import into the new     imported    undo
  imported    resume the new          committed   undo
  committed   bind handles to it      bound       (cannot)
  bound       retire the old          done        done; ``left`` says what of the old could not be freed yet

Undo: the new context is closed, which drops what it imported, then the old one is resumed. From the beginning of quiesce to
the end of bind, or of undo, the gate is shut: calls that are told MOVED wait there. Closing the context waits as well, by the
closer's turn. When the old one cannot be resumed it stays halted, and calls raise Moved until a later swap gets through.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from ctypes import addressof, byref, c_uint64, sizeof
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple

from convoy import _abi, errors
from convoy._bound import Bound
from convoy._build import Build

if TYPE_CHECKING:
    from convoy.context import Context

_SLICE_S = 0.05  # of quiesce, after which a signal is heard
_TRIES = 3
_FIRST_BYTES = 65536


class Course:
    """What the crossings of one swap share: the time, the wish to stop, and what is measured."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.until = time.monotonic() + timeout_s
        self.is_stopped = False
        self.phases: Dict[str, float] = {}
        self.pause = 0.0
        self.state_bytes = 0
        self.kinds: List[int] = []  # of the objects that have moved
        self.left: List[str] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measures a phase, and names it in what it raises."""
        begun = time.monotonic()
        try:
            yield
        except errors.ConvoyError as failure:
            say(failure, "swap: %s: %s" % (name, failure.text))
            raise
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.monotonic() - begun

    def check(self) -> None:
        """Raises Canceled when it was asked to stop."""
        if self.is_stopped:
            raise errors.Canceled("interrupted")


def say(failure: errors.ConvoyError, text: str) -> None:
    """Gives an exception another text."""
    failure.text = text
    failure.args = (text,)


class Crossing:
    """One context's. It has the closer's turn until ``leave``."""

    def __init__(self, context: "Context", build: Build, course: Course) -> None:
        self.context = context
        self._life = context._life
        self._build = build
        self._course = course
        self._new: Optional[Bound] = None

    def prepare(self) -> bool:
        """Opens the same context in the new build. False: it has been closed meanwhile."""
        with self._course.phase("open"):
            self.context._closer.take_until(self, self._course.until, "the context")
            if self._life.inner is None or self._life.forked:
                return False
            self._old = self._life.bound
            self._new = self.context._open_in(self._build)
            _check_settings(self.context._settings_of(self._old), self.context._settings_of(self._new))
            return True

    def leave(self) -> None:
        """Closes what was prepared and not used, and gives the turn back."""
        self._drop_new()
        if self.context._closer.owner is self:
            self.context._closer.owner = None

    def go(self) -> None:
        """From quiesce to bind. When it raises, the old build goes on."""
        begun = time.monotonic()
        try:
            self._life.gate.shut()
            moved = self._carry()
            with self._course.phase("bind"):
                new, self._new = self._new, None
                assert new is not None
                self._life.rebind(new, moved)
        finally:
            self._life.gate.open()
            self._course.pause = max(self._course.pause, time.monotonic() - begun)

    def _carry(self) -> Dict[int, int]:
        course = self._course
        try:
            with course.phase("quiesce"):
                self._quiesce()
            with course.phase("export"):
                state, length = self._export()
            with course.phase("import"):
                moved = self._import(state, length)
            with course.phase("resume"):
                course.check()
                self._call(self._new, "resume")
            course.state_bytes += length
            return moved
        except BaseException as failure:
            self._undo(failure)
            raise

    def _call(self, bound: Optional[Bound], slot: str, *arguments: Any) -> None:
        """Calls a slot of the family and raises what it says."""
        assert bound is not None
        error = _abi.Error(struct_size=sizeof(_abi.Error))
        status = getattr(bound.build.move, slot)(bound.handle, *arguments, byref(error))
        if status != _abi.OK:
            raise errors.make(status, error)

    def _quiesce(self) -> None:
        """In slices, so that a signal need not wait for the whole of it."""
        while True:
            self._course.check()
            left = self._course.until - time.monotonic()
            try:
                return self._call(self._old, "quiesce", max(1, int(min(left, _SLICE_S) * 1e9)))
            except errors.DrainTimeout:
                if time.monotonic() >= self._course.until:
                    raise

    def _export(self) -> Tuple[Any, int]:
        """The state, in a format that the new build reads, and its length."""
        self._course.check()
        options = _abi.ExportOptions(struct_size=sizeof(_abi.ExportOptions), format_max=self._format_max())
        capacity = _FIRST_BYTES
        while True:
            memory = (c_uint64 * (capacity // 8 + 1))()
            buffer = _abi.TextBuffer(struct_size=sizeof(_abi.TextBuffer), data=addressof(memory), capacity=sizeof(memory))
            try:
                self._call(self._old, "export_state", byref(options), byref(buffer))
                return memory, int(buffer.length)
            except errors.BufferTooSmall:
                if buffer.length <= sizeof(memory):
                    raise
                capacity = buffer.length

    def _format_max(self) -> int:
        """Of what the new build reads, by its manifest; 0 = it does not say."""
        assert self._new is not None
        formats = self._new.build.file.manifest.get("state")
        highest = formats.get("max") if isinstance(formats, dict) else None
        return highest if isinstance(highest, int) else 0

    def _import(self, memory: Any, length: int) -> Dict[int, int]:
        """The new pointers by the old ones."""
        self._course.check()
        state = _abi.ExportedState(struct_size=sizeof(_abi.ExportedState), data=addressof(memory), bytes=length)
        capacity = max(1, len(self._life.members) + len(self._life.opening))
        while True:
            rows = (_abi.MovedObject * capacity)()
            moved = _abi.Moved(struct_size=sizeof(_abi.Moved), objects=addressof(rows), object_capacity=capacity,
                               object_stride=sizeof(_abi.MovedObject))
            try:
                self._call(self._new, "import_state", byref(state), byref(moved))
                break
            except errors.BufferTooSmall:
                if moved.object_count <= capacity:
                    raise
                capacity = moved.object_count
        self._course.kinds += [row.kind for row in rows[: moved.object_count]]
        return {row.old_handle: row.new_handle for row in rows[: moved.object_count]}

    def _undo(self, failure: BaseException) -> None:
        self._drop_new()
        for attempt in range(_TRIES):
            try:
                return self._call(self._old, "resume")
            except errors.ConvoyError as reason:
                if attempt == _TRIES - 1 and isinstance(failure, errors.ConvoyError):
                    say(failure, "%s; and the old build cannot go on, swap again: %s" % (failure.text, reason.text))

    def _drop_new(self) -> None:
        new, self._new = self._new, None
        if new is None:
            return
        try:
            self.context._close_bound(new, time.monotonic() + self.context._close_s)
        except errors.ConvoyError:  # it is closed with the context
            self._life.former.append(new)

    def retire(self) -> None:
        """Frees what the old build has of it, but for the handles. Others call the new one meanwhile."""
        try:
            with self._course.phase("retire"):
                self._call(self._old, "retire", int(self.context._close_s * 1e9))
        except errors.ConvoyError as failure:
            self._course.left.append(failure.text)


def _check_settings(old: Dict[str, Any], new: Dict[str, Any]) -> None:
    """The environment may have changed since the context was opened, and has a word in its settings."""
    for name in sorted(set(old) & set(new)):
        sources = old[name]["source"], new[name]["source"]
        if "environment" in sources and old[name]["value"] != new[name]["value"]:
            raise errors.InvalidArgument("the environment has changed since the context was opened: %s is %r, and would be %r" % (
                name, old[name]["value"], new[name]["value"]))
