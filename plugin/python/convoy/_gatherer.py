# SPDX-License-Identifier: Apache-2.0
"""The hot path of the sync gather: one row in, the tables out, everything allocated before."""

from __future__ import annotations

import struct
from ctypes import addressof, c_int64, c_uint8, sizeof
from typing import Any, Callable, List, Optional, Sequence

from convoy import _abi, errors
from convoy._buffers import I32_MAX, U32_MAX, U64_MAX, as_type, integer, integers
from convoy._callbacks import interrupted
from convoy._prepared import Prepared
from convoy._rounds import Rounds


class Gatherer(Prepared):
    """A gather with everything allocated before.

    Write this rank's row into ``row`` (memoryview of ``width`` int64) and call it; ``table`` [slots x inner x width],
    ``first`` [slots x width] and ``presence`` [slots x inner] are flat memoryviews that the call fills, ``reduced`` are
    structs with ``value`` and ``agreed``.
    """

    SLOTS = "sync", "gather", "gather_wait"

    def __init__(self, rounds: Rounds, slots: int, inner: int, width: int) -> None:
        self.slots, self.inner, self.width = slots, inner, width
        rows: Any = [(c_int64 * n)() for n in (width, slots * inner * width, slots * width)]
        self._memory = rows, (c_uint8 * (slots * inner))()
        self.row, self.table, self.first = (memoryview(m).cast("B").cast("q") for m in rows)
        self.presence = memoryview(self._memory[1]).cast("B")
        self.reduced: Any = (_abi.SyncReduced * width)()
        self._is_plain = True  # as fill_plain leaves it
        self._pack = struct.Struct("=%dq" % width).pack_into
        self.call = _abi.SyncCall(struct_size=sizeof(_abi.SyncCall), row=addressof(rows[0]), slot=_abi.SYNC_SLOT_NONE)
        self.answer = _abi.SyncResult(
            struct_size=sizeof(_abi.SyncResult), table=addressof(rows[1]), table_capacity=len(rows[1]),
            first=addressof(rows[2]), first_capacity=len(rows[2]), reduced=addressof(self.reduced), reduced_capacity=width,
            presence=addressof(self._memory[1]), presence_capacity=slots * inner, report=rounds.report_address)
        super().__init__(rounds, self.call, self.answer)

    def fill(self, row: Optional[Sequence[int]], active: Optional[Sequence[int]], mask_version: int, tag: int, votes: int,
             world_slot: Optional[int], errors_as_presence: bool, exchange: bool) -> List[Any]:
        """Sets up the next call. What is returned must live until it has started. For the owner of the group."""
        call, keep = self.call, []
        self._is_plain, call.row = False, None
        if row is not None:
            values = integers(row, "row", "q")
            if values.item_bytes != 8 or not values.is_signed:
                values = as_type(row, "row", "q")
            if values.count != self.width:
                raise errors.InvalidArgument("row has %d values, the schema has %d columns" % (values.count, self.width))
            keep.append(values.owner)
            call.row, call.row_stride = values.address, values.stride
        call.active, call.active_count = None, 0
        if active is not None:
            try:
                flags = [1 if flag else 0 for flag in active]
            except TypeError:
                raise errors.InvalidArgument("active is %r; one flag for each member is needed" % (active,)) from None
            mask = as_type(flags, "active", "B")
            keep.append(mask.owner)
            call.active, call.active_count = mask.address or None, mask.count
        call.mask_version, call.tag = integer(mask_version, "mask_version", 0, U64_MAX), integer(tag, "tag", 0, U64_MAX)
        call.votes = integer(votes, "votes", 0, U32_MAX)
        call.policy = ((_abi.SYNC_WORLD if world_slot is not None else 0) | (_abi.SYNC_EXCHANGE if exchange else 0) |
                       (_abi.SYNC_ERRORS_AS_PRESENCE if errors_as_presence else 0))
        slot = -1 if world_slot is None else integer(world_slot, "world_slot", -1, I32_MAX)
        call.slot = _abi.SYNC_SLOT_NONE if slot < 0 else slot
        call.critical_flags = call.hint_flags = call.error_reason = 0
        return keep

    def fill_plain(self, row: Sequence[int]) -> None:
        """Sets up the next call as one without any of the options; the row is copied. The quick way. For the owner."""
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
        rounds, me = self._rounds, object()
        try:
            with rounds._mutex:
                if rounds.owner is None:
                    rounds.owner = me
            if rounds.owner is not me:
                rounds.refuse()
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

    def round_into(self, table: int, fill: Callable[[], Any], timeout: Optional[float]) -> None:
        """Fills and calls in one turn, with the table written at an address of the caller's: ``table_capacity`` int64. Of a
        gatherer that does nothing else."""

        def call() -> None:
            keep = fill()
            self.answer.table = table
            self.run(timeout)
            del keep

        self.turn(call)
