# SPDX-License-Identifier: Apache-2.0
"""The hot path of the sync gather: one row in, the tables out, everything allocated before."""

from __future__ import annotations

import struct
from ctypes import addressof, byref, c_int64, c_uint8, sizeof
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
        self._is_plain = True  # as fill_plain leaves it
        self._pack = struct.Struct("=%dq" % width).pack_into
        self._answer_ref = byref(self.answer)
        self._gather = rounds.prepared(rounds._build.sync.gather, self.call, self.answer)
        self._acquire, self._release = rounds._lock.acquire, rounds._lock.release

    def fill(self, row: Optional[Sequence[int]], active: Optional[Sequence[int]], mask_version: int, tag: int, votes: int,
             world_slot: Optional[int], errors_as_presence: bool, exchange: bool) -> List[Any]:
        """Sets up the next call. What is returned must live until it has started."""
        call, keep = self.call, []
        self._is_plain, call.row = False, None
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

    def fill_plain(self, row: Sequence[int]) -> None:
        """Sets up the next call as one without any of the options; the row is copied. The quick way."""
        if not self._is_plain:
            self.fill(None, None, 0, 0, 0, None, False, False)
            self.call.row, self.call.row_stride = addressof(self._memory[0][0]), 8
            self._is_plain = True
        try:
            self._pack(self.row, 0, *row)
        except struct.error as reason:
            raise errors.InvalidArgument("row must be %d integers of 64 bits: %s" % (self.width, reason)) from None

    def __call__(self, timeout: Optional[float] = None) -> None:
        """Makes one round with ``row``. timeout: seconds, None for the group's. Raises as ``Group.gather``."""
        if timeout is not None:
            return self._call_slowly(timeout)
        if not self._acquire(False):
            self._rounds.enter()
        try:
            status = self._gather()
            if status:
                self._finish(status, self._rounds._timeout_ns)
        finally:
            self._release()

    def _call_slowly(self, timeout: float) -> None:
        rounds, timeout_ns = self._rounds, self._rounds.time_of(timeout)
        gather = rounds._build.sync.gather
        rounds.enter()
        try:
            status = gather(rounds._inner, byref(self.call), min(SLICE_NS, timeout_ns), self._answer_ref, rounds._error_ref)
            if status != _abi.OK:
                self._finish(status, timeout_ns)
        finally:
            rounds.leave()

    def _finish(self, status: int, timeout_ns: int) -> None:
        rounds = self._rounds
        operation = rounds.open_operation() if status == _abi.TIMED_OUT else 0

        def wait(left: int) -> int:
            return rounds._build.sync.gather_wait(rounds._inner, operation, left, self._answer_ref, rounds._error_ref)

        rounds.finish(status, wait, timeout_ns)
