# SPDX-License-Identifier: Apache-2.0
"""A blocking call of the plugin with its arguments made once, and what becomes of its round when the call is left early."""

from __future__ import annotations

from ctypes import byref
from functools import partial
from typing import Any, Callable, Optional, Tuple

from convoy import _abi, errors
from convoy._callbacks import interrupted
from convoy._rounds import Rounds
from convoy._wait import SLICE_NS, Deadline


class Prepared:
    """What the hot paths share. ``call`` and ``answer`` are the structs of the plugin's start-and-wait slot.

    A hot path takes the group as ``turn`` does, written out, and then ``run``s or calls ``_ready`` itself.
    """

    SLOTS = "", "", ""  # family, its start-and-wait slot, its wait slot

    def __init__(self, rounds: Rounds, call: Any, answer: Any) -> None:
        self._rounds = rounds
        self._operation = 0  # the last one that was left open
        self._call_struct, self._answer_struct = call, answer
        self._call_ref, self._answer_ref = byref(call), byref(answer)
        rounds.prepare(self)

    def bind(self) -> None:
        """Takes the slot of the group's build, again when there is another behind it. Each of the two is taken as one, and
        never has the pointer of another build."""
        build, handle = self._rounds.bound
        slot = getattr(getattr(build, self.SLOTS[0]), self.SLOTS[1])
        self._slot = partial(slot, handle)
        self._ready = self._rounds.prepared(slot, handle, self._call_struct, self._answer_struct)

    def run(self, timeout: Optional[float]) -> None:
        """Makes the call. timeout: seconds, None for the group's. For the owner of the group."""
        rounds = self._rounds
        if timeout is None:
            timeout_ns = rounds._timeout_ns
            status: int = self._ready()
        else:
            timeout_ns = rounds.time_of(timeout)
            status = self._slot(self._call_ref, min(SLICE_NS, timeout_ns), self._answer_ref, rounds._error_ref)
        if status or interrupted:
            self._finish(status, timeout_ns)

    def turn(self, function: Callable[[], None]) -> None:
        """Calls a function as the owner of the group; a round that it leaves open can be waited for. Raises Busy."""
        rounds, me = self._rounds, object()
        try:
            rounds.enter(me)
            function()
        except BaseException as failure:
            self._is_left(failure, me)
            raise
        finally:
            if rounds.owner is me:
                rounds.owner = None

    def _is_left(self, failure: BaseException, me: object) -> bool:
        """Whether the call that this has ended left its round open, or complete with nobody to take it. For the owner."""
        rounds = self._rounds
        if isinstance(failure, errors.ConvoyError) or rounds.owner is not me:
            return isinstance(failure, (errors.TimedOut, errors.Canceled))
        try:
            if rounds.has_ended(self._answer_struct.round):
                return True
            operation = rounds.open_operation()
        except errors.ConvoyError:  # closed meanwhile; what came first is what is raised
            return False
        if rounds.is_known(operation):  # none, or of another call, for which this one was Busy
            return False
        self._operation = rounds._known = operation
        return True

    def _wait_for(self, operation: int) -> Callable[[int], int]:
        rounds, (family, _, wait_slot) = self._rounds, self.SLOTS
        return lambda left: rounds.use(family, wait_slot, operation, left, self._answer_ref, rounds._error_ref)

    def _again(self, timeout_ns: int) -> Tuple[int, int]:
        """Makes a call again that was told MOVED: nothing of it had begun. (status, what ``finish`` takes for the time)"""
        rounds, deadline = self._rounds, Deadline(timeout_ns)

        def call() -> int:
            rounds.prepare(self)
            status: int = self._slot(self._call_ref, max(1, deadline.slice()), self._answer_ref, rounds._error_ref)
            return status

        status = rounds.gate.again(call)
        return status, SLICE_NS + max(1, deadline.left())

    def _finish(self, status: int, timeout_ns: int) -> None:
        if status == _abi.MOVED:
            status, timeout_ns = self._again(timeout_ns)
        if status == _abi.TIMED_OUT or status == _abi.CANCELED:
            self._operation = self._rounds._known = self._rounds.open_operation()
        self._end(status, self._wait_for(self._operation), timeout_ns)

    def _end(self, status: int, wait: Callable[[int], int], timeout_ns: int) -> None:
        try:
            self._rounds.finish(status, wait, timeout_ns)
        except errors.ConvoyError:
            self._answer_struct.round = 0
            raise

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits on for a round that a call left open (TimedOut, Canceled, KeyboardInterrupt); its result is there then.
        Raises as the call does, and Closed when nothing is open and another round was the last."""
        timeout_ns = self._rounds.time_of(timeout)
        self._rounds.alone(lambda: self._wait_alone(timeout_ns))

    def _wait_alone(self, timeout_ns: int) -> None:
        if not self._rounds.has_ended(self._answer_struct.round):
            wait = self._wait_for(self._operation)
            self._end(wait(min(SLICE_NS, timeout_ns)), wait, timeout_ns)
