# SPDX-License-Identifier: Apache-2.0
"""The handle of one transfer, from its start to its release."""

from __future__ import annotations

import time
from ctypes import byref, sizeof
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, TypeVar

from convoy import _abi, errors
from convoy._buffers import Text, nanoseconds
from convoy._readiness import SLICE_NS as READY_SLICE_NS
from convoy._readiness import Readiness
from convoy._wait import go_on

if TYPE_CHECKING:
    from convoy.transfer import Engine

STATES = ("unknown", "staging", "staged", "queued", "offered", "sent", "waiting", "loading", "loaded", "reserved",
          "filling", "filled", "failed", "aborted")
PATHS = ("auto", "lend", "push", "pull", "process_vm", "messages", "rma")
_FOREVER_NS = 2**62  # the transfer's own deadline is earlier
_SETTLE_S = 1.0
_Kind = TypeVar("_Kind", bound="Transfer")


@dataclass(frozen=True)
class TransferResult:
    """One look at a transfer. Times are seconds of time.monotonic(), None = not reached."""

    state: str  # one of STATES
    path: str  # that was taken, one of PATHS; "auto" = none yet
    status: int  # how it ended; 1 = in progress
    attempt: int
    retries: int  # messages sent again
    retry_after_ms: int  # the peer refused and says when to ask again; 0 = at will
    source_free: bool  # the tensors' own memory is read no more, a destination written no more
    slot_id: int
    payload_bytes: int
    moved_bytes: int  # copied by this side
    address: int  # of the own slot, 0 = none
    slot_offset: int
    slot_bytes: int
    started: Optional[float]
    ready: Optional[float]
    staged: Optional[float]
    offered: Optional[float]
    loaded: Optional[float]
    returned: Optional[float]


def name_of(names: Any, value: int) -> str:
    """The word for a number; of a newer plugin's, the number itself."""
    return str(names[value]) if value < len(names) else str(value)


class Transfer:
    """A transfer from its start to its release. A context manager: leaving it releases.

    Any thread may use it. What is dropped without a release is released when it is collected.
    """

    def __init__(self, engine: "Engine", value: int, request: str, owners: Any = None,
                 readiness: Optional[Readiness] = None) -> None:
        self._released = False
        self._engine = engine
        self._owners = owners  # of memory that the plugin still reads or writes
        self._readiness = readiness
        self.value = value
        self._request = request
        engine._register(self)

    # -- looking at it ------------------------------------------------------------------------------------------------

    def _look(self, wait_ns: Optional[int], result: _abi.TransferResult, error: _abi.Error) -> int:
        value, engine, readiness = self.handle(), self._engine, self._readiness
        if readiness is not None and readiness.is_open:
            readiness.ask()
            if wait_ns is not None and readiness.is_open:
                wait_ns = min(wait_ns, READY_SLICE_NS)
        if wait_ns is None:
            status = engine._use("transfer_test", value, byref(result), byref(error))
        else:
            status = engine._use("transfer_wait", value, wait_ns, byref(result), byref(error))
        if result.written_bytes and result.is_source_free:
            self._owners = None
        return status

    def handle(self) -> int:
        """The plugin's number of it. Raises Closed after its release."""
        if self._released:
            raise errors.Closed("request \"%s\" was released here" % self._request)
        return self.value

    def _ask(self) -> None:
        """Lets its producer be asked by a thread that does not wait for it."""
        if self._readiness is not None and self._readiness.is_open:
            self.test()

    def _failure(self, status: int, result: _abi.TransferResult, error: _abi.Error) -> BaseException:
        failure = errors.make(status, error)
        setattr(failure, "retry_after_ms", result.retry_after_ms)
        if self._readiness is not None and self._readiness.failure is not None:
            cause = self._readiness.failure
            cause.__cause__ = failure
            return cause
        return failure

    def test(self) -> bool:
        """True: it ended well. False: it is under way. Raises why it failed. Never waits."""
        result, error = _result(), _error()
        status = self._look(None, result, error)
        if status not in (_abi.OK, _abi.IN_PROGRESS):
            raise self._failure(status, result, error)
        return status == _abi.OK

    def wait(self: _Kind, timeout: Optional[float] = None) -> _Kind:
        """Waits until it has ended well, and returns itself. Raises why it failed.

        timeout: seconds; None = until the transfer's own deadline. Raises TimedOut when either has passed: after the
        former it goes on, and may be waited for again.
        """
        result, error = _result(), _error()
        limit_ns = nanoseconds(timeout) or _FOREVER_NS
        status = go_on(lambda left: self._look(left, result, error), _abi.IN_PROGRESS, _abi.IN_PROGRESS, limit_ns, 0)
        if status == _abi.IN_PROGRESS:
            raise errors.TimedOut("request \"%s\" is %s after %.3f s; it goes on, and its own deadline ends it" % (
                self.request, name_of(STATES, result.state), limit_ns / 1e9))
        if status != _abi.OK:
            raise self._failure(status, result, error)
        return self

    def result(self) -> TransferResult:
        """One look at it, whatever its state. Raises Closed after its release."""
        raw, error = _result(), _error()
        status = self._look(None, raw, error)
        if not raw.written_bytes:
            raise errors.make(status, error)
        return TransferResult(
            name_of(STATES, raw.state), name_of(PATHS, raw.path), raw.status, raw.attempt, raw.retries, raw.retry_after_ms,
            bool(raw.is_source_free), raw.slot_id, raw.payload_bytes, raw.moved_bytes, raw.address or 0, raw.slot_offset,
            raw.slot_bytes, *[when / 1e9 if when else None for when in raw.times_ns[:_abi.TIME_RETURNED + 1]])

    @property
    def request(self) -> str:
        """The request's name."""
        return self._request

    @property
    def released(self) -> bool:
        """Whether it was released here."""
        return self._released

    # -- ending it ----------------------------------------------------------------------------------------------------

    def abort(self, reason: str = "aborted by the host") -> None:
        """Ends it with Canceled and tells the peer; an end that it has stays, but what is staged is not staged any more.
        Release it afterwards. Raises Closed after its release."""
        text, error = Text(reason), _error()
        engine = self._engine
        status = engine._use("abort", self.handle(), text.address, text.length, byref(error))
        if status != _abi.OK:
            raise errors.make(status, error)

    def release(self) -> None:
        """Views are void from now on; memory returns as soon as nobody else refers to it. A send that is under way goes on,
        all else is aborted. Again: no effect."""
        if self._released:
            return
        self._released = True
        self._let_go()

    def _let_go(self) -> None:
        """What a release does."""
        engine = self._engine
        if engine._inner is None:
            return
        if not engine._gate.may_wait():
            return engine._gate.later(lambda: Transfer._let_go(self))
        self._settle()
        if self._owners is not None or (self._readiness is not None and not self._readiness.is_over):
            engine._keep_until_close((self._owners, self._readiness))
        error = _error()
        status = engine._use("release", self.value, byref(error))
        if status not in (_abi.OK, _abi.CLOSED, _abi.FORKED):
            raise errors.make(status, error)

    def _settle(self) -> None:
        """What is still read or written is ended first, and its memory kept until that is over."""
        if self._owners is None and self._readiness is None:
            return
        result, error = _result(), _error()
        end = time.monotonic() + _SETTLE_S
        status = self._test_quietly(result, error)
        if status == _abi.IN_PROGRESS and not isinstance(self, Sent):
            self._engine._use("abort", self.value, None, 0, byref(error))
            while self._owners is not None and time.monotonic() < end:
                self._test_quietly(result, error)
                time.sleep(0.0005)

    def _test_quietly(self, result: _abi.TransferResult, error: _abi.Error) -> int:
        status = self._engine._use("transfer_test", self.value, byref(result), byref(error))
        if result.written_bytes and result.is_source_free:
            self._owners = None
        if self._readiness is not None and status != _abi.IN_PROGRESS:
            self._readiness.is_over = True
        return status

    def _is_idle(self) -> bool:
        """Whether its engine may release it at its close."""
        return True

    def __enter__(self: _Kind) -> _Kind:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.release()

    def __del__(self) -> None:
        if not getattr(self, "_released", True):
            try:
                self.release()
            except errors.ConvoyError:
                pass

    def __repr__(self) -> str:
        state = "released" if self._released or self._engine.closed else self.result().state
        return "<convoy.%s of request \"%s\", %s>" % (type(self).__name__, self.request, state)


class Sent(Transfer):
    """A send. It ends well when the receiver has loaded and checked the payload."""


class Slot(Transfer):
    """A receive slot of the own pool, RESERVED until a peer has written all its bytes.

    address: in this process, for the peer's raw transfers. offset: in the pool. size: as asked. bytes: of the block.
    slot_id: of a preallocated slot, from 1; 0 = none.
    """

    def __init__(self, engine: "Engine", row: _abi.ReservedSlot, request: str, size: int) -> None:
        self.address: int = row.address or 0
        self.offset = row.offset
        self.bytes = row.bytes
        self.slot_id = row.slot_id
        self.size = size
        super().__init__(engine, row.transfer, request)


def _result() -> _abi.TransferResult:
    return _abi.TransferResult(struct_size=sizeof(_abi.TransferResult))


def _error() -> _abi.Error:
    return _abi.Error(struct_size=sizeof(_abi.Error))
