# SPDX-License-Identifier: Apache-2.0
"""What the calls of a group share: one caller at a time, waiting in slices, and failures with their reports."""

from __future__ import annotations

import ctypes
import threading
import weakref
from ctypes import CFUNCTYPE, addressof, byref, c_int32, c_uint64, c_void_p, sizeof
from functools import partial
from typing import Any, Callable, List, NoReturn, Optional, TypeVar

from convoy import _abi, _callbacks, errors
from convoy._bound import Bound, Gate
from convoy._build import Build
from convoy._buffers import nanoseconds
from convoy._life import is_below
from convoy._wait import SLICE_NS, go_on
from convoy.reports import Report, ReportBuffer

# Statuses after which there is a report.
_REPORTED = frozenset((_abi.DIVERGED, _abi.TIMED_OUT, _abi.PEER_LOST, _abi.PEER_ERROR, _abi.BROKEN, _abi.CANCELED))
T = TypeVar("T")


class Rounds:
    """The part of a group that makes rounds. Calls of one group are serialized: a second thread gets Busy at once.

    ``owner`` is the token of the call that is inside. Only the owner passes the handle, so that closing the context, which
    frees what it points to, can wait for whoever has read it. Hot paths write ``alone`` out.
    """

    def __init__(self, build: Build, gate: Gate, name: str, members: int, timeout_ns: int) -> None:
        self.bound = Bound(build, c_void_p())
        self._former: List[Bound] = []  # a call that was prepared for one may be under way
        self.gate = gate
        self.name = name
        self._timeout_ns = timeout_ns
        self._mutex = threading.RLock()
        self.owner: Optional[object] = None
        self._error = _abi.Error(struct_size=sizeof(_abi.Error))
        self._report = ReportBuffer(members)
        self._error_ref = byref(self._error)
        self.report_address = addressof(self._report.struct)
        self.first_slice = c_uint64(min(SLICE_NS, timeout_ns))
        self.prepared_calls: "weakref.WeakSet[Any]" = weakref.WeakSet()  # they hold addresses of the build
        self._known = 0  # the last operation whose call is known
        self._begun: Optional["Operation"] = None  # the last that was begun by itself; known as soon as it has a value
        self._left_open: Optional[Callable[[Optional[float]], Any]] = None

    @property
    def _build(self) -> Build:
        return self.bound.build

    @property
    def _inner(self) -> Optional[int]:
        """The plugin's pointer, None when there is no such group any more."""
        return self.bound.handle.value

    def _empty(self) -> None:
        """There is no such group any more."""
        for bound in [*self._former, self.bound]:
            bound.handle.value = None

    def use(self, family: str, slot: str, *arguments: Any) -> int:
        """Calls a slot on this group. For its owner, or inside the context's ``Life.call``."""
        def once() -> int:
            bound = self.bound
            status: int = getattr(getattr(bound.build, family), slot)(bound.handle, *arguments)
            return status

        status = once()
        return self.gate.again(once) if status == _abi.MOVED else status

    def prepared(self, slot: Any, handle: c_void_p, call: Any, answer: Any) -> Callable[[], int]:
        """A start-and-wait slot with all its arguments, none of which is to be converted: about half the cost of calling
        the slot. It waits for the first slice. The structs must stay where they are, and live as long as this."""
        if not hasattr(slot, "argtypes"):  # the build lacks it: calling it says so
            return partial(slot, handle)
        plain = CFUNCTYPE(c_int32)(ctypes.cast(slot, c_void_p).value or 0)  # no argument types, so what is passed must be exact
        return partial(plain, handle, c_void_p(addressof(call)), self.first_slice, c_void_p(addressof(answer)),
                       c_void_p(addressof(self._error)))

    def rebind(self, build: Build, pointer: Optional[int]) -> None:
        """Puts another build, and its pointer for this group, behind this object and all calls that were prepared for it.
        At any time: calls on what was bound before are told MOVED, and made again."""
        with self._mutex:
            self._former.append(self.bound)
            self.bound = Bound(build, c_void_p(pointer))
            for call in list(self.prepared_calls):
                call.bind()

    def prepare(self, call: Any) -> None:
        """Binds a call, now and whenever another build comes."""
        with self._mutex:
            self.prepared_calls.add(call)
            call.bind()

    def enter(self, me: Optional[object] = None) -> None:
        """Takes the group for one call; leave() gives it back. Raises Busy."""
        me = object() if me is None else me
        with self._mutex:
            if self.owner is None:
                self.owner = me
        if self.owner is not me:
            self.refuse()

    def refuse(self) -> NoReturn:
        """Raises Busy."""
        raise errors.Busy("group \"%s\": another call of it is still inside" % self.name)

    def leave(self) -> None:
        """Gives the group back after enter()."""
        self.owner = None

    def alone(self, function: Callable[[], T]) -> T:
        """Calls a function as the owner of the group. Raises Busy."""
        me = object()
        try:
            self.enter(me)
            return function()
        finally:
            if self.owner is me:
                self.owner = None

    def _is_inside(self) -> bool:
        owner = self.owner
        return owner is not None and not is_below(owner)

    def _forked(self) -> None:
        self._mutex = threading.RLock()
        self.owner = None

    def failure(self, status: int) -> errors.ConvoyError:
        """The exception for what the last call of this group returned."""
        if self._inner is None:
            return errors.Closed("group \"%s\" is closed" % self.name)
        return errors.make(status, self._error, self._report_of(status), is_reused=True)

    def _report_of(self, status: int) -> Optional[Report]:
        """The report that came with the status; a start has no place for one, so it is asked for."""
        report = self._report.read() if status in _REPORTED else None
        self._report.clear()
        if report is None and status in _REPORTED:
            error = byref(_abi.Error(struct_size=sizeof(_abi.Error)))
            where = byref(self._report.struct)
            if self.use("core", "operation_report", where, error) == _abi.OK:
                report = self._report.read()
            self._report.clear()
        return report

    def time_of(self, timeout: Optional[float]) -> int:
        """Nanoseconds of a timeout in seconds; None is the group's own."""
        return nanoseconds(timeout) or self._timeout_ns

    def finish(self, status: int, wait: Callable[[int], int], timeout_ns: int) -> None:
        """What follows a call that waited for one slice and did not end OK: waits on, or raises."""
        if status == _abi.TIMED_OUT:
            status = go_on(wait, status, _abi.TIMED_OUT, timeout_ns, min(SLICE_NS, timeout_ns))
        if _callbacks.interrupted:
            _callbacks.raise_interrupt()
        if status != _abi.OK:
            raise self.failure(status)

    def _look(self) -> _abi.GroupInfo:
        """The group's info. For the owner."""
        info = _abi.GroupInfo(struct_size=sizeof(_abi.GroupInfo))
        where = byref(info)
        status = self.use("core", "group_info", where, self._error_ref)
        if status != _abi.OK:
            raise self.failure(status)
        return info

    def open_operation(self) -> int:
        """The value of the operation that is open, 0 = none. For the owner."""
        return self._look().operation

    def is_known(self, operation: int) -> bool:
        """Whether there is none, or it is of a call that can wait for it. For the owner."""
        return operation in (0, self._known) or (self._begun is not None and operation == self._begun.value)

    def has_ended(self, round: int) -> bool:
        """Whether no operation is open and this round was the last one: an interrupted call has its result already."""
        info = self._look()
        return info.operation == 0 and round != 0 and info.round == round

    def _begin(self, operation: "Operation", start: Callable[[], None]) -> "Operation":
        """Starts an operation. From then on ``wait`` finds it, also when the caller is interrupted before it has it."""
        before, self._left_open = self._left_open, operation.wait
        self._begun = operation
        try:
            self.alone(start)
        except BaseException:
            if operation.value == 0:
                self._left_open = before
            raise
        finally:
            self._known = operation.value or self._known
        return operation

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits on for the round of a call that was left by an exception (TimedOut, Canceled, KeyboardInterrupt). Returns and
        raises what that call would have. Raises Closed when there is none, or another round has followed."""
        wait = self._left_open
        if wait is None:
            raise errors.Closed("group \"%s\": no call of it was left open" % self.name)
        return wait(timeout)


class Operation:
    """A round that was started: test it, wait for it, or abandon it. ``result`` is what the round gave.

    Made by the start calls of a group. The inputs were captured at the start; the caller's memory is its own again.
    """

    def __init__(self, rounds: Rounds, value: c_uint64, test: Callable[[int], int], wait: Callable[[int, int], int],
                 result: Callable[[], Any]) -> None:
        self._rounds = rounds
        self._test = test
        self._wait = wait
        self._result = result
        self._value = value

    @property
    def value(self) -> int:
        """The plugin's number of this operation."""
        return self._value.value

    def test(self) -> Any:
        """The result, or None while the round is not complete. Never waits."""
        return self._rounds.alone(self._test_alone)

    def _test_alone(self) -> Any:
        status = self._test(self.value)
        if status == _abi.IN_PROGRESS:
            return None
        if status != _abi.OK:
            raise self._rounds.failure(status)
        return self._result()

    def wait(self, timeout: Optional[float] = None) -> Any:
        """The result. Raises as the blocking call does; after TimedOut and Canceled the operation is still open."""
        timeout_ns = self._rounds.time_of(timeout)
        wait: Callable[[], Any] = lambda: self._wait_alone(timeout_ns)
        return self._rounds.alone(wait)

    def _wait_alone(self, timeout_ns: int) -> Any:
        value = self.value
        status = self._wait(value, min(SLICE_NS, timeout_ns))
        if status != _abi.OK or _callbacks.interrupted:
            self._rounds.finish(status, lambda left: self._wait(value, left), timeout_ns)
        return self._result()

    def abandon(self) -> bool:
        """Gives the round up for all members. True: it was complete already, wait() gives its result. False: it is
        sealed, every member gets Broken, and the group is to be reopened."""
        return self._rounds.alone(lambda: abandon(self._rounds, self.value))


def abandon(rounds: Rounds, value: int) -> bool:
    """See Operation.abandon. For the owner of the group."""
    status = rounds.use("core", "operation_abandon", value, rounds._error_ref)
    if status in (_abi.BROKEN, _abi.PEER_LOST):
        return False
    if status != _abi.OK:
        raise rounds.failure(status)
    return True
