# SPDX-License-Identifier: Apache-2.0
"""The hot path of poll reduce: one positional list, everything allocated before."""

from __future__ import annotations

from ctypes import addressof, byref, sizeof
from typing import Any, Callable, List, Optional

from convoy import _abi, errors
from convoy._buffers import ENTRIES_MAX, U64_MAX, address_of, integer
from convoy._callbacks import interrupted
from convoy._rounds import Rounds
from convoy._wait import SLICE_NS


class Reducer:
    """A positional reduce of one list with everything allocated before: the hot path.

    Write ``count`` states into ``states`` and call it; ``result`` then has as many. Both are memoryviews of one byte per
    state. No object is made per call but the numbers that Python itself makes.
    """

    def __init__(self, rounds: Rounds, capacity: int, address_in: int = 0, address_out: int = 0) -> None:
        self._rounds = rounds
        self._operation = 0  # the last one that was left open
        self.capacity = capacity = integer(capacity, "capacity", 0, ENTRIES_MAX)
        self._memory = bytearray(0 if address_in else max(1, capacity)), bytearray(0 if address_out else max(1, capacity))
        self.states = memoryview(self._memory[0])
        self.result = memoryview(self._memory[1])
        self._list = _abi.PollList(states=address_in or address_of(self._memory[0]), count=capacity)
        self._out = _abi.PollListResult(states=address_out or address_of(self._memory[1]), states_capacity=capacity)
        self._call = _abi.PollCall(struct_size=sizeof(_abi.PollCall), lists=addressof(self._list), list_count=1,
                                   list_stride=sizeof(_abi.PollList))
        self._answer = _abi.PollResult(struct_size=sizeof(_abi.PollResult), lists=addressof(self._out), list_capacity=1,
                                       list_stride=sizeof(_abi.PollListResult), report=rounds.report_address)
        self._call_ref, self._answer_ref = byref(self._call), byref(self._answer)
        self._first = rounds.first_slice
        self._reduce = rounds._build.poll.reduce

    def __call__(self, count: int, timeout: Optional[float] = None) -> None:
        """Makes one round of the first ``count`` states. timeout: seconds, None for the group's.
        Raises Diverged (members bring different counts), TimedOut, PeerLost, PeerFailed, Broken, InvalidArgument."""
        rounds, me = self._rounds, object()
        try:
            with rounds._mutex:
                if rounds.owner is None:
                    rounds.owner = me
            if rounds.owner is not me:
                rounds.refuse()
            if timeout is not None or not 0 <= count <= self.capacity:
                return self._call_slowly(count, timeout)
            self._list.count = count
            status = self._reduce(rounds._inner, self._call_ref, self._first, self._answer_ref, rounds._error_ref)
            if status != 0 or interrupted:
                self._finish(status, rounds._timeout_ns)
        except BaseException as failure:
            self._is_left(failure, me)
            raise
        finally:
            if rounds.owner is me:
                rounds.owner = None

    def _call_slowly(self, count: int, timeout: Optional[float]) -> None:
        if not 0 <= count <= self.capacity:
            raise errors.InvalidArgument("count is %r; this reducer takes 0 to %d states" % (count, self.capacity))
        rounds, timeout_ns = self._rounds, self._rounds.time_of(timeout)
        self._list.count, first = count, min(SLICE_NS, timeout_ns)
        status = self._reduce(rounds._inner, self._call_ref, first, self._answer_ref, rounds._error_ref)
        if status != 0 or interrupted:
            self._finish(status, timeout_ns)

    def round_of(self, states: Any, count: int, timeout: Optional[float], tag: int, digest: int) -> List[int]:
        """Fills, calls and reads in one turn, so that no other thread writes in between. Raises ValueError when the states
        are not ``count`` bytes: nothing was sent."""
        rounds, me = self._rounds, object()
        try:
            rounds.enter(me)
            self.states[:count] = states
            if tag != self._call.tag:
                self.tag = tag
            if digest != self._list.digest:
                self.digest = digest
            if timeout is not None:
                self._call_slowly(count, timeout)
            else:
                self._list.count = count
                status = self._reduce(rounds._inner, self._call_ref, self._first, self._answer_ref, rounds._error_ref)
                if status != 0 or interrupted:
                    self._finish(status, rounds._timeout_ns)
            return self.result[:count].tolist()
        except BaseException as failure:
            if self._is_left(failure, me):
                rounds._left_open = lambda left: self.wait_for_result(count, left)
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
            if rounds.has_ended(self._answer.round):
                return True
            operation = rounds.open_operation()
        except errors.ConvoyError:  # closed meanwhile; what came first is what is raised
            return False
        if operation == 0 or operation == rounds._known:  # of another call, for which this one was Busy
            return False
        self._operation = rounds._known = operation
        return True

    def _wait_for(self, operation: int) -> Callable[[int], int]:
        rounds, reduce_wait = self._rounds, self._rounds._build.poll.reduce_wait
        return lambda left: reduce_wait(rounds._inner, operation, left, self._answer_ref, rounds._error_ref)

    def _finish(self, status: int, timeout_ns: int) -> None:
        if status == _abi.TIMED_OUT or status == _abi.CANCELED:
            self._operation = self._rounds._known = self._rounds.open_operation()
        self._end(status, self._wait_for(self._operation), timeout_ns)

    def _end(self, status: int, wait: Callable[[int], int], timeout_ns: int) -> None:
        try:
            self._rounds.finish(status, wait, timeout_ns)
        except errors.ConvoyError:
            self._answer.round = 0
            raise

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits on for a round that a call left open (TimedOut, Canceled, KeyboardInterrupt); ``result`` has it then.
        Raises as the call does, and Closed when nothing is open and another round was the last."""
        timeout_ns = self._rounds.time_of(timeout)
        self._rounds.alone(lambda: self._wait_alone(timeout_ns))

    def _wait_alone(self, timeout_ns: int) -> None:
        if not self._rounds.has_ended(self._answer.round):
            wait = self._wait_for(self._operation)
            self._end(wait(min(SLICE_NS, timeout_ns)), wait, timeout_ns)

    def wait_for_result(self, count: int, timeout: Optional[float]) -> List[int]:
        """As wait(); returns the result of a round of ``count`` states."""
        timeout_ns = self._rounds.time_of(timeout)

        def alone() -> List[int]:
            self._wait_alone(timeout_ns)
            return self.result[:count].tolist()

        return self._rounds.alone(alone)

    @property
    def tag(self) -> int:
        """Step number, compared over the members; 0 = none."""
        return self._call.tag

    @tag.setter
    def tag(self, tag: int) -> None:
        self._call.tag = integer(tag, "tag", 0, U64_MAX)

    @property
    def digest(self) -> int:
        """Digest of the request ids, compared over the members; 0 = none."""
        return self._list.digest

    @digest.setter
    def digest(self, digest: int) -> None:
        self._list.digest = integer(digest, "digest", 0, U64_MAX)

    @property
    def round(self) -> int:
        """Number of the last round; 0 when it did not end well."""
        return self._answer.round
