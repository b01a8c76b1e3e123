# SPDX-License-Identifier: Apache-2.0
"""A group: an ordered list of members, this one's place in it, and the rounds that they make together."""

from __future__ import annotations

import ctypes
import json
import time
from ctypes import addressof, byref, c_int32, c_void_p, sizeof
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, TypeVar, Union

from convoy import _abi, _callbacks, errors
from convoy._allgather import AllGather, AllGatherCallback
from convoy._bound import Left
from convoy._buffers import I32_MAX, U32_MAX, U64_MAX, Text, integer, nanoseconds
from convoy._build import Build
from convoy._describe import read_bytes
from convoy._life import Life, Turn
from convoy._rounds import Rounds, abandon
from convoy._wait import Deadline
from convoy.poll import PollCalls, PollFaults
from convoy.reports import Report, ReportBuffer
from convoy.sync import Schema, SyncCalls, schema_of

MEMBERS_MAX = 1024
_RETIRE_S = 0.2
T = TypeVar("T")
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
        context: Any,
        build: Build,
        life: Life,
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
        _callbacks.refuse_inside("group \"%s\": open" % name)
        ids = _ids(members)
        timeout_ns = nanoseconds(timeout)
        self._context = context  # a group keeps its context open
        self._life = life
        self._closer = Turn()
        Rounds.__init__(self, build, life.gate, name, len(ids), timeout_ns or default_timeout_ns)
        self.members = ids
        self.rank = rank
        keep: List[Any] = []  # what the options point to, until the open has returned
        options = self._options(keep, name, ids, rank, rendezvous, listener, epoch, blob_bytes_max, call_log_entries)
        options.timeout_ns = timeout_ns
        options.open_timeout_ns = nanoseconds(open_timeout, "open_timeout")
        options.critical_flags = _abi.GROUP_DEGRADE if degrade else 0
        options.sync_inner = integer(sync_inner, "sync_inner", 0, U32_MAX)
        options.sync_slots = integer(sync_slots, "sync_slots", 0, U32_MAX)
        columns = schema_of(schema, keep)
        if columns is not None:
            options.schema = addressof(columns)
        if faults is not None:
            if not isinstance(faults, PollFaults):
                raise errors.InvalidArgument("faults is %r; PollFaults are needed" % (faults,))
            options.poll_faults = faults.build(keep)
        PollCalls.__init__(self)
        SyncCalls.__init__(self, columns, sync_inner, sync_slots, len(ids))
        self._open(options, allgather, nanoseconds(open_timeout, "open_timeout") or default_timeout_ns)

    @staticmethod
    def _options(keep: List[Any], name: str, ids: List[int], rank: int, rendezvous: Optional[str],
                 listener: Optional[int], epoch: int, blob_bytes_max: int, call_log_entries: int) -> _abi.GroupOptions:
        if rank not in ids:
            raise errors.InvalidArgument("rank %r is none of the members of group \"%s\"" % (rank, name))
        if listener is not None and listener not in ids:
            raise errors.InvalidArgument("listener %r is none of the members of group \"%s\"" % (listener, name))
        options = _abi.GroupOptions(struct_size=sizeof(_abi.GroupOptions), own_index=ids.index(rank), own_id=int(rank))
        name_text, where = Text(name), Text(rendezvous)
        numbers = (c_int32 * len(ids))(*ids)
        keep += [name_text, where, numbers]
        options.name, options.name_length = name_text.address, name_text.length
        options.member_ids, options.member_count = addressof(numbers), len(ids)
        options.rendezvous, options.rendezvous_length = where.address, where.length
        options.listener_index = 0 if listener is None else ids.index(listener)
        options.epoch = integer(epoch, "epoch", 0, U64_MAX)
        options.blob_bytes_max = integer(blob_bytes_max, "blob_bytes_max", 0, U32_MAX)
        options.call_log_entries = integer(call_log_entries, "call_log_entries", 0, U32_MAX)
        return options

    def _open(self, options: _abi.GroupOptions, allgather: Optional[AllGather], timeout_ns: int) -> None:
        life, where, error = self._life, byref(options), self._error_ref
        gather = AllGatherCallback(allgather, options.member_count) if allgather is not None else None
        if gather is not None:
            options.allgather = ctypes.cast(gather.function, c_void_p)
        try:
            deadline = Deadline(timeout_ns)
            life.begin_open(self)
            status = life.call(lambda: self._open_start(where))
            if gather is not None and gather.failure is not None:
                raise gather.failure
            left = deadline.slice() if status == _abi.OK or status == _abi.IN_PROGRESS else 0
            while left:
                status = life.call(lambda: self.use("core", "group_open_wait", left, error))
                left = deadline.slice() if status == _abi.TIMED_OUT else 0
            if status != _abi.OK:
                raise errors.make(status, self._error, is_reused=True)
            life.adopt(self, lambda: None)
        except BaseException:
            self._give_up()
            raise
        finally:
            life.end_open(self)

    def _open_start(self, options: Any) -> int:
        life = self._life

        def once() -> int:
            context = life.bound
            if self._build is not context.build:
                self.rebind(context.build, None)
            out = byref(self.bound.handle)
            status: int = context.build.core.group_open_start(context.handle, options, out, self._error_ref)
            return status

        status = once()
        return life.gate.again(once) if status == _abi.MOVED else status

    def _give_up(self) -> None:
        """Closes what was not opened; its tombstone goes with the context."""
        if self._inner is not None:
            try:
                self._life.call(lambda: self.use("core", "group_close", 0, None))
            except errors.Closed:  # the context is closing, and ends it
                pass
        self._empty()

    # -- looking at it ------------------------------------------------------------------------------------------------

    def _anywhere(self, function: Callable[[], T]) -> T:
        """Calls a function that passes the handle and may run on any thread."""
        if self._inner is None:
            raise errors.Closed("group \"%s\" is closed" % self.name)
        return self._life.call(function)

    def _raise(self, status: int, error: _abi.Error) -> None:
        if status != _abi.OK:
            raise errors.make(status, error) if self._inner is not None else errors.Closed("group \"%s\" is closed" % self.name)

    def info(self) -> GroupInfo:
        """State, sizes, epoch and last round. Never waits; any thread."""
        info, error = _abi.GroupInfo(struct_size=sizeof(_abi.GroupInfo)), _abi.Error(struct_size=sizeof(_abi.Error))
        where, words = byref(info), byref(error)
        self._raise(self._anywhere(lambda: self.use("core", "group_info", where, words)), error)
        return GroupInfo(STATES[info.state] if info.state < len(STATES) else str(info.state), info.member_count,
                         info.own_index, info.host_count, info.lost_count, info.wire, info.epoch, info.round,
                         info.segment_bytes, info.operation)

    def last_report(self) -> Optional[Report]:
        """The report of the last failed operation, or of the open one as it stands. Any thread."""
        report, error = ReportBuffer(len(self.members)), _abi.Error(struct_size=sizeof(_abi.Error))
        where, words = byref(report.struct), byref(error)
        self._raise(self._anywhere(lambda: self.use("core", "operation_report", where, words)), error)
        return report.read()

    def _describe(self, topic: int) -> str:
        def describe_it(buffer: Any, error: Any) -> int:
            return self.use("core", "group_describe", topic, buffer, error)

        return self._anywhere(lambda: read_bytes(describe_it)).decode("utf-8", "replace")

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

    def cancel(self, reason: str = "canceled by the host") -> None:
        """Ends the wait of this member, now or the next one, with Canceled. Local; the operation stays open. Any thread."""
        text, error = Text(reason), _abi.Error(struct_size=sizeof(_abi.Error))
        address, length, words = text.address, text.length, byref(error)
        self._raise(self._anywhere(lambda: self.use("core", "group_cancel", address, length, words)), error)

    def abandon(self) -> bool:
        """Gives up on the round that is open (after TimedOut or Canceled). True: it was complete for all, or there was
        none. False: it is sealed, every member gets Broken, and the group is to be reopened."""
        def alone() -> bool:
            operation = self.open_operation()
            return operation == 0 or abandon(self, operation)

        return self.alone(alone)

    def reopen(self, timeout: Optional[float] = None) -> Reopened:
        """Agrees with the survivors on the next epoch and on who is lost. After Broken and PeerLost.
        Raises Unreachable, TimedOut, Limit. Blocks up to ``timeout`` seconds, without slices: it is short."""
        result, time_ns = _abi.ReopenResult(struct_size=sizeof(_abi.ReopenResult)), nanoseconds(timeout)
        where = byref(result)
        left = Left(time_ns) if time_ns else 0

        def alone() -> None:
            status = self.use("core", "group_reopen", left, where, self._error_ref)
            if status != _abi.OK:
                raise self.failure(status)

        self.alone(alone)
        return Reopened(result.epoch, result.next_round, result.recovered, result.lost_count)

    def close(self, timeout: Optional[float] = None) -> None:
        """Ends the group for this member; a wait in another thread ends with Closed. Again: no effect.
        Raises DrainTimeout: another thread is still inside a call; close again. Busy: from within a callback of a call."""
        time_ns = nanoseconds(timeout)
        _callbacks.refuse_inside("group \"%s\": close" % self.name)
        if self._inner is None or self._life.forked:
            return
        me = object()
        try:
            self._closer.take_until(me, time.monotonic() + (time_ns or self._timeout_ns) / 1e9, "group \"%s\"" % self.name)
            if self._inner is not None:
                self._life.call(lambda: self._close_it(time_ns))
        finally:
            if self._closer.owner is me:
                self._closer.owner = None
        self._life.leave(self)

    def _close_it(self, time_ns: int) -> None:
        error = _abi.Error(struct_size=sizeof(_abi.Error))
        words = byref(error)
        status = self.use("core", "group_close", Left(time_ns) if time_ns else 0, words)
        if status != _abi.OK:
            raise errors.make(status, error)
        self._empty()

    # -- what its context asks of it ----------------------------------------------------------------------------------

    def _retire(self, until: float) -> None:
        handle, core = self._inner, self._build.core
        self._empty()
        if handle is None:
            return
        # Ends a wait in another thread. What is left open is closed with the context.
        left = until - time.monotonic()
        core.group_close(handle, max(1, int(min(left, _RETIRE_S) * 1e9)), None)

    def _forked(self) -> None:
        Rounds._forked(self)
        self._closer = Turn()

    def _dead(self) -> None:
        self._empty()

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            state = self.info().state
        except errors.ConvoyError:
            state = "closed"
        return "<convoy.Group \"%s\", rank %d of %d, %s>" % (self.name, self.rank, len(self.members), state)


def _ids(members: Union[int, Sequence[int]]) -> List[int]:
    """The members' rank numbers."""
    if isinstance(members, int):
        return list(range(integer(members, "members", 1, MEMBERS_MAX)))
    try:
        ids = list(members)
    except TypeError:
        raise errors.InvalidArgument("members is %r; a count or a sequence of ranks is needed" % (members,)) from None
    if not 1 <= len(ids) <= MEMBERS_MAX:
        raise errors.InvalidArgument("members has %d ranks; 1 to %d are allowed" % (len(ids), MEMBERS_MAX))
    return [integer(rank, "a rank of members", 0, I32_MAX) for rank in ids]
