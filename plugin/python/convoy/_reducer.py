# SPDX-License-Identifier: Apache-2.0
"""The hot path of poll reduce: one positional list, everything allocated before."""

from __future__ import annotations

from ctypes import addressof, byref, sizeof
from typing import Optional

from convoy import _abi, errors
from convoy._buffers import address_of
from convoy._rounds import Rounds
from convoy._wait import SLICE_NS


class Reducer:
    """A positional reduce of one list with everything allocated before: the hot path.

    Write ``count`` states into ``states`` and call it; ``result`` then has as many. Both are memoryviews of one byte per
    state. No object is made per call but the numbers that Python itself makes.
    """

    def __init__(self, rounds: Rounds, capacity: int, address_in: int = 0, address_out: int = 0) -> None:
        self._rounds = rounds
        self.capacity = capacity
        self.stamped = False  # whether there is a tag or a digest
        self._memory = bytearray(0 if address_in else max(1, capacity)), bytearray(0 if address_out else max(1, capacity))
        self.states = memoryview(self._memory[0])
        self.result = memoryview(self._memory[1])
        self._list = _abi.PollList(states=address_in or address_of(self._memory[0]), count=capacity)
        self._out = _abi.PollListResult(states=address_out or address_of(self._memory[1]), states_capacity=capacity)
        self._call = _abi.PollCall(struct_size=sizeof(_abi.PollCall), lists=addressof(self._list), list_count=1,
                                   list_stride=sizeof(_abi.PollList))
        self._answer = _abi.PollResult(struct_size=sizeof(_abi.PollResult), lists=addressof(self._out), list_capacity=1,
                                       list_stride=sizeof(_abi.PollListResult), report=rounds.report_address)
        self._answer_ref = byref(self._answer)
        self._reduce = rounds.prepared(rounds._build.poll.reduce, self._call, self._answer)
        self._acquire, self._release = rounds._lock.acquire, rounds._lock.release

    def __call__(self, count: int, timeout: Optional[float] = None) -> None:
        """Makes one round of the first ``count`` states. timeout: seconds, None for the group's.
        Raises Diverged (members bring different counts), TimedOut, PeerLost, PeerFailed, Broken, InvalidArgument."""
        if timeout is not None or count > self.capacity:
            return self._call_slowly(count, timeout)
        if not self._acquire(False):
            self._rounds.enter()
        try:
            self._list.count = count
            status = self._reduce()
            if status:
                self._finish(status, self._rounds._timeout_ns)
        finally:
            self._release()

    def _call_slowly(self, count: int, timeout: Optional[float]) -> None:
        if count > self.capacity:
            raise errors.InvalidArgument("count is %d; this reducer has room for %d states" % (count, self.capacity))
        rounds, timeout_ns = self._rounds, self._rounds.time_of(timeout)
        reduce = rounds._build.poll.reduce
        rounds.enter()
        try:
            self._list.count = count
            status = reduce(rounds._inner, byref(self._call), min(SLICE_NS, timeout_ns), self._answer_ref, rounds._error_ref)
            if status != 0:
                self._finish(status, timeout_ns)
        finally:
            rounds.leave()

    def _finish(self, status: int, timeout_ns: int) -> None:
        rounds = self._rounds
        operation = rounds.open_operation() if status == _abi.TIMED_OUT else 0

        def wait(left: int) -> int:
            return rounds._build.poll.reduce_wait(rounds._inner, operation, left, self._answer_ref, rounds._error_ref)

        rounds.finish(status, wait, timeout_ns)

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits on for a round that a call left open (TimedOut, Canceled, KeyboardInterrupt)."""
        rounds = self._rounds
        timeout_ns = rounds.time_of(timeout)
        rounds.enter()
        try:
            operation = rounds.open_operation()
            poll = rounds._build.poll

            def wait(left: int) -> int:
                return poll.reduce_wait(rounds._inner, operation, left, self._answer_ref, rounds._error_ref)

            status = wait(min(SLICE_NS, timeout_ns))
            if status != _abi.OK:
                rounds.finish(status, wait, timeout_ns)
        finally:
            rounds.leave()

    def stamp(self, tag: int, digest: int) -> None:
        """Sets what the members compare beside the count."""
        self._call.tag, self._list.digest = tag, digest
        self.stamped = tag != 0 or digest != 0

    def aim(self, address_in: int, item_bytes: int, stride: int, address_out: int, capacity: int) -> None:
        """Reads integers of ``item_bytes`` at another place, and writes bytes to another one, from the next call on.
        Both places are the caller's and may be one."""
        self._list.states, self._list.state_bytes, self._list.state_stride = address_in or None, item_bytes, stride
        self._out.states, self._out.states_capacity = address_out or None, capacity
        self.capacity = capacity

    @property
    def tag(self) -> int:
        """Step number, compared over the members; 0 = none."""
        return self._call.tag

    @tag.setter
    def tag(self, tag: int) -> None:
        self.stamp(tag, self._list.digest)

    @property
    def digest(self) -> int:
        """Digest of the request ids, compared over the members; 0 = none."""
        return self._list.digest

    @digest.setter
    def digest(self, digest: int) -> None:
        self.stamp(self._call.tag, digest)

    @property
    def round(self) -> int:
        """Number of the last round that ended well."""
        return self._answer.round
