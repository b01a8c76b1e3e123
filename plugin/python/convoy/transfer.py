# SPDX-License-Identifier: Apache-2.0
"""Staged transfer: one request's tensors from role to role, through the pools of engines.

    staged = engine.stage("r1", {"latents": tensor}, {"seed": 7})     # one copy; the tensor's memory is free again
    engine.send(peer, staged)                                         # or hand staged.descriptor() to a broker

    with other.accept() as loaded:                                    # in place, in the sender's pool
        latents = loaded.tensors["latents"].torch()
"""

from __future__ import annotations

import json
import threading
import time
import weakref
from ctypes import addressof, byref, c_size_t, c_uint64, c_void_p, sizeof
from typing import Any, Dict, List, Optional, Sequence, Set

from convoy import _abi, _callbacks, errors
from convoy._bound import Bound, Left
from convoy._build import Build
from convoy._buffers import U32_MAX, U64_MAX, Text, integer, nanoseconds
from convoy._describe import read_bytes
from convoy._engine_options import EngineOptions
from convoy._figures import Answer, Completion, EngineInfo, PoolFigures
from convoy._handles import own
from convoy._holding import Holding, Loaded, Staged
from convoy._life import Life, is_below
from convoy._memory import Memory, memory_of
from convoy._moves import Moves
from convoy._raw import Piece, raw_of
from convoy._requests import admission_of
from convoy._reserve import reserve, sizes_of
from convoy._transfers import STATES, Sent, Slot, Transfer, TransferResult, name_of
from convoy._views import Tensor
from convoy.peers import Peer, PeerInfo

PoolOptions = EngineOptions
_COMPLETIONS = 64
_PAUSE_S = 0.001
_LAST_CALLS = ("release", "transfer_test", "abort")  # of an engine that is closed but for its views


class Engine(Moves):
    """A pool and its peers. Made by ``Context.engine``; a context manager. Any thread may call it.

    While a call waits, other Python threads run. Transfers are waited for in slices, so that Ctrl-C works; connect, query
    and transfer_sync are not, and end within their own timeout.
    """

    def __init__(self, context: Any, life: Life, timeout_ns: int, close_s: float, options: EngineOptions) -> None:
        self.bound = Bound(life.bound.build, c_void_p())
        self._former: List[Bound] = []  # a call of theirs may be under way
        self._gate = life.gate
        self._mutex = threading.RLock()
        self._inside: Set[object] = set()  # tokens of calls that have taken the engine's pointer
        self._timeout_ns, self._close_s = timeout_ns, close_s
        self._has_device = options.device is not None
        self._keep: List[Any] = []  # memory and functions of the caller's, until the close
        self._is_closing = False  # gives out no more views
        self._is_inherited = False  # through fork: it is the parent's
        self._is_left = False  # closed, but for the memory that views of released transfers show
        self._context = context  # an engine keeps its context open
        self._live: "weakref.WeakSet[Transfer]" = weakref.WeakSet()
        self._registered: List[Memory] = []
        struct, error = options.build(self._keep), _error()
        try:
            life.begin_open(self)
            self._check(self._open(life, byref(struct), byref(error)), error)
            self.session = self.info().session
            life.adopt(self, lambda: None)
        except BaseException:
            self._dead()
            raise
        finally:
            life.end_open(self)

    def _open(self, life: Life, options: Any, error: Any) -> int:
        def once() -> int:
            context = life.bound
            self.bound = Bound(context.build, c_void_p())
            status: int = context.build.transfer.engine_open(context.handle, options, byref(self.bound.handle), error)
            return status

        status = once()
        return self._gate.again(once) if status == _abi.MOVED else status

    @property
    def _build(self) -> Build:
        return self.bound.build

    @property
    def _inner(self) -> Optional[int]:
        """The plugin's pointer, None when there is no such engine any more."""
        return self.bound.handle.value

    def rebind(self, build: Build, pointer: int) -> None:
        """Puts another build, and its pointer for this engine, behind this object. At any time: calls on what was bound
        before are told MOVED, and made again."""
        with self._mutex:
            self._former.append(self.bound)
            self.bound = Bound(build, c_void_p(pointer))

    # -- looking at it ------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether it was closed, or its context."""
        return self._inner is None or self._is_left

    def info(self) -> EngineInfo:
        """State, session, pool. Never waits."""
        info, error = _abi.EngineInfo(struct_size=sizeof(_abi.EngineInfo)), _error()
        self._check(self._use("engine_info", byref(info), byref(error)), error)
        return EngineInfo.from_struct(info)

    def figures(self) -> PoolFigures:
        """The pool in bytes and counts. Never waits."""
        figures, error = _abi.EngineFigures(struct_size=sizeof(_abi.EngineFigures)), _error()
        self._check(self._use("pool_figures", byref(figures), byref(error)), error)
        return PoolFigures.from_struct(figures)

    def fits(self, sizes: Sequence[int]) -> None:
        """Returns if slots of these sizes fit together now. Raises PoolExhausted: not now; Limit: never."""
        sizes, error = sizes_of(sizes), _error()
        array = (c_uint64 * max(1, len(sizes)))(*sizes)
        status = self._use("pool_fits", array, len(sizes), byref(error))
        self._check(status, error)

    def resize(self, bytes: int) -> None:
        """Goes on with a new pool of this size. What is staged, loaded or reserved keeps its memory until it is released.
        Raises InvalidArgument, Limit (7 old pools are alive), NoMemory, BadState, Unsupported (memory of the caller's)."""
        error = _error()
        self._check(self._use("pool_resize", integer(bytes, "bytes", 0, U64_MAX), byref(error)), error)

    def set_admission(self, *, under_way_max: int = 0, under_way_bytes: int = 0, peer_under_way_max: int = 0,
                      peer_under_way_bytes: int = 0, waiting_max: int = 0, age: Optional[float] = None) -> None:
        """What may be under way at a time, for all sends from now on; 0 = no limit, as before the first call.

        under_way_max, under_way_bytes: sends of this engine and their payload; peer_under_way_max, peer_under_way_bytes: to
        each peer. Sends without room wait, the highest ``priority`` goes first. waiting_max: one more that would wait is
        refused with Overloaded. age: seconds after which a waiting send gains a step of priority, each time; None = never.
        Never waits. Raises InvalidArgument, Unsupported (a plugin before transfer 1.1), Closed.
        """
        limits, error = admission_of(under_way_max, under_way_bytes, peer_under_way_max, peer_under_way_bytes, waiting_max,
                                     age), _error()
        self._check(self._use("admission_set", byref(limits), byref(error)), error)

    def _describe(self, topic: int) -> str:
        use = self._use
        return read_bytes(lambda buffer, error: use("engine_describe", topic, buffer, error)).decode("utf-8", "replace")

    def stats(self) -> Dict[str, Any]:
        """Counters and latency histograms."""
        stats: Dict[str, Any] = json.loads(self._describe(_abi.TOPIC_STATS))
        return stats

    def dump(self) -> Dict[str, Any]:
        """Pool, peers and transfers as they stand."""
        dump: Dict[str, Any] = json.loads(self._describe(_abi.TOPIC_DUMP))
        return dump

    def timeline(self) -> Any:
        """Phases of the last requests."""
        return json.loads(self._describe(_abi.TOPIC_TIMELINE))

    def trace(self) -> Any:
        """The same for trace viewers (Chrome trace events)."""
        return json.loads(self._describe(_abi.TOPIC_TRACE))

    def prometheus(self) -> str:
        """The counters as Prometheus text."""
        return self._describe(_abi.TOPIC_PROMETHEUS)

    # -- peers --------------------------------------------------------------------------------------------------------

    def connect(self, session: str, timeout: Optional[float] = None) -> Peer:
        """Connects to the engine of a session id; one that is connected already is returned. timeout: seconds, None for the
        setting timeout_ms. Raises InvalidArgument, StaleEpoch (another incarnation is there now), Unauthenticated (another
        secret), Unreachable, TimedOut, VersionMismatch, PeerLost, Limit, Unsupported or InitFailed (no UCX)."""
        text, value, error = Text(session), c_uint64(), _error()
        status = self._use("peer_connect", text.address, text.length,
                           Left(nanoseconds(timeout) or self._timeout_ns), byref(value), byref(error))
        self._check(status, error)
        return Peer(self, value.value, session)

    def query(self, request: str, peer: Optional[Peer] = None, attempt: int = 0,
              timeout: Optional[float] = None) -> Answer:
        """What is known of a request here, or at a peer; attempt 0 = the latest. Raises Closed (a stale peer), TimedOut,
        PeerLost."""
        name = Text(request)
        question = _abi.TransferQuery(struct_size=sizeof(_abi.TransferQuery), request=name.address, request_length=name.length)
        question.attempt = integer(attempt, "attempt", 0, U32_MAX)
        question.peer = own(peer, Peer, self, "peer") if peer is not None else 0
        answer, error = _abi.TransferAnswer(struct_size=sizeof(_abi.TransferAnswer)), _error()
        status = self._use("query", byref(question), Left(nanoseconds(timeout) or self._timeout_ns), byref(answer),
                           byref(error))
        self._check(status, error)
        return Answer(name_of(STATES, answer.state), answer.attempt, answer.status, bool(answer.is_drained),
                      answer.transfer)

    # -- slots, raw memory, completions -------------------------------------------------------------------------------

    def reserve(self, request: str, sizes: Sequence[int], attempt: int = 0, prealloc: str = "first", slot_id: int = 0,
                lease: Optional[float] = None) -> List[Slot]:
        """Receive slots of these sizes for a request, all or none; 0 is legal and takes no memory.

        prealloc: "first" (a preallocated slot that fits, else from the pool), "never" or "only". slot_id: that
        preallocated one. lease: seconds until it must be filled. Raises PoolExhausted with ``retry_after_ms`` (0 = never),
        Limit, NotFound (no such preallocated slot, or it is taken).
        """
        return reserve(self, request, sizes, attempt, prealloc, slot_id, lease)

    def register(self, memory: Any, bytes: Optional[int] = None) -> Memory:
        """Lets raw transfers read and write memory of the caller's: an address with its bytes, or a writable buffer or
        tensor, which is kept. The same range again counts. Raises Busy: it overlaps another."""
        span = self._span(memory, bytes)
        error = _error()
        self._check(self._use("memory_register", span.address, span.bytes, byref(error)), error)
        self._registered.append(span)
        return span

    def deregister(self, memory: Any, bytes: Optional[int] = None) -> None:
        """Takes one registration of this very range back. Raises Busy: it is read or written right now; InvalidArgument,
        NotFound: it is not registered."""
        span = self._span(memory, bytes)
        error = _error()
        self._check(self._use("memory_deregister", span.address, span.bytes, byref(error)), error)
        for index, known in enumerate(self._registered):
            if known[:2] == span[:2]:
                del self._registered[index]
                break

    def _span(self, memory: Any, bytes: Optional[int]) -> Memory:
        target = (memory, bytes) if isinstance(memory, int) and bytes is not None else memory
        return memory_of(target, "memory", self._has_device)

    def transfer_sync(self, peer: Peer, pieces: Optional[Sequence[Piece]] = None, source: int = 0, target: int = 0,
                      bytes: int = 0, timeout: Optional[float] = None) -> None:
        """Writes into a peer's memory and returns once it is there.

        pieces: (source, target, bytes) each; or one of them as arguments. source: address in the own pool or in registered
        memory. target: address in the peer's process, inside one live slot or registered there. Blocks up to ``timeout``
        seconds, without slices. Raises NotFound (a target), InvalidArgument (a source), TimedOut, PeerLost, Limit.
        """
        raw, keep = raw_of(own(peer, Peer, self, "peer"), [(source, target, bytes)] if pieces is None else pieces)
        error = _error()
        status = self._use("transfer_sync", byref(raw), Left(nanoseconds(timeout) or self._timeout_ns), byref(error))
        del keep
        self._check(status, error)

    def completions(self) -> List[Completion]:
        """Transfers that ended since the last call, oldest first, each once; not those that were released. Never waits."""
        self._ask_producers()
        rows, count, error = (_abi.Completion * _COMPLETIONS)(), c_size_t(_COMPLETIONS), _error()
        ended: List[Completion] = []
        while count.value == _COMPLETIONS:
            status = self._use("completions", addressof(rows), sizeof(_abi.Completion), _COMPLETIONS,
                               byref(count), byref(error))
            self._check(status, error)
            ended += [Completion(r.transfer, r.status, name_of(STATES, r.state)) for r in rows[: count.value]]
        return ended

    def fileno(self) -> int:
        """A descriptor that is readable while completions wait; it stays the engine's: poll it only. It is the same until
        the close, whatever build is behind the engine. Raises BadState: the engine was opened without ``notify``."""
        number = self.info().completion_fd
        if number < 0:
            raise errors.BadState("the engine was opened without notify")
        return number

    # -- its life -----------------------------------------------------------------------------------------------------

    def _self(self) -> "Engine":
        return self

    def _use(self, slot: str, *arguments: Any) -> int:
        """Calls a slot of the table on this engine; when it is on its way to another build, there. The engine's memory
        cannot go while somebody is in here."""
        status = self._use_now(slot, arguments)
        return self._gate.again(lambda: self._use_now(slot, arguments)) if status == _abi.MOVED else status

    def _use_now(self, slot: str, arguments: Sequence[Any]) -> int:
        me = object()
        try:
            with self._mutex:
                bound = self.bound
                if bound.handle.value is not None:
                    self._inside.add(me)
            if me not in self._inside or (self._is_left and slot not in _LAST_CALLS):
                raise errors.Closed("the engine is closed")
            status: int = getattr(bound.build.transfer, slot)(bound.handle, *arguments)
            if _callbacks.interrupted:
                _callbacks.raise_interrupt()
            return status
        finally:
            self._inside.discard(me)

    def _is_inside(self) -> bool:
        return any(not is_below(token) for token in list(self._inside))

    def _retire(self, until: float) -> None:
        """Its context is being closed: no call may begin when it has returned. Raises DrainTimeout."""
        self.close(max(0.001, until - time.monotonic()))

    def _forked(self) -> None:
        self._mutex, self._inside, self._is_inherited = threading.RLock(), set(), True

    def _check(self, status: int, error: _abi.Error) -> None:
        if status != _abi.OK:
            raise errors.make(status, error)

    def _register(self, transfer: Transfer) -> None:
        self._live.add(transfer)

    def _ask_producers(self) -> None:
        for transfer in list(self._live):
            try:
                transfer._ask()
            except errors.ConvoyError:
                pass  # among the completions
            except Exception as failure:
                if transfer._readiness is None or failure is not transfer._readiness.failure:
                    raise

    def _release_idle(self) -> None:
        for transfer in list(self._live):
            if transfer._is_idle():
                transfer.release()

    def _viewed(self, is_released: bool) -> List[Transfer]:
        """Transfers of which views are alive, of those that were released or of the others."""
        return [t for t in list(self._live) if t.released is is_released and not t._is_idle()]

    def _await_release(self, until: float) -> None:
        """Transfers with views are for their owners to release. Raises DrainTimeout."""
        while self._viewed(False):
            if time.monotonic() >= until:
                raise errors.DrainTimeout("engine %s: request \"%s\" is not released, and views of it are alive; close it again" % (
                    self.session, self._viewed(False)[0]._request))
            time.sleep(_PAUSE_S)

    def _view_gone(self) -> None:
        """The last view of a released transfer has gone: what was left of a close is closed."""
        if not self._gate.may_wait():
            return self._gate.later(self._view_gone)
        if self._is_left and not self._viewed(True) and not _callbacks.is_inside():
            self._is_left = False
            self.close()
            if self._context is not None:
                self._context._finish_close()

    def _keep_until_close(self, what: Any) -> None:
        self._keep.append(what)

    def _dead(self) -> None:
        """It has been closed, or its context: nobody takes the pointer any more."""
        with self._mutex:
            for bound in [*self._former, self.bound]:
                bound.handle.value = None
        self._keep, self._registered = [], []

    def close(self, timeout: Optional[float] = None) -> None:
        """Ends what is open and frees the pool; views that peers hold stay theirs. Again, or in a forked child: no effect.

        Transfers of this engine are released, but for those of which views are alive in this process; views of transfers
        that were released stay readable, and the pool's memory goes with the last of them.
        timeout: seconds, None for the setting close_timeout_ms. Raises DrainTimeout: a transfer with views is not released,
        or another thread is inside a call; close again.
        """
        timeout_ns = nanoseconds(timeout)
        if self.closed or self._is_inherited:
            return
        self._is_closing = True
        self._release_idle()
        self._await_release(time.monotonic() + (timeout_ns / 1e9 if timeout_ns else self._close_s))
        if self._viewed(True):
            self._is_left = True
            self._view_gone()  # it may have gone meanwhile
            return
        error = _error()
        self._check(self._use("engine_close", Left(timeout_ns) if timeout_ns else 0, byref(error)), error)
        self._dead()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<convoy.Engine %s, %s>" % (self.session, "closed" if self.closed else self.info().state)


def _error() -> _abi.Error:
    return _abi.Error(struct_size=sizeof(_abi.Error))


__all__ = ["Answer", "Completion", "Engine", "EngineInfo", "EngineOptions", "Holding", "Loaded", "Memory", "Peer",
           "PeerInfo", "PoolFigures", "PoolOptions", "Sent", "Slot", "Staged", "Tensor", "Transfer", "TransferResult"]
