# SPDX-License-Identifier: Apache-2.0
"""A general poll call as the plugin's structs, and its result read back."""

from __future__ import annotations

import ctypes
from ctypes import addressof, c_uint8, sizeof
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Sequence

from convoy import _abi, errors
from convoy._buffers import ENTRIES_MAX, I32_MAX, I32_MIN, U32_MAX, U64_MAX, Text, as_type, integer, integers
from convoy._callbacks import run
from convoy._rounds import Rounds

if TYPE_CHECKING:
    from convoy.poll import PollList


def _sequence(given: Any, what: str) -> List[Any]:
    try:
        return list(given)
    except TypeError:
        raise errors.InvalidArgument("%s is %r; a sequence is needed" % (what, given)) from None


def _moment(seconds: float) -> int:
    """A time of time.monotonic() in nanoseconds, 0 = never."""
    try:
        if 0 <= seconds < 2**33:
            return int(seconds * 1e9)
    except TypeError:
        pass
    raise errors.InvalidArgument("gate_deadlines has %r; seconds from 0 up to 2**33 are allowed" % (seconds,))


def _checked(lists: Any) -> List[Any]:
    """The lists of a call, which this module knows by what they have."""
    found = _sequence(lists, "lists")
    for given in found:
        if not hasattr(given, "gate_deadlines"):
            raise errors.InvalidArgument("lists has %r; a sequence of PollList is needed" % (given,))
    return found


class PollCapture:
    """A general poll call as structs; holds what they point to: the inputs until the call has started, the room for
    results as long as it lives."""

    def __init__(self, rounds: Rounds, lists: Sequence[PollList], tag: int, votes: int, post_error: int,
                 error_row: Optional[int]) -> None:
        lists = _checked(lists)
        self._inputs: List[Any] = []
        self._rooms: List[Any] = []
        self.failure: Optional[BaseException] = None
        self.lists = (_abi.PollList * max(1, len(lists)))()
        self.results = (_abi.PollListResult * max(1, len(lists)))()
        for row, out, given in zip(self.lists, self.results, lists):
            self._fill(row, given)
            self._room(row, out, given)
        self.call = _abi.PollCall(struct_size=sizeof(_abi.PollCall), lists=addressof(self.lists), list_count=len(lists),
                                  list_stride=sizeof(_abi.PollList), tag=integer(tag, "tag", 0, U64_MAX),
                                  votes=integer(votes, "votes", 0, U32_MAX))
        self.call.error_reason = integer(post_error if error_row is None else error_row, "reason", I32_MIN, I32_MAX)
        if error_row is not None:
            self.call.critical_flags = _abi.CALL_ERROR_ROW
        elif post_error:
            self.call.hint_flags = _abi.CALL_POST_ERROR
        self.answer = _abi.PollResult(struct_size=sizeof(_abi.PollResult), lists=addressof(self.results),
                                      list_capacity=len(lists), list_stride=sizeof(_abi.PollListResult),
                                      report=rounds.report_address)

    def _fill(self, row: _abi.PollList, given: PollList) -> None:
        name = Text(given.name)
        self._inputs.append(name)
        row.name, row.name_length = name.address, name.length
        if given.states is not None:
            states = integers(given.states, "states")
            self._inputs.append(states.owner)
            row.states, row.state_stride, row.state_bytes = states.address or None, states.stride, states.item_bytes
            row.count = states.count
        elif given.count is not None:
            row.count = integer(given.count, "count", 0, ENTRIES_MAX)
        elif given.keys is not None:
            row.count = integers(given.keys, "keys", "Q").count
        row.flags = (_abi.POLL_KEYED if given.keyed else 0) | (_abi.POLL_ABSENT_SKIP if given.absent_skip else 0)
        row.digest = integer(given.digest, "digest", 0, U64_MAX)
        row.gate = integer(given.gate, "gate", 0, U32_MAX)
        self._fill_entries(row, given)
        if given.advance is not None:
            row.advance = self._callback(_abi.PollAdvanceFn, given.advance)
        if given.read is not None:
            row.read = self._callback(_abi.PollReadFn, given.read)

    def _fill_entries(self, row: _abi.PollList, given: PollList) -> None:
        row.keys = self._array(given.keys, "keys", "Q", row.count)
        row.generations = self._array(given.generations, "generations", "I", row.count)
        row.entry_flags = self._array(given.entry_flags, "entry_flags", "B", row.count)
        if given.stamps is not None:
            pairs = _sequence(given.stamps, "stamps")
            self._check_length("stamps", len(pairs), row.count)
            stamps = (_abi.PollStamp * max(1, row.count))()
            for stamp, pair in zip(stamps, pairs):
                if not isinstance(pair, (tuple, list)) or not 1 <= len(pair) <= 2:
                    raise errors.InvalidArgument("stamps has %r; Stamp is needed" % (pair,))
                key, generation = pair[0], pair[1] if len(pair) == 2 else None
                stamp.key, stamp.has_generation = integer(key, "key of a stamp", 0, U64_MAX), int(generation is not None)
                stamp.generation = integer(generation or 0, "generation of a stamp", 0, U32_MAX)
            self._inputs.append(stamps)
            row.stamps = addressof(stamps)
        if given.gate_deadlines is not None:
            moments = [_moment(seconds) for seconds in _sequence(given.gate_deadlines, "gate_deadlines")]
            row.gate_deadlines_ns = self._array(moments, "gate_deadlines", "Q", row.count)

    def _array(self, values: Optional[Sequence[int]], what: str, code: str, count: int) -> Optional[int]:
        if values is None:
            return None
        memory = as_type(values, what, code)
        self._check_length(what, memory.count, count)
        self._inputs.append(memory.owner)
        return memory.address or None

    @staticmethod
    def _check_length(what: str, length: int, count: int) -> None:
        if length != count:
            raise errors.InvalidArgument("%s has %d entries, the list has %d" % (what, length, count))

    def _callback(self, cls: Any, function: Callable[[int, int], Any]) -> Any:
        def call(user: Any, list_index: int, entry: int) -> int:
            try:
                ask: Callable[[], Any] = lambda: function(list_index, entry)
                number = int(run(ask))
                return number if I32_MIN <= number <= I32_MAX else I32_MAX  # neither is allowed; the plugin says so
            except BaseException as failure:  # it must not pass through the plugin's frames
                self.failure = failure
                return -1

        callback = cls(call)
        self._inputs.append(callback)
        return ctypes.cast(callback, ctypes.c_void_p)

    def _room(self, row: _abi.PollList, out: _abi.PollListResult, given: PollList) -> None:
        states = (c_uint8 * max(1, row.count))()
        out.states, out.states_capacity = addressof(states), row.count
        self._rooms.append(states)
        if given.keyed:
            self.room_for_outcomes(out, 4 * row.count + 64)

    def started(self) -> None:
        """The plugin has captured the inputs, or refused them: the caller's memory is its own again."""
        self._inputs.clear()

    def grow(self) -> bool:
        """Makes room for outcomes that were cut. True: there were some, and the result is to be asked for again."""
        cut = [out for out in self.results if out.outcomes and out.outcome_count > out.outcome_capacity]
        for out in cut:
            self.room_for_outcomes(out, out.outcome_count)
        return bool(cut)

    def room_for_outcomes(self, out: _abi.PollListResult, capacity: int) -> None:
        """Gives a result room for this many outcomes."""
        outcomes = (_abi.PollOutcome * capacity)()
        out.outcomes, out.outcome_capacity = addressof(outcomes), capacity
        out.outcome_stride = sizeof(_abi.PollOutcome)
        self._rooms.append(outcomes)
