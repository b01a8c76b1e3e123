# SPDX-License-Identifier: Apache-2.0
"""A group: an ordered list of members, this one's place in it, and the rounds that they make together."""

from __future__ import annotations

import ctypes
import json
from ctypes import addressof, byref, c_int32, c_void_p, sizeof
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from convoy import _abi, errors
from convoy._buffers import Text, nanoseconds
from convoy._build import Build
from convoy._describe import describe
from convoy._rounds import Operation, Rounds
from convoy._wait import Deadline
from convoy.poll import PollCalls, PollFaults
from convoy.reports import Report, ReportBuffer
from convoy.sync import Schema, SyncCalls, schema_of

AllGather = Callable[[bytes], Sequence[bytes]]
STATES = ("", "opening", "ready", "active", "stuck", "broken", "failed", "closing", "closed")


@dataclass(frozen=True)
class GroupInfo:
    """One look at a group."""

    state: str  # one of STATES
    members: int
    index: int
    hosts: int
    lost: int  # members that this epoch goes on without
    wire: int
    epoch: int
    round: int  # last finished one
    segment_bytes: int
    operation: int  # the open one, or 0


@dataclass(frozen=True)
class Reopened:
    """What the survivors agreed on."""

    epoch: int
    next_round: int
    recovered: int  # an operation whose round others had completed; 0 = none
    lost: int


class Group(PollCalls, SyncCalls, Rounds):
    """An open group. Made by ``Context.group``; a context manager.

    One thread at a time may call it (a second one gets Busy); ``cancel``, ``info`` and the descriptions may come from any.
    """

    def __init__(
        self,
        build: Build,
        context: int,
        default_timeout_ns: int,
        name: str,
        members: Union[int, Sequence[int]],
        rank: int,
        rendezvous: Optional[str],
        allgather: Optional[AllGather],
        listener: Optional[int] = None,
        epoch: int = 0,
        open_timeout: Optional[float] = None,
        timeout: Optional[float] = None,
        blob_bytes_max: int = 0,
        call_log_entries: int = 0,
        degrade: bool = False,
        schema: Optional[Schema] = None,
        sync_inner: int = 1,
        sync_slots: int = 0,
        faults: Optional[PollFaults] = None,
    ) -> None:
        ids = list(range(members)) if isinstance(members, int) else [int(m) for m in members]
        timeout_ns = nanoseconds(timeout)
        Rounds.__init__(self, build, name, len(ids), timeout_ns or default_timeout_ns)
        self.members = ids
        self.rank = rank
        keep: List[Any] = []  # what the options point to, until the open has returned
        options = self._options(keep, name, ids, rank, rendezvous, listener, epoch, blob_bytes_max, call_log_entries)
        options.timeout_ns = timeout_ns
        options.open_timeout_ns = nanoseconds(open_timeout, "open_timeout")
        options.critical_flags = _abi.GROUP_DEGRADE if degrade else 0
        options.sync_inner, options.sync_slots = sync_inner, sync_slots
        columns = schema_of(schema, keep)
        if columns is not None:
            options.schema = addressof(columns)
        if faults is not None:
            options.poll_faults = faults.build(keep)
        self._open(context, options, allgather, nanoseconds(open_timeout, "open_timeout") or default_timeout_ns)
        PollCalls.__init__(self)
        SyncCalls.__init__(self, columns, sync_inner, sync_slots, len(ids))

    @staticmethod
    def _options(keep: List[Any], name: str, ids: List[int], rank: int, rendezvous: Optional[str],
                 listener: Optional[int], epoch: int, blob_bytes_max: int, call_log_entries: int) -> _abi.GroupOptions:
        if rank not in ids:
            raise errors.InvalidArgument("rank %d is none of the members of group \"%s\"" % (rank, name))
        if listener is not None and listener not in ids:
            raise errors.InvalidArgument("listener %d is none of the members of group \"%s\"" % (listener, name))
        options = _abi.GroupOptions(struct_size=sizeof(_abi.GroupOptions), own_index=ids.index(rank), own_id=rank)
        name_text, where = Text(name), Text(rendezvous)
        numbers = (c_int32 * len(ids))(*ids)
        keep += [name_text, where, numbers]
        options.name, options.name_length = name_text.address, name_text.length
        options.member_ids, options.member_count = addressof(numbers), len(ids)
        options.rendezvous, options.rendezvous_length = where.address, where.length
        options.listener_index = 0 if listener is None else ids.index(listener)
        options.epoch, options.blob_bytes_max, options.call_log_entries = epoch, blob_bytes_max, call_log_entries
        return options

    def _open(self, context: int, options: _abi.GroupOptions, allgather: Optional[AllGather], timeout_ns: int) -> None:
        core, out = self._build.core, c_void_p()
        gather = _AllGatherCallback(allgather, options.member_count) if allgather is not None else None
        if gather is not None:
            options.allgather = ctypes.cast(gather.function, c_void_p)
        status = core.group_open_start(context, byref(options), byref(out), self._error_ref)
        if gather is not None and gather.failure is not None:
            self._give_up(out)
            raise gather.failure
        self._inner = out.value
        try:
            deadline = Deadline(timeout_ns)
            left = deadline.slice() if status == _abi.OK or status == _abi.IN_PROGRESS else 0
            while left:
                status = core.group_open_wait(out, left, self._error_ref)
                left = deadline.slice() if status == _abi.TIMED_OUT else 0
            if status != _abi.OK:
                raise errors.make(status, self._error)
        except BaseException:
            self._give_up(out)
            raise

    def _give_up(self, out: c_void_p) -> None:
        """Closes what was not opened; its tombstone goes with the context."""
        if out.value is not None:
            self._build.core.group_close(out, 0, None)
        self._inner = None

    # -- looking at it ------------------------------------------------------------------------------------------------

    def info(self) -> GroupInfo:
        """State, sizes, epoch and last round. Never waits; any thread."""
        info = _abi.GroupInfo(struct_size=sizeof(_abi.GroupInfo))
        error = _abi.Error(struct_size=sizeof(_abi.Error))
        status = self._build.core.group_info(self._alive(), byref(info), byref(error))
        if status != _abi.OK:
            raise errors.make(status, error)
        return GroupInfo(STATES[info.state] if info.state < len(STATES) else str(info.state), info.member_count,
                         info.own_index, info.host_count, info.lost_count, info.wire, info.epoch, info.round,
                         info.segment_bytes, info.operation)

    def last_report(self) -> Optional[Report]:
        """The report of the last failed operation, or of the open one as it stands. Any thread."""
        report = ReportBuffer(len(self.members))
        error = _abi.Error(struct_size=sizeof(_abi.Error))
        status = self._build.core.operation_report(self._alive(), byref(report.struct), byref(error))
        if status != _abi.OK:
            raise errors.make(status, error)
        return report.read()

    def _describe(self, topic: int) -> str:
        return describe(self._build.core.group_describe, self._alive(), topic)

    def dump(self) -> Dict[str, Any]:
        """State of every member: connected or not, last rounds. Safe while another thread waits."""
        dump: Dict[str, Any] = json.loads(self._describe(_abi.TOPIC_DUMP))
        return dump

    def stats(self) -> Dict[str, Any]:
        """Counters and latency histograms."""
        stats: Dict[str, Any] = json.loads(self._describe(_abi.TOPIC_STATS))
        return stats

    def call_log(self) -> Any:
        """The last rounds with their inputs and outputs, as the plugin logged them."""
        return json.loads(self._describe(_abi.TOPIC_CALL_LOG))

    # -- its life -----------------------------------------------------------------------------------------------------

    def _alive(self) -> int:
        if self._inner is None:
            raise errors.Closed("group \"%s\" is closed" % self.name)
        return self._inner

    def _dead(self) -> None:
        """Its context has been closed."""
        self._inner = None

    def cancel(self, reason: str = "canceled by the host") -> None:
        """Ends the wait of this member, now or the next one, with Canceled. Local; the operation stays open. Any thread."""
        text, error = Text(reason), _abi.Error(struct_size=sizeof(_abi.Error))
        status = self._build.core.group_cancel(self._alive(), text.address, text.length, byref(error))
        if status != _abi.OK:
            raise errors.make(status, error)

    def abandon(self) -> bool:
        """Gives up on the round that is open (after TimedOut or Canceled). True: it was complete for all, or there was
        none. False: it is sealed, every member gets Broken, and the group is to be reopened."""
        operation = self.open_operation()
        if operation == 0:
            return True
        return Operation(self, operation, lambda value: 0, lambda value, left: 0, lambda: None).abandon()

    def reopen(self, timeout: Optional[float] = None) -> Reopened:
        """Agrees with the survivors on the next epoch and on who is lost. After Broken and PeerLost.
        Raises Unreachable, TimedOut, Limit. Blocks up to ``timeout`` seconds, without slices: it is short."""
        result = _abi.ReopenResult(struct_size=sizeof(_abi.ReopenResult))
        self.enter()
        try:
            status = self._build.core.group_reopen(self._alive(), nanoseconds(timeout), byref(result), self._error_ref)
            if status != _abi.OK:
                raise self.failure(status)
        finally:
            self.leave()
        return Reopened(result.epoch, result.next_round, result.recovered, result.lost_count)

    def close(self, timeout: Optional[float] = None) -> None:
        """Ends the group for this member; a wait in another thread ends with Closed. Again: no effect.
        Raises DrainTimeout: another thread is still inside a call; close again."""
        if self._inner is None:
            return
        error = _abi.Error(struct_size=sizeof(_abi.Error))
        status = self._build.core.group_close(self._inner, nanoseconds(timeout), byref(error))
        if status != _abi.OK:
            raise errors.make(status, error)
        self._inner = None

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        state = self.info().state if self._inner is not None else "closed"
        return "<convoy.Group \"%s\", rank %d of %d, %s>" % (self.name, self.rank, len(self.members), state)


class _AllGatherCallback:
    """The host's all-gather as the plugin calls it. What it raises is kept and raised by the open."""

    def __init__(self, gather: AllGather, members: int) -> None:
        self.failure: Optional[BaseException] = None
        self._gather = gather
        self._members = members
        self.function = _abi.AllgatherFn(self._call)

    def _call(self, user: Any, mine: Any, size: int, all_out: Any) -> int:
        try:
            parts = self._gather(ctypes.string_at(mine, size))
            if len(parts) != self._members or any(len(part) != size for part in parts):
                raise errors.InvalidArgument("allgather gave %d parts of %s bytes; %d of %d are needed" % (
                    len(parts), sorted({len(part) for part in parts}), self._members, size))
            ctypes.memmove(all_out, b"".join(bytes(part) for part in parts), size * self._members)
        except BaseException as failure:
            self.failure = failure
            return -1
        return 0
