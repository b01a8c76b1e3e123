# SPDX-License-Identifier: Apache-2.0
"""Poll reduce: MIN of request states over the members of a group.

States are 0 Failed, 1 Bootstrapping, 2 WaitingForInput, 3 Transferring, 4 Success. MIN means "least advanced": nobody
commits ahead of its peers, and a failure on any member reaches all.
"""

from __future__ import annotations

import ctypes
from ctypes import addressof, byref, c_uint64, sizeof
from dataclasses import dataclass
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

from convoy import _abi, errors
from convoy._buffers import U32_MAX, U64_MAX, as_type, integer, is_tensor
from convoy._build import Build
from convoy._capture import PollCapture
from convoy._reducer import Reducer
from convoy._rounds import Operation, Rounds

FAILED = _abi.STATE_FAILED
BOOTSTRAPPING = _abi.STATE_BOOTSTRAPPING
WAITING_FOR_INPUT = _abi.STATE_WAITING_FOR_INPUT
TRANSFERRING = _abi.STATE_TRANSFERRING
SUCCESS = _abi.STATE_SUCCESS

GATE_NONE = _abi.GATE_NONE
GATE_IDENTITY = _abi.GATE_IDENTITY
GATE_HOST = _abi.GATE_HOST


class Stamp(NamedTuple):
    """What a writer left beside a payload. key 0: not written yet; generation None: compared by key alone."""

    key: int
    generation: Optional[int] = None


class Outcome(NamedTuple):
    """One identity of a keyed list; the sorted list is the same on all members."""

    key: int
    generation: int
    state: int
    listed_by: int  # members that list it in this round
    decided: bool  # it had ended before; this listing did not count


@dataclass
class PollList:
    """One list of requests for ``Group.poll``. Sequences are copied or read in place at the call, never later.

    states: one per entry, 0..4 (list, bytes, array, numpy or torch integers of 1, 4 or 8 bytes); None with ``read``.
    keys: 64-bit request ids. ``keyed`` matches entries by (key, generation) instead of by position.
    digest: of the request ids, for positional lists; 0 = none. entry_flags: ENTRY_STAGED, ENTRY_DONE, ENTRY_GATE_SKIP bits.
    gate: GATE_NONE, GATE_IDENTITY (needs keys), GATE_HOST; with ``stamps``, one per entry; ``gate_deadlines``: seconds of
    time.monotonic() after which a foreign stamp is Failed, 0 = never.
    advance(list, entry) -> bool: advances staging of an entry, True when it is done. read(list, entry) -> state.
    """

    states: Any = None
    keys: Optional[Sequence[int]] = None
    generations: Optional[Sequence[int]] = None
    keyed: bool = False
    absent_skip: bool = False
    digest: int = 0
    entry_flags: Optional[Sequence[int]] = None
    gate: int = GATE_NONE
    stamps: Optional[Sequence[Stamp]] = None
    gate_deadlines: Optional[Sequence[float]] = None
    advance: Optional[Callable[[int, int], bool]] = None
    read: Optional[Callable[[int, int], int]] = None
    count: Optional[int] = None  # needed with ``read`` and no keys
    name: Optional[str] = None


@dataclass(frozen=True)
class PollListResult:
    """One list's result: ``states`` in this member's own order; ``outcomes`` of a keyed list."""

    states: List[int]
    outcomes: List[Outcome]
    foreign_count: int  # stamps of other requests that this member's gate saw
    injected_count: int
    unknown_count: int  # states of newer peers, taken as Bootstrapping
    demoted_count: int  # Success turned into Transferring by staging or gate


@dataclass(frozen=True)
class PollResult:
    """A round's result."""

    lists: Tuple[PollListResult, ...]
    votes_and: int
    votes_or: int
    round: int
    epoch: int


@dataclass(frozen=True)
class PollFaults:
    """Injected failures, for tests of hosts. probability_ppm: 0 to 1,000,000, drawn per entry from (seed, round, list,
    entry); script: (round, list, entry) that fail."""

    probability_ppm: int = 0
    seed: int = 0
    script: Sequence[Tuple[int, int, int]] = ()

    def build(self, keep: List[Any]) -> int:
        """Address of the struct; ``keep`` holds it."""
        script = [_fault(*row) for row in self.script]
        rows = (_abi.PollFault * max(1, len(script)))(*script)
        faults = _abi.PollFaults(struct_size=sizeof(_abi.PollFaults), script_stride=sizeof(_abi.PollFault),
                                 script_count=len(script))
        faults.probability_ppm = integer(self.probability_ppm, "probability_ppm", 0, 1_000_000)
        faults.seed = integer(self.seed, "seed", 0, U64_MAX)
        faults.script = addressof(rows)
        keep += [rows, faults]
        return addressof(faults)


def _fault(round: int, list: int, entry: int) -> _abi.PollFault:
    return _abi.PollFault(integer(round, "round of a fault", 0, U64_MAX), integer(list, "list of a fault", 0, U32_MAX),
                          integer(entry, "entry of a fault", 0, U32_MAX))


class PollCalls(Rounds):
    """The poll calls of a group."""

    def __init__(self) -> None:
        self._reducer = Reducer(self, 64)

    def reducer(self, capacity: int) -> Reducer:
        """A reduce of up to ``capacity`` states with everything allocated before: see Reducer."""
        return Reducer(self, capacity)

    def reduce(self, states: Sequence[int], timeout: Optional[float] = None, tag: int = 0, digest: int = 0) -> List[int]:
        """MIN of each entry over all members; all bring equal counts, and equal digests if any.

        states: one int 0..4 per entry, in the same order on all members; none is legal and takes part. tag: step number,
        compared over the members. timeout: seconds, None for the group's. Raises Diverged (members bring different counts,
        digests or tags: the report names who), TimedOut, PeerLost, PeerFailed, Broken, InvalidArgument (nothing was sent).
        """
        if states.__class__ is not list and is_tensor(states):
            states = _listed(states)  # bytes() takes a tensor of one entry for a length
        data: Optional[bytes] = None
        try:
            count = len(states)
            data = bytes(states)
        except ValueError:  # a state beyond a byte: the plugin's own words say what is allowed
            pass
        except TypeError as reason:
            raise errors.InvalidArgument("states: %s" % reason) from None
        if data is None or len(data) != count:  # integers of more than a byte
            return self.poll([PollList(list(states), digest=digest)], timeout, tag).lists[0].states
        reducer = self._reducer
        if count > reducer.capacity:
            reducer = self._reducer = Reducer(self, 2 * count)
        return reducer.round_of(data, count, timeout, tag, digest)

    def poll_start(self, lists: Sequence[PollList], tag: int = 0, votes: int = 0, post_error: int = 0,
                   error_row: Optional[int] = None) -> Operation:
        """Starts a round of up to eight lists (none: votes only). The result of the operation is a PollResult.

        votes: 32 bits, returned as AND and OR over the members. post_error: when the arguments are refused, tell the peers
        this reason (not 0) at once instead of letting them run into their deadline; ``wait`` of the group then ends that round
        (PeerFailed), as it must before the next. error_row: contribute "no row" with
        this reason; peers get PeerFailed. Raises InvalidArgument, Busy, Limit, Broken, PeerLost.
        """
        operation, start = self._prepared(lists, tag, votes, post_error, error_row)
        return self._begin(operation, start)

    def _prepared(self, lists: Sequence[PollList], tag: int, votes: int, post_error: int,
                  error_row: Optional[int]) -> Tuple[Operation, Callable[[], None]]:
        """An operation and what starts it, so that whoever is interrupted in between has it already."""
        capture = PollCapture(self, lists, tag, votes, post_error, error_row)
        value = c_uint64()
        call, out, answer = byref(capture.call), byref(value), byref(capture.answer)

        def start() -> None:
            status = self.use("poll", "reduce_start", call, out, self._error_ref)
            capture.started()
            if capture.failure is not None:
                raise capture.failure
            if status != _abi.OK:
                raise self.failure(status)

        def result() -> PollResult:
            if capture.grow():
                status = self.use("poll", "reduce_test", value.value, answer, self._error_ref)
                if status != _abi.OK:
                    raise self.failure(status)
            return _read(capture)

        return Operation(self, value, lambda v: self.use("poll", "reduce_test", v, answer, self._error_ref),
                         lambda v, left: self.use("poll", "reduce_wait", v, left, answer, self._error_ref), result), start

    def poll(self, lists: Sequence[PollList], timeout: Optional[float] = None, tag: int = 0, votes: int = 0,
             post_error: int = 0) -> PollResult:
        """A round of up to eight lists: start and wait in one. See ``poll_start``."""
        self.time_of(timeout)  # refused before anything is sent
        operation, start = self._prepared(lists, tag, votes, post_error, None)
        result: PollResult = self._begin(operation, start).wait(timeout)
        return result

    def post_error(self, reason: int, timeout: Optional[float] = None) -> None:
        """Contributes "no row, reason" to the round that the others make, and waits for its end. The others get
        PeerFailed with this reason; here it returns once they have it."""
        self.time_of(timeout)
        operation, start = self._prepared([], 0, 0, 0, reason)
        try:
            self._begin(operation, start).wait(timeout)
        except errors.PeerFailed:
            pass


def _listed(tensor: Any) -> List[int]:
    try:
        states: List[int] = tensor.tolist()
    except (RuntimeError, TypeError) as reason:
        raise errors.InvalidArgument("states: %s" % reason) from None
    return states


def reduce_two_level(first: PollCalls, second: PollCalls, states: Sequence[int], timeout: Optional[float] = None) -> List[int]:
    """MIN over ``first``, then MIN of that over ``second``: exactly one round each, in that order (attention-TP, then
    attention-CP). Statuses as ``Group.reduce``; a failure at the first level is told to the second at once."""
    if first is second:
        raise errors.InvalidArgument("first and second are one group")
    first.time_of(timeout)
    capture = PollCapture(first, [PollList(states)], 0, 0, 0, None)
    value = c_uint64()
    call, out, answer = byref(capture.call), byref(value), byref(capture.answer)

    def start() -> None:
        status = _start_two(first, second, call, out)
        capture.started()
        if status != _abi.OK:
            raise second.failure(status) if second._inner is None else first.failure(status)

    operation = Operation(
        first, value, lambda v: first.use("poll", "reduce2_test", v, answer, first._error_ref),
        lambda v, left: first.use("poll", "reduce2_wait", v, left, answer, first._error_ref), lambda: _read(capture))

    def both() -> PollResult:
        try:
            first.alone(start)
            result: PollResult = operation.wait(timeout)
            return result
        except BaseException:
            # Nobody could wait on for it: the caller does not get the operation. One that is over is not found.
            if value.value and first.owner is None:
                first.alone(lambda: first.use("poll", "reduce2_abandon", value.value, None))
            raise

    return second.alone(both).lists[0].states


def _start_two(first: PollCalls, second: PollCalls, call: Any, out: Any) -> int:
    """Starts a call of two groups. While one of them has gone to another build and the other has not, it is made again:
    pointers of two builds never meet."""
    def once() -> int:
        one, two = first.bound, second.bound
        if one.build is not two.build:
            return _abi.MOVED
        status: int = one.build.poll.reduce2_start(one.handle, two.handle, call, out, first._error_ref)
        return status

    status = once()
    return first.gate.again(once) if status == _abi.MOVED else status


def consensus(build: Build, ids: Sequence[int], good: Sequence[int], bad: Sequence[int],
              success_state: int) -> List[Optional[int]]:
    """See ``Plugin.consensus``."""
    level = integer(success_state, "success_state", 0, U32_MAX)
    arrays = [as_type(values, what, "Q") for values, what in ((ids, "ids"), (good, "good"), (bad, "bad"))]
    question = _abi.PollConsensus(struct_size=sizeof(_abi.PollConsensus), success_state=level)
    question.ids, question.id_count = arrays[0].address or None, arrays[0].count
    question.good, question.good_count = arrays[1].address or None, arrays[1].count
    question.bad, question.bad_count = arrays[2].address or None, arrays[2].count
    states, error = bytearray(max(1, arrays[0].count)), _abi.Error(struct_size=sizeof(_abi.Error))
    out = (ctypes.c_char * len(states)).from_buffer(states)
    status = build.poll.consensus(byref(question), addressof(out), byref(error))
    if status != _abi.OK:
        raise errors.make(status, error)
    return [None if state == _abi.CONSENSUS_NONE else state for state in states[: arrays[0].count]]


def _read(capture: PollCapture) -> PollResult:
    answer = capture.answer
    lists = tuple(_read_list(capture.results[i]) for i in range(capture.call.list_count))
    return PollResult(lists, answer.votes_and, answer.votes_or, answer.round, answer.epoch)


def _read_list(out: _abi.PollListResult) -> PollListResult:
    states = list(ctypes.string_at(out.states, out.states_count)) if out.states_count else []
    count = min(out.outcome_count, out.outcome_capacity)
    rows: Any = (_abi.PollOutcome * count).from_address(out.outcomes) if count else ()
    outcomes = [Outcome(r.key, r.generation, r.state, r.listed_by, bool(r.flags & _abi.OUTCOME_DECIDED)) for r in rows]
    return PollListResult(states, outcomes, out.foreign_count, out.injected_count, out.unknown_count, out.demoted_count)
