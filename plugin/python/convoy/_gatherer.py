# SPDX-License-Identifier: Apache-2.0
"""The hot path of the sync gather: one row in, the tables out, everything allocated before."""

from __future__ import annotations

from ctypes import addressof, byref, c_int64, c_uint64, c_uint8, sizeof
from typing import Any, List, Optional, Sequence

from convoy import _abi, errors
from convoy._buffers import as_type, integers
from convoy._rounds import Rounds
from convoy._wait import SLICE_NS


class Gatherer:
    """A gather with everything allocated before.

    Write this rank's row into ``row`` (memoryview of ``width`` int64) and call it; ``table`` [slots x inner x width],
    ``first`` [slots x width] and ``presence`` [slots x inner] are flat memoryviews that the call fills, ``reduced`` are
    structs with ``value`` and ``agreed``.
    """

    def __init__(self, rounds: Rounds, slots: int, inner: int, width: int) -> None:
        self._rounds = rounds
        self.slots, self.inner, self.width = slots, inner, width
        rows: Any = [(c_int64 * n)() for n in (width, slots * inner * width, slots * width)]
        self._memory = rows, (c_uint8 * (slots * inner))()
        self.row, self.table, self.first = (memoryview(m).cast("B").cast("q") for m in rows)
        self.presence = memoryview(self._memory[1]).cast("B")
        self.reduced: Any = (_abi.SyncReduced * width)()
        self.call = _abi.SyncCall(struct_size=sizeof(_abi.SyncCall), row=addressof(rows[0]), slot=_abi.SYNC_SLOT_NONE)
        self.answer = _abi.SyncResult(
            struct_size=sizeof(_abi.SyncResult), table=addressof(rows[1]), table_capacity=len(rows[1]),
            first=addressof(rows[2]), first_capacity=len(rows[2]), reduced=addressof(self.reduced), reduced_capacity=width,
            presence=addressof(self._memory[1]), presence_capacity=slots * inner, report=rounds.report_address)
        self._call_ref, self._answer_ref = byref(self.call), byref(self.answer)
        self._gather = rounds._build.sync.gather

    def fill(self, row: Optional[Sequence[int]], active: Optional[Sequence[int]], mask_version: int, tag: int, votes: int,
             world_slot: Optional[int], errors_as_presence: bool, exchange: bool) -> List[Any]:
        """Sets up the next call. What is returned must live until it has started."""
        call, keep = self.call, []
        call.row = None
        if row is not None:
            values = integers(row, "row", "q")
            if values.item_bytes != 8:
                values = as_type(row, "row", "q")
            if values.count != self.width:
                raise errors.InvalidArgument("row has %d values, the schema has %d columns" % (values.count, self.width))
            keep.append(values.owner)
            call.row, call.row_stride = values.address, values.stride
        call.active, call.active_count = None, 0
        if active is not None:
            mask = as_type([1 if flag else 0 for flag in active], "active", "B")
            keep.append(mask.owner)
            call.active, call.active_count = mask.address or None, mask.count
        call.mask_version, call.tag, call.votes = mask_version, tag, votes
        call.policy = ((_abi.SYNC_WORLD if world_slot is not None else 0) | (_abi.SYNC_EXCHANGE if exchange else 0) |
                       (_abi.SYNC_ERRORS_AS_PRESENCE if errors_as_presence else 0))
        call.slot = _abi.SYNC_SLOT_NONE if world_slot is None or world_slot < 0 else world_slot
        call.critical_flags = call.hint_flags = call.error_reason = 0
        return keep

    def __call__(self, timeout: Optional[float] = None) -> None:
        """Makes one round with ``row``. timeout: seconds, None for the group's. Raises as ``Group.gather``."""
        rounds = self._rounds
        if timeout is None:
            timeout_ns, first = rounds._timeout_ns, rounds.first_slice
        else:
            timeout_ns = rounds.time_of(timeout)
            first = c_uint64(min(SLICE_NS, timeout_ns))
        if not rounds._lock.acquire(False):
            rounds.enter()
        try:
            status = self._gather(rounds._inner, self._call_ref, first, self._answer_ref, rounds._error_ref)
            if status != 0:
                self._finish(status, timeout_ns)
        finally:
            rounds._lock.release()

    def _finish(self, status: int, timeout_ns: int) -> None:
        rounds = self._rounds
        operation = rounds.open_operation() if status == _abi.TIMED_OUT else 0

        def wait(left: int) -> int:
            return rounds._build.sync.gather_wait(rounds._inner, operation, left, self._answer_ref, rounds._error_ref)

        rounds.finish(status, wait, timeout_ns)
