# SPDX-License-Identifier: Apache-2.0
"""A general poll call as the plugin's structs, and its result read back."""

from __future__ import annotations

import ctypes
from ctypes import addressof, c_uint8, sizeof
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Sequence

from convoy import _abi, errors
from convoy._buffers import Text, as_type, integers
from convoy._rounds import Rounds

if TYPE_CHECKING:
    from convoy.poll import PollList


class PollCapture:
    """A general poll call as structs; holds all that they point to until the call has ended."""

    def __init__(self, rounds: Rounds, lists: Sequence[PollList], tag: int, votes: int, post_error: int,
                 error_row: Optional[int]) -> None:
        self._keep: List[Any] = []
        self.failure: Optional[BaseException] = None
        self.lists = (_abi.PollList * max(1, len(lists)))()
        self.results = (_abi.PollListResult * max(1, len(lists)))()
        for row, out, given in zip(self.lists, self.results, lists):
            self._fill(row, given)
            self._room(row, out, given)
        self.call = _abi.PollCall(struct_size=sizeof(_abi.PollCall), lists=addressof(self.lists), list_count=len(lists),
                                  list_stride=sizeof(_abi.PollList), tag=tag, votes=votes)
        if error_row is not None:
            self.call.critical_flags, self.call.error_reason = _abi.CALL_ERROR_ROW, error_row
        elif post_error:
            self.call.hint_flags, self.call.error_reason = _abi.CALL_POST_ERROR, post_error
        self.answer = _abi.PollResult(struct_size=sizeof(_abi.PollResult), lists=addressof(self.results),
                                      list_capacity=len(lists), list_stride=sizeof(_abi.PollListResult),
                                      report=rounds.report_address)

    def _fill(self, row: _abi.PollList, given: PollList) -> None:
        name = Text(given.name)
        self._keep.append(name)
        row.name, row.name_length = name.address, name.length
        if given.states is not None:
            states = integers(given.states, "states")
            self._keep.append(states.owner)
            row.states, row.state_stride, row.state_bytes = states.address or None, states.stride, states.item_bytes
            row.count = states.count
        elif given.count is not None:
            row.count = given.count
        elif given.keys is not None:
            row.count = len(given.keys)
        row.flags = (_abi.POLL_KEYED if given.keyed else 0) | (_abi.POLL_ABSENT_SKIP if given.absent_skip else 0)
        row.digest, row.gate = given.digest, given.gate
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
            self._check_length("stamps", len(given.stamps), row.count)
            stamps = (_abi.PollStamp * max(1, row.count))()
            for stamp, (key, generation) in zip(stamps, given.stamps):
                stamp.key, stamp.generation, stamp.has_generation = key, generation or 0, int(generation is not None)
            self._keep.append(stamps)
            row.stamps = addressof(stamps)
        if given.gate_deadlines is not None:
            row.gate_deadlines_ns = self._array([int(s * 1e9) for s in given.gate_deadlines], "gate_deadlines", "Q", row.count)

    def _array(self, values: Optional[Sequence[int]], what: str, code: str, count: int) -> Optional[int]:
        if values is None:
            return None
        memory = as_type(values, what, code)
        self._check_length(what, memory.count, count)
        self._keep.append(memory.owner)
        return memory.address or None

    @staticmethod
    def _check_length(what: str, length: int, count: int) -> None:
        if length != count:
            raise errors.InvalidArgument("%s has %d entries, the list has %d" % (what, length, count))

    def _callback(self, cls: Any, function: Callable[[int, int], Any]) -> Any:
        def call(user: Any, list_index: int, entry: int) -> int:
            try:
                return int(function(list_index, entry))
            except BaseException as failure:  # it must not pass through the plugin's frames
                self.failure = failure
                return -1

        callback = cls(call)
        self._keep.append(callback)
        return ctypes.cast(callback, ctypes.c_void_p)

    def _room(self, row: _abi.PollList, out: _abi.PollListResult, given: PollList) -> None:
        states = (c_uint8 * max(1, row.count))()
        out.states, out.states_capacity = addressof(states), row.count
        self._keep.append(states)
        if given.keyed:
            self.room_for_outcomes(out, 4 * row.count + 64)

    def grow(self) -> bool:
        """Makes room for outcomes that were cut. True: there were some, and the result is to be asked for again."""
        cut = [out for out in self.results if out.outcomes and out.outcome_count > out.outcome_capacity]
        for out in cut:
            self.room_for_outcomes(out, out.outcome_count)
        return bool(cut)

    def room_for_outcomes(self, out: _abi.PollListResult, capacity: int) -> None:
        outcomes = (_abi.PollOutcome * capacity)()
        out.outcomes, out.outcome_capacity = addressof(outcomes), capacity
        out.outcome_stride = sizeof(_abi.PollOutcome)
        self._keep.append(outcomes)
