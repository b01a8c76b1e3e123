# SPDX-License-Identifier: Apache-2.0
"""The transfer engine of a diffusion role: the host's calls, which answer with numbers, on a convoy engine.

A failure is a negative status of convoy's; its text is in ``last_error`` and, once per cause, in the log.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple, TypeVar, Union

from convoy import errors, library
from convoy.context import Context
from convoy.transfer import Engine, Loaded, Memory, Peer, Slot, Staged, Transfer

logger = logging.getLogger("convoy.sglang")
KEPT_S = float(2**32)  # the host frees what it staged and reserved itself, however long that takes
_OK = 0
_Result = TypeVar("_Result")


class Unbuffered:
    """The engines of this process that no buffer has taken yet: the host makes a buffer after its engine, and does not
    tell which."""

    _lock = threading.Lock()
    _engines: "List[weakref.ref[ConvoyTransferEngine]]" = []

    @classmethod
    def add(cls, engine: "ConvoyTransferEngine") -> None:
        """An engine that the next buffer may take."""
        with cls._lock:
            cls._engines.append(weakref.ref(engine))

    @classmethod
    def take(cls) -> "ConvoyTransferEngine":
        """The newest open one. Raises RuntimeError: there is none."""
        with cls._lock:
            while cls._engines:
                engine = cls._engines.pop()()
                if engine is not None and not engine.closed:
                    return engine
        raise RuntimeError("a buffer of convoy's needs an engine of convoy's that has none yet; make the engine first")

    @classmethod
    def forget(cls) -> None:
        """In a forked child: the engines are the parent's, and a thread that is not here may have had the lock."""
        cls._lock, cls._engines = threading.Lock(), []


os.register_at_fork(after_in_child=Unbuffered.forget)


class ConvoyTransferEngine:
    """One convoy engine, reached at ``hostname`` on a port of its own.

    gpu_id: whose memory may be staged, where this machine has CUDA. ib_device: the device that UCX is to use, as
    "mlx5_0" or "mlx5_0:1"; UCX's own settings in the environment go before. Settings come from CONVOY_*, the secret from
    CONVOY_SECRET. Every call ends within CONVOY_TIMEOUT_MS. Any thread may call it.
    """

    def __init__(self, hostname: str = "127.0.0.1", gpu_id: int = 0, ib_device: Optional[str] = None) -> None:
        self._context = _open_context(ib_device)
        try:
            self.engine = _open_engine(self._context, _address(hostname), gpu_id)
        except BaseException:
            self._context.close()
            raise
        self._lock = threading.Lock()
        self._peers: Dict[str, Peer] = {}
        self._registered: Dict[int, List[Memory]] = {}
        self._told: Set[Tuple[str, int]] = set()
        self.last_error = ""
        Unbuffered.add(self)

    # -- the host's calls ---------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """What peers name this engine by."""
        return self.engine.session

    @property
    def supports_gpu_direct(self) -> bool:
        """Device memory goes through pinned host memory."""
        return False

    def register_buffer(self, ptr: int, length: int) -> None:
        """Lets transfers touch memory of the host's. The engine's own pool needs none, and is passed over.
        Raises ConvoyError."""
        if self._is_pool(ptr, length):
            return
        memory = self.engine.register(ptr, length)
        with self._lock:
            self._registered.setdefault(ptr, []).append(memory)

    def deregister_buffer(self, ptr: int) -> None:
        """Takes the last registration at this address back; of what is not registered, nothing."""
        with self._lock:
            known = self._registered.get(ptr)
            memory = known.pop() if known else None
        if memory is not None:
            self.engine.deregister(memory.address, memory.bytes)

    def transfer_sync(self, dst_session_id: str, src_addr: int, dst_addr: int, length: int) -> int:
        """Writes into a peer's memory. 0 once it is there, else a negative status."""
        return self.batch_transfer_sync(dst_session_id, [src_addr], [dst_addr], [length])

    def batch_transfer_sync(self, dst_session_id: str, src_addrs: Sequence[int], dst_addrs: Sequence[int],
                            lengths: Sequence[int]) -> int:
        """Several pieces for one peer. Pieces of no bytes are dropped; with none left it is 0 at once."""

        def write() -> int:
            if not len(src_addrs) == len(dst_addrs) == len(lengths):
                raise errors.InvalidArgument("%d sources, %d targets and %d lengths; as many of each are needed" % (
                    len(src_addrs), len(dst_addrs), len(lengths)))
            if any(length < 0 for length in lengths):
                raise errors.InvalidArgument("lengths is %r; 0 and more are allowed" % (list(lengths),))
            pieces = [piece for piece in zip(src_addrs, dst_addrs, lengths) if piece[2] > 0]
            if pieces:
                self.engine.transfer_sync(self._peer(dst_session_id), pieces)
            return _OK

        return self._number("transfer to %s" % dst_session_id, write)

    # -- what a manager needs -----------------------------------------------------------------------------------------

    def stage_async(self, request_id: str, tensors: Mapping[str, Any], scalars: Union[None, str, Mapping[str, Any]] = None,
                    stream: Optional[int] = None, event: Optional[int] = None) -> Optional[Staged]:
        """Starts to stage; the handle is waited for, pushed and freed. It stays until ``free``, however long. None: no
        room, or what ``last_error`` says. stream, event: handles of CUDA."""
        return self._attempt("stage", lambda: self.engine.stage_start(
            request_id, tensors, scalars, stream=stream, event=event, lease=KEPT_S))

    def load_async(self, descriptor: Union[bytes, str], copy: bool = False, destination: Any = None,
                   stream: Optional[int] = None, event: Optional[int] = None) -> Optional[Loaded]:
        """Starts to load what a peer staged, by its descriptor (``Staged.descriptor``), from the peer itself, whose session
        must have been connected by either side. None: ``last_error`` says why."""
        return self._attempt("load", lambda: self.engine.load_start(
            descriptor, copy=copy, destination=destination, stream=stream, event=event))

    def reserve(self, request_id: str, sizes: Sequence[int]) -> Optional[List[Slot]]:
        """Receive slots, all or none, until ``free``. None: no room now, or never; ``last_error`` has the figures."""
        return self._attempt("reserve", lambda: self.engine.reserve(request_id, sizes, prealloc="never", lease=KEPT_S))

    def adopt(self, slot: Slot, descriptor: Union[bytes, str]) -> Optional[Loaded]:
        """What a peer has pushed into an own slot becomes a loaded request, read where it lies: every tensor is checked
        against the bytes that were written. The slot and what was adopted are each freed. None: ``last_error``."""
        return self._attempt("adopt", lambda: self.engine.load(descriptor, slot=slot))

    def push(self, dst_session_id: str, staged: Staged, dst_addr: int) -> int:
        """Writes the payload of what is staged, to the byte, to an address of a peer. 0, or a negative status; what is
        staged stays as it is."""

        def write() -> int:
            result = staged.wait().result()
            if result.payload_bytes:
                self.engine.transfer_sync(self._peer(dst_session_id), [(result.address, dst_addr, result.payload_bytes)])
            return _OK

        return self._number("push to %s" % dst_session_id, write)

    def free(self, transfer: Transfer) -> bool:
        """Gives back what was staged, reserved, loaded or adopted. False: it was given back before."""
        if transfer.released:
            return False
        transfer.release()
        return True

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self.engine.closed

    def close(self) -> None:
        """Ends everything of this engine. Again: no effect. Raises DrainTimeout: views are still held."""
        self._context.close()

    # -- shared -------------------------------------------------------------------------------------------------------

    def _is_pool(self, ptr: int, length: int) -> bool:
        info = self.engine.info()
        return info.pool_address <= ptr and ptr + length <= info.pool_address + info.pool_bytes

    def _peer(self, session: str) -> Peer:
        """Connected at first use. One that has gone is asked for again; another engine in its place is StaleEpoch."""
        with self._lock:
            peer = self._peers.get(session)
        if peer is not None and peer.info().state == "connected":
            return peer
        if peer is not None:
            with self._lock:
                self._peers.pop(session, None)
            try:
                peer.disconnect()
            except errors.Closed:
                pass
        peer = self.engine.connect(session)
        with self._lock:
            self._peers[session] = peer
        return peer

    def note(self, what: str, failure: errors.ConvoyError) -> int:
        """Keeps and tells a failure; returns its status."""
        self.last_error = "%s: %s" % (what, failure)
        cause = what, failure.status
        with self._lock:
            is_new = cause not in self._told
            self._told.add(cause)
        if is_new:
            logger.error("%s", self.last_error)
        return failure.status

    def _number(self, what: str, call: Callable[[], int]) -> int:
        try:
            return call()
        except errors.ConvoyError as failure:
            return self.note(what, failure)

    def _attempt(self, what: str, call: Callable[[], _Result]) -> Optional[_Result]:
        try:
            return call()
        except errors.ConvoyError as failure:
            self.note(what, failure)
            return None


def _address(hostname: str) -> str:
    host = hostname or "127.0.0.1"
    if ":" in host and not host.startswith("["):
        host = "[%s]" % host
    return "tcp://%s:0" % host


def _open_context(ib_device: Optional[str]) -> Context:
    settings: Dict[str, Any] = {}
    if ib_device and not os.environ.get("CONVOY_UCX_NET_DEVICES") and not os.environ.get("UCX_NET_DEVICES"):
        settings["ucx_net_devices"] = ",".join(
            name if ":" in name else name + ":1" for name in ib_device.replace(" ", "").split(","))
    return library.load().context(secret=os.environ.get("CONVOY_SECRET", ""), settings=settings)


def _open_engine(context: Context, address: str, gpu_id: int) -> Engine:
    """With CUDA where this machine has it; else tensors must be host memory, which each stage checks."""
    try:
        return context.engine(address=address, device="cuda", device_number=gpu_id)
    except (errors.InitFailed, errors.Unsupported) as reason:
        logger.info("device memory cannot be staged here: %s", reason)
    return context.engine(address=address)
