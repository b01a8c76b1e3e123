# SPDX-License-Identifier: Apache-2.0
"""What the calls of a group share: one caller at a time, waiting in slices, and failures with their reports."""

from __future__ import annotations

import ctypes
import threading
from ctypes import CFUNCTYPE, addressof, byref, c_int32, c_uint64, c_void_p, sizeof
from functools import partial
from typing import Any, Callable, Optional

from convoy import _abi, errors
from convoy._build import Build
from convoy._buffers import nanoseconds
from convoy._wait import SLICE_NS, go_on
from convoy.reports import ReportBuffer

# Statuses after which the plugin has filled the report that came with the call.
_REPORTED = frozenset((_abi.DIVERGED, _abi.TIMED_OUT, _abi.PEER_LOST, _abi.PEER_ERROR, _abi.BROKEN, _abi.CANCELED))


class Rounds:
    """The part of a group that makes rounds. Calls of one group are serialized: a second thread gets Busy at once."""

    def __init__(self, build: Build, name: str, members: int, timeout_ns: int) -> None:
        self._build = build
        self.handle = c_void_p()  # the same object for life: prepared calls hold it, and see it emptied
        self.name = name
        self._timeout_ns = timeout_ns
        self._lock = threading.Lock()
        self._error = _abi.Error(struct_size=sizeof(_abi.Error))
        self._report = ReportBuffer(members)
        self._error_ref = byref(self._error)
        self.report_address = addressof(self._report.struct)
        self.first_slice = c_uint64(min(SLICE_NS, timeout_ns))

    @property
    def _inner(self) -> Optional[int]:
        """The plugin's pointer, None when there is no such group any more."""
        return self.handle.value

    @_inner.setter
    def _inner(self, pointer: Optional[int]) -> None:
        self.handle.value = pointer

    def prepared(self, slot: Any, call: Any, answer: Any) -> Callable[[], int]:
        """A start-and-wait slot with all its arguments but none to convert: about half the cost of calling the slot.
        It waits for the first slice. The structs must stay where they are, and live as long as this."""
        if not hasattr(slot, "argtypes"):  # the build lacks it: calling it says so
            return partial(slot)
        plain = CFUNCTYPE(c_int32)(ctypes.cast(slot, c_void_p).value or 0)  # no argument types, so what is passed must be exact
        return partial(plain, self.handle, c_void_p(addressof(call)), self.first_slice, c_void_p(addressof(answer)),
                       c_void_p(addressof(self._error)))

    def enter(self) -> None:
        """Takes the group for one call. leave() gives it back."""
        if not self._lock.acquire(False):
            raise errors.Busy("group \"%s\": another thread is inside a call of it" % self.name)

    def leave(self) -> None:
        self._lock.release()

    def failure(self, status: int) -> errors.ConvoyError:
        """The exception for what the last call of this group returned."""
        if self._inner is None:
            return errors.Closed("group \"%s\" is closed" % self.name)
        report = self._report.read() if status in _REPORTED else None
        return errors.make(status, self._error, report)

    def time_of(self, timeout: Optional[float]) -> int:
        """Nanoseconds of a timeout in seconds; None is the group's own."""
        return nanoseconds(timeout) or self._timeout_ns

    def finish(self, status: int, wait: Callable[[int], int], timeout_ns: int) -> None:
        """What follows a call that waited for one slice and did not end OK: waits on, or raises."""
        if status == _abi.TIMED_OUT:
            status = go_on(wait, status, _abi.TIMED_OUT, timeout_ns, min(SLICE_NS, timeout_ns))
        if status != _abi.OK:
            raise self.failure(status)

    def open_operation(self) -> int:
        """The value of the operation that is open, 0 = none."""
        info = _abi.GroupInfo(struct_size=sizeof(_abi.GroupInfo))
        error = _abi.Error(struct_size=sizeof(_abi.Error))
        status = self._build.core.group_info(self._inner, byref(info), byref(error))
        if status != _abi.OK:
            raise errors.make(status, error)
        return info.operation


class Operation:
    """A round that was started: test it, wait for it, or abandon it. ``result`` is what the round gave.

    Made by the start calls of a group. The inputs were captured at the start; the caller's memory is its own again.
    """

    def __init__(self, rounds: Rounds, value: int, test: Callable[[int], int], wait: Callable[[int, int], int],
                 result: Callable[[], Any]) -> None:
        self._rounds = rounds
        self._test = test
        self._wait = wait
        self._result = result
        self.value = value

    def test(self) -> Any:
        """The result, or None while the round is not complete. Never waits."""
        self._rounds.enter()
        try:
            status = self._test(self.value)
            if status == _abi.IN_PROGRESS:
                return None
            if status != _abi.OK:
                raise self._rounds.failure(status)
            return self._result()
        finally:
            self._rounds.leave()

    def wait(self, timeout: Optional[float] = None) -> Any:
        """The result. Raises as the blocking call does; after TimedOut and Canceled the operation is still open."""
        timeout_ns = self._rounds.time_of(timeout)
        self._rounds.enter()
        try:
            status = self._wait(self.value, min(SLICE_NS, timeout_ns))
            if status != _abi.OK:
                self._rounds.finish(status, lambda left: self._wait(self.value, left), timeout_ns)
            return self._result()
        finally:
            self._rounds.leave()

    def abandon(self) -> bool:
        """Gives the round up for all members. True: it was complete already, wait() gives its result. False: it is
        sealed, every member gets Broken, and the group is to be reopened."""
        rounds = self._rounds
        rounds.enter()
        try:
            status = rounds._build.core.operation_abandon(rounds._inner, self.value, rounds._error_ref)
            if status in (_abi.BROKEN, _abi.PEER_LOST):
                return False
            if status != _abi.OK:
                raise rounds.failure(status)
            return True
        finally:
            rounds.leave()
