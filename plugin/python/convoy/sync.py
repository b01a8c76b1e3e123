# SPDX-License-Identifier: Apache-2.0
"""DP sync gather: one row of 64-bit integers per member and step, with a fallback row for whoever has none.

Members are laid out [dp][inner]: member index = dp rank x inner + position, inner = tp x cp. ``presence`` says whose row is
its own; nothing is guessed from zeros. Outputs never share memory with inputs.
"""

from __future__ import annotations

import ctypes
from ctypes import addressof, byref, c_uint64, sizeof
from dataclasses import dataclass
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple, Union

from convoy import _abi, errors
from convoy._buffers import I32_MAX, I32_MIN, I64_MAX, I64_MIN, Text, as_type, integer
from convoy._build import Build
from convoy._gatherer import Gatherer
from convoy._rounds import Operation, Rounds

PRESENT = _abi.PRESENT
INACTIVE = _abi.PRESENT_INACTIVE
LOST = _abi.PRESENT_LOST
ERROR = _abi.PRESENT_ERROR
EMPTY = _abi.PRESENT_EMPTY

_REDUCTIONS = {"none": _abi.REDUCE_NONE, "min": _abi.REDUCE_MIN, "max": _abi.REDUCE_MAX, "sum": _abi.REDUCE_SUM,
               "all_equal": _abi.REDUCE_ALL_EQUAL}
_WIDTHS = {"sglang-7": 7, "sglang-8": 8}
_REASONS = ("ok", "no capture size is large enough", "over the limit", "all idle")


@dataclass(frozen=True)
class Column:
    """One column of a row: its value for ranks that have no row, and how it is reduced over the data-parallel ranks.

    reduction: "none", "min", "max", "sum" (saturates) or "all_equal" (gives the value and whether all agree; values equal
    to ``ignored`` do not count). optional: an older peer may lack it.
    """

    name: str
    fallback: int = 0
    reduction: str = "none"
    ignored: Optional[int] = None
    optional: bool = False


Schema = Union[str, Sequence[Column]]


class Reduced(NamedTuple):
    """One reduced column. agreed: all counted values are equal ("all_equal"), or a rank is present (the others)."""

    value: int
    agreed: bool


@dataclass(frozen=True)
class GatherResult:
    """A step's result, alike on all members.

    table: [slots][inner][width]; first: [slots][width], the first member of each data-parallel rank; reduced: [width];
    presence: [slots][inner], one of PRESENT, INACTIVE, LOST, ERROR, EMPTY.
    """

    table: List[List[List[int]]]
    first: List[List[int]]
    reduced: List[Reduced]
    presence: List[List[int]]
    votes_and: int
    votes_or: int
    round: int
    epoch: int
    mask_version: int
    mask_skew: int  # members that brought an older mask version


class Padded(NamedTuple):
    """The padded size that all ranks compute alike. extent: per rank (layout "max") or of all ("sum"), 0 when not
    eligible; figure: what was compared; reason: why not; starts, lengths: per rank, lengths unpadded: idle stays idle."""

    extent: int
    figure: int
    eligible: bool
    reason: str
    starts: List[int]
    lengths: List[int]


def schema_of(schema: Optional[Schema], keep: List[Any]) -> Optional[_abi.SyncSchema]:
    """The struct of a schema; ``keep`` holds what it points to."""
    if schema is None:
        return None
    struct = _abi.SyncSchema(struct_size=sizeof(_abi.SyncSchema))
    if isinstance(schema, str):
        name = Text(schema)
        keep.append(name)
        struct.builtin, struct.builtin_length = name.address, name.length
        return struct
    try:
        columns = list(schema)
    except TypeError:
        raise errors.InvalidArgument("schema is %r; a name or a list of Column is needed" % (schema,)) from None
    rows = (_abi.SyncColumn * max(1, len(columns)))()
    for row, column in zip(rows, columns):
        if not isinstance(column, Column):
            raise errors.InvalidArgument("schema has %r; Column is needed" % (column,))
        if not isinstance(column.reduction, str) or column.reduction not in _REDUCTIONS:
            raise errors.InvalidArgument("column \"%s\": reduction is %r; allowed: %s" % (
                column.name, column.reduction, ", ".join(_REDUCTIONS)))
        name = Text(column.name)
        keep.append(name)
        row.name, row.name_length = name.address, name.length
        row.fallback = integer(column.fallback, "fallback", I64_MIN, I64_MAX)
        row.ignored = integer(column.ignored or 0, "ignored", I64_MIN, I64_MAX)
        row.reduction = _REDUCTIONS[column.reduction]
        row.flags = (_abi.COLUMN_HAS_IGNORED if column.ignored is not None else 0) | (
            _abi.COLUMN_OPTIONAL if column.optional else 0)
    keep.append(rows)
    struct.columns, struct.column_count, struct.column_stride = addressof(rows), len(columns), sizeof(_abi.SyncColumn)
    return struct


class SyncCalls(Rounds):
    """The gather calls of a group that was opened with a schema."""

    def __init__(self, schema: Optional[_abi.SyncSchema], inner: int, slots: int, members: int) -> None:
        self.width = 0
        self.inner = max(1, inner)
        self.slots = slots or members // self.inner
        if schema is not None:
            self.width = schema.column_count or _WIDTHS.get(_text(schema.builtin, schema.builtin_length), _abi.SYNC_COLUMNS_MAX)
        self._gatherer: Optional[Gatherer] = None

    def gatherer(self) -> Gatherer:
        """A gather with everything allocated before: see Gatherer."""
        if self.width == 0:
            raise errors.Unsupported("group \"%s\" was opened without a schema" % self.name)
        return Gatherer(self, self.slots, self.inner, self.width)

    def gather(
        self,
        row: Optional[Sequence[int]],
        timeout: Optional[float] = None,
        active: Optional[Sequence[int]] = None,
        mask_version: int = 0,
        tag: int = 0,
        votes: int = 0,
        world_slot: Optional[int] = None,
        errors_as_presence: bool = False,
        exchange: bool = False,
    ) -> GatherResult:
        """Gives every member the rows of all.

        row: one value per column, None = the fallbacks (idle). active: one flag per member, 0 = inactive, None = all; must
        agree, see mask_version: the highest version wins. world_slot: a world gather, where this rank's row goes (-1: it is
        dropped). errors_as_presence: error rows become presence ERROR instead of PeerFailed. exchange: make a round even
        with one data-parallel rank. Policies must agree on all members.
        Raises Diverged (tags, masks, slots or policies contradict each other), TimedOut, PeerLost, PeerFailed, Broken,
        InvalidArgument, Unsupported (no schema).
        """
        self.time_of(timeout)  # refused before anything is sent
        operation, start = self._prepared_gather(row, active, mask_version, tag, votes, world_slot, errors_as_presence,
                                                 exchange, 0, None)
        result: GatherResult = self._begin(operation, start).wait(timeout)
        return result

    def gather_start(
        self,
        row: Optional[Sequence[int]],
        active: Optional[Sequence[int]] = None,
        mask_version: int = 0,
        tag: int = 0,
        votes: int = 0,
        world_slot: Optional[int] = None,
        errors_as_presence: bool = False,
        exchange: bool = False,
        post_error: int = 0,
        error_row: Optional[int] = None,
    ) -> Operation:
        """Starts a gather; the result of the operation is a GatherResult. See ``gather``; post_error and error_row as in
        ``Group.poll_start``."""
        operation, start = self._prepared_gather(row, active, mask_version, tag, votes, world_slot, errors_as_presence,
                                                 exchange, post_error, error_row)
        return self._begin(operation, start)

    def _prepared_gather(self, row: Optional[Sequence[int]], active: Optional[Sequence[int]], mask_version: int, tag: int,
                         votes: int, world_slot: Optional[int], errors_as_presence: bool, exchange: bool, post_error: int,
                         error_row: Optional[int]) -> Tuple[Operation, Callable[[], None]]:
        """An operation and what starts it, so that whoever is interrupted in between has it already."""
        gatherer = self._gatherer
        if gatherer is None:
            gatherer = self._gatherer = self.gatherer()
        used = gatherer
        reason = integer(post_error if error_row is None else error_row, "reason", I32_MIN, I32_MAX)
        value = c_uint64()
        call, out, answer = byref(used.call), byref(value), byref(used.answer)

        def start() -> None:
            keep = used.fill(row, active, mask_version, tag, votes, world_slot, errors_as_presence, exchange)
            used.call.critical_flags = _abi.CALL_ERROR_ROW if error_row is not None else 0
            used.call.hint_flags = _abi.CALL_POST_ERROR if error_row is None and reason else 0
            used.call.error_reason = reason
            status = self.use("sync", "gather_start", call, out, self._error_ref)
            del keep  # captured at the start
            if status != _abi.OK:
                raise self.failure(status)

        return Operation(self, value, lambda v: self.use("sync", "gather_test", v, answer, self._error_ref),
                         lambda v, left: self.use("sync", "gather_wait", v, left, answer, self._error_ref),
                         lambda: _read(used)), start


def _text(address: Any, length: int) -> str:
    return ctypes.string_at(address, length).decode("utf-8") if address else ""


def _read(gatherer: Gatherer) -> GatherResult:
    slots, inner, width, answer = gatherer.slots, gatherer.inner, gatherer.answer.width, gatherer.answer
    flat = gatherer.table.tolist()
    rows = [flat[i * width : (i + 1) * width] for i in range(slots * inner)]
    first = gatherer.first.tolist()
    presence = gatherer.presence.tolist()
    return GatherResult(
        [rows[s * inner : (s + 1) * inner] for s in range(slots)],
        [first[s * width : (s + 1) * width] for s in range(slots)],
        [Reduced(r.value, bool(r.agreed)) for r in gatherer.reduced[:width]],
        [presence[s * inner : (s + 1) * inner] for s in range(slots)],
        answer.votes_and, answer.votes_or, answer.round, answer.epoch, answer.mask_version, answer.mask_skew)


def padded_size(build: Build, tokens: Sequence[int], captures: Optional[Sequence[int]], limit: int, layout: str) -> Padded:
    """See ``Plugin.padded_size``."""
    question, keep = _padding(tokens, captures, limit, layout)
    count = max(1, question.token_count)
    starts, lengths = (ctypes.c_int64 * count)(), (ctypes.c_int64 * count)()
    out = _abi.SyncPadded(struct_size=sizeof(_abi.SyncPadded), starts=addressof(starts), lengths=addressof(lengths),
                          capacity=count)
    error = _abi.Error(struct_size=sizeof(_abi.Error))
    status = build.sync.padded_size(byref(question), byref(out), byref(error))
    if status != _abi.OK:
        raise errors.make(status, error)
    del keep
    reason = _REASONS[out.reason] if out.reason < len(_REASONS) else str(out.reason)
    kept = question.token_count
    return Padded(out.extent, out.figure, bool(out.eligible), reason, list(starts[:kept]), list(lengths[:kept]))


def starts(build: Build, tokens: Sequence[int], extent: int, layout: str) -> List[int]:
    """See ``Plugin.starts``."""
    question, keep = _padding(tokens, None, 0, layout)
    out = (ctypes.c_int64 * max(1, question.token_count))()
    error = _abi.Error(struct_size=sizeof(_abi.Error))
    size = integer(extent, "extent", I64_MIN, I64_MAX)
    status = build.sync.starts(byref(question), size, addressof(out), byref(error))
    if status != _abi.OK:
        raise errors.make(status, error)
    del keep
    return list(out[: question.token_count])


def _padding(tokens: Sequence[int], captures: Optional[Sequence[int]], limit: int,
             layout: str) -> Tuple[_abi.SyncPadding, List[Any]]:
    layouts = {"max": _abi.LAYOUT_MAX, "sum": _abi.LAYOUT_SUM}
    if not isinstance(layout, str) or layout not in layouts:
        raise errors.InvalidArgument("layout is %r; allowed: max, sum" % (layout,))
    counts = as_type(tokens, "tokens", "q")
    question = _abi.SyncPadding(struct_size=sizeof(_abi.SyncPadding), layout=layouts[layout],
                                limit=integer(limit, "limit", I64_MIN, I64_MAX),
                                tokens=counts.address or None, token_count=counts.count)
    keep = [counts.owner]
    if captures is not None:
        sizes = as_type(captures, "captures", "q")
        question.captures, question.capture_count = sizes.address or None, sizes.count
        keep.append(sizes.owner)
    return question, keep
