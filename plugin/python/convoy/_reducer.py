# SPDX-License-Identifier: Apache-2.0
"""The hot path of poll reduce: one positional list, everything allocated before."""

from __future__ import annotations

from ctypes import addressof, sizeof
from typing import Any, List, Optional

from convoy import _abi, errors
from convoy._buffers import ENTRIES_MAX, U64_MAX, address_of, integer
from convoy._callbacks import interrupted
from convoy._prepared import Prepared
from convoy._rounds import Rounds


class Reducer(Prepared):
    """A positional reduce of one list with everything allocated before: the hot path.

    Write ``count`` states into ``states`` and call it; ``result`` then has as many. Both are memoryviews of one byte per
    state. No object is made per call but the numbers that Python itself makes, and a token.
    """

    SLOTS = "poll", "reduce", "reduce_wait"

    def __init__(self, rounds: Rounds, capacity: int) -> None:
        self.capacity = capacity = integer(capacity, "capacity", 0, ENTRIES_MAX)
        self._is_stamped = False  # whether there is a tag or a digest
        self._place = 0, 0  # address and count of the tensor that the structs point to
        self._memory = bytearray(max(1, capacity)), bytearray(max(1, capacity))
        self.states = memoryview(self._memory[0])
        self.result = memoryview(self._memory[1])
        self._list = _abi.PollList(states=address_of(self._memory[0]), count=capacity)
        self._out = _abi.PollListResult(states=address_of(self._memory[1]), states_capacity=capacity)
        self._call = _abi.PollCall(struct_size=sizeof(_abi.PollCall), lists=addressof(self._list), list_count=1,
                                   list_stride=sizeof(_abi.PollList))
        self._answer = _abi.PollResult(struct_size=sizeof(_abi.PollResult), lists=addressof(self._out), list_capacity=1,
                                       list_stride=sizeof(_abi.PollListResult), report=rounds.report_address)
        super().__init__(rounds, self._call, self._answer)

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
            if not 0 <= count <= self.capacity:
                raise errors.InvalidArgument("count is %r; this reducer takes 0 to %d states" % (count, self.capacity))
            self._list.count = count
            if timeout is not None:
                return self.run(timeout)
            status = self._ready()
            if status or interrupted:
                self._finish(status, rounds._timeout_ns)
        except BaseException as failure:
            self._is_left(failure, me)
            raise
        finally:
            if rounds.owner is me:
                rounds.owner = None

    def round_of(self, states: Any, count: int, timeout: Optional[float], tag: int, digest: int) -> List[int]:
        """Fills, calls and reads in one turn, so that no other thread writes in between. Raises ValueError when the states
        are not ``count`` bytes: nothing was sent."""
        rounds, me = self._rounds, object()
        try:
            with rounds._mutex:
                if rounds.owner is None:
                    rounds.owner = me
            if rounds.owner is not me:
                rounds.refuse()
            self.states[:count] = states
            if tag or digest or self._is_stamped:
                self.tag, self.digest = tag, digest
            self._list.count = count
            self.run(timeout)
            return self.result[:count].tolist()
        except BaseException as failure:
            if self._is_left(failure, me):
                rounds._left_open = lambda left: self.wait_for_result(count, left)
            raise
        finally:
            if rounds.owner is me:
                rounds.owner = None

    def round_at(self, source: int, item_bytes: int, stride: int, target: int, count: int, timeout: Optional[float]) -> None:
        """Reads ``count`` integers at ``source`` and writes as many bytes at ``target``, both the caller's and maybe one.
        Of a reducer that does nothing else."""

        def call() -> None:
            place = (source, count) if source == target else (0, 0)
            if place != self._place or place == (0, 0):
                self._list.states, self._list.state_bytes, self._list.state_stride = source or None, item_bytes, stride
                self._out.states, self._out.states_capacity, self._list.count = target or None, count, count
                self._place = place
            self.run(timeout)

        self.turn(call)

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
        self._is_stamped = bool(self._call.tag or self._list.digest)

    @property
    def digest(self) -> int:
        """Digest of the request ids, compared over the members; 0 = none."""
        return self._list.digest

    @digest.setter
    def digest(self, digest: int) -> None:
        self._list.digest = integer(digest, "digest", 0, U64_MAX)
        self._is_stamped = bool(self._call.tag or self._list.digest)

    @property
    def round(self) -> int:
        """Number of the last round; 0 when it did not end well."""
        return self._answer.round
