# SPDX-License-Identifier: Apache-2.0
"""The calls of an engine that move requests: stage, send, accept, load. Each is started, or started and waited for."""

from __future__ import annotations

from ctypes import byref, c_uint64, sizeof
from typing import TYPE_CHECKING, Any, Mapping, Optional, TypeVar, Union

from convoy import _abi, errors
from convoy._holding import Loaded, Staged
from convoy._requests import LoadRequest, Scalars, SendRequest, StageRequest
from convoy._readiness import ReadyFunction
from convoy._transfers import Sent, Slot, Transfer

if TYPE_CHECKING:
    from convoy.peers import Peer
    from convoy.transfer import Engine

_Kind = TypeVar("_Kind", bound=Transfer)


class Moves:
    """The part of an engine that stages, sends and receives."""

    _has_device: bool

    def _use(self, slot: str, *arguments: Any) -> int:
        raise NotImplementedError

    def _self(self) -> "Engine":
        raise NotImplementedError

    # -- stage --------------------------------------------------------------------------------------------------------

    def stage(self, request: str, tensors: Optional[Mapping[str, Any]] = None, scalars: Scalars = None, attempt: int = 0,
              checksum: bool = False, inline: bool = False, stream: Optional[int] = None, event: Optional[int] = None,
              ready: Optional[ReadyFunction] = None, timeout: Optional[float] = None, lease: Optional[float] = None,
              priority: int = 0) -> Staged:
        """Copies a request's tensors into the own pool; after that their memory is the caller's again.

        request: 1 to 255 bytes. tensors: by name, each a tensor (torch; CUDA where the engine has a device), an array
        (numpy and its like), any buffer, a triple (dtype, shape, bytes or address), or a list of those with None for holes.
        Gaps and orders of dimensions are copied as their strides say. scalars: a dictionary, or the very text of a JSON
        object up to 1 MiB. attempt: of the request, from 1. checksum: checked by every receiver. inline: copy on this
        thread. stream, event: of the device (numbers of their handles): copies run behind the one, the other is recorded
        behind them. ready: called until it is true, by what starts, tests or waits, about once a millisecond; copies begin
        then; what it raises is raised here. timeout: seconds until STAGED; lease: seconds that it waits for readers.
        priority: of the request, for its sends and for whoever receives it; higher goes first, 0 = usual. A plugin before
        transfer 1.1 refuses another than 0 with TooNew.

        Raises InvalidArgument (path of the field), PoolExhausted, Limit (the text has the figures), TimedOut, Closed.
        """
        return _ended(self.stage_start(request, tensors, scalars, attempt, checksum, inline, stream, event, ready, timeout,
                                       lease, priority))

    def stage_start(self, request: str, tensors: Optional[Mapping[str, Any]] = None, scalars: Scalars = None,
                    attempt: int = 0, checksum: bool = False, inline: bool = False, stream: Optional[int] = None,
                    event: Optional[int] = None, ready: Optional[ReadyFunction] = None, timeout: Optional[float] = None,
                    lease: Optional[float] = None, priority: int = 0) -> Staged:
        """Starts a stage. The tensors are kept until they were copied; do not write to them until then."""
        stage = StageRequest(request, tensors, scalars, attempt, checksum, inline, stream, event, ready, timeout, lease,
                             priority, self._has_device)
        value, error = c_uint64(), _error()
        status = self._use("stage_start", byref(stage.struct), byref(value), byref(error))
        if status != _abi.OK:
            raise errors.make(status, error)
        return Staged(self._self(), value.value, request, stage.owners, stage.readiness)

    # -- send ---------------------------------------------------------------------------------------------------------

    def send(self, peer: "Peer", staged: Optional[Staged] = None, request: Optional[str] = None,
             tensors: Optional[Mapping[str, Any]] = None, scalars: Scalars = None, timeout: Optional[float] = None,
             path: str = "auto", address: int = 0, retries: int = 0, **stage: Any) -> Sent:
        """Offers what is staged to a peer and waits until the peer has loaded and checked it; or, with ``request`` and
        ``tensors`` instead of ``staged``, stages it first, in the same call.

        timeout: seconds until the receiver has it. path: "auto", "lend", "push" or "pull". address: of a slot in the peer's
        process, to push there. retries: of a message without an answer, 0 = 2. stage: attempt, checksum, inline, stream,
        event, ready, lease, priority as in ``stage``; with ``staged``, priority is of this send alone, and 0 = that of the
        stage. Raises as ``stage``, and PeerLost, Unsupported (no such path), TimedOut, Overloaded (see
        ``set_admission``).
        """
        return _ended(self.send_start(peer, staged, request, tensors, scalars, timeout, path, address, retries, **stage))

    def send_start(self, peer: "Peer", staged: Optional[Staged] = None, request: Optional[str] = None,
                   tensors: Optional[Mapping[str, Any]] = None, scalars: Scalars = None, timeout: Optional[float] = None,
                   path: str = "auto", address: int = 0, retries: int = 0, attempt: int = 0, checksum: bool = False,
                   inline: bool = False, stream: Optional[int] = None, event: Optional[int] = None,
                   ready: Optional[ReadyFunction] = None, lease: Optional[float] = None, priority: int = 0) -> Sent:
        """Starts a send, which goes on by itself."""
        if (staged is None) == (request is None):
            raise errors.InvalidArgument("send takes either what is staged, or a request with its tensors")
        of_send = priority if staged is not None else 0  # what is staged here takes it along
        send = SendRequest(self._self(), peer, staged, address, path, retries, timeout, of_send)
        stage: Optional[StageRequest] = None
        if request is not None:
            stage = StageRequest(request, tensors, scalars, attempt, checksum, inline, stream, event, ready, timeout, lease,
                                 priority, self._has_device)
        value, error = c_uint64(), _error()
        status = self._use("send_start", byref(stage.struct) if stage is not None else None,
                           byref(send.struct), byref(value), byref(error))
        if status != _abi.OK:
            raise errors.make(status, error)
        if stage is None:
            return Sent(self._self(), value.value, staged.request if staged is not None else "")
        return Sent(self._self(), value.value, stage.request, stage.owners, stage.readiness)

    # -- receive ------------------------------------------------------------------------------------------------------

    def accept(self, request: Optional[str] = None, peer: "Optional[Peer]" = None, copy: bool = False,
               destination: Any = None, timeout: Optional[float] = None, path: str = "auto", retries: int = 0,
               stream: Optional[int] = None, event: Optional[int] = None) -> Loaded:
        """Waits for an offer, the oldest that matches, and loads it.

        request, peer: only this one; None = any. Without copy the tensors are views where the sender put them, when both
        are on one host. copy: into the own pool, or into ``destination`` (a writable buffer, a contiguous tensor, or a pair
        (address, bytes); device memory where the engine has a device), laid out as in the sender's slot: each tensor at
        its ``offset``. The sender has its memory back at once. timeout: seconds until it is loaded. Raises TimedOut,
        PeerLost, PoolExhausted, Malformed, BufferTooSmall, Canceled.
        """
        return _ended(self.accept_start(request, peer, copy, destination, timeout, path, retries, stream, event))

    def accept_start(self, request: Optional[str] = None, peer: "Optional[Peer]" = None, copy: bool = False,
                     destination: Any = None, timeout: Optional[float] = None, path: str = "auto", retries: int = 0,
                     stream: Optional[int] = None, event: Optional[int] = None) -> Loaded:
        """Starts to wait for an offer. A destination is kept until nothing is written there any more."""
        load = LoadRequest(self._self(), None, request, peer, None, copy, destination, stream, event, timeout, path, retries)
        value, error = c_uint64(), _error()
        status = self._use("accept_start", byref(load.struct), byref(value), byref(error))
        if status != _abi.OK:
            raise errors.make(status, error)
        return Loaded(self._self(), value.value, request or "", load.owners)

    def load(self, descriptor: Union[bytes, bytearray, str], slot: Optional[Slot] = None, copy: bool = False,
             destination: Any = None, timeout: Optional[float] = None, path: str = "auto", retries: int = 0,
             stream: Optional[int] = None, event: Optional[int] = None) -> Loaded:
        """Loads what a descriptor names (bytes, or the JSON text) from its sender, whose session must be connected; with
        ``slot``, what a peer has written into that slot of the own pool. The rest as in ``accept``.

        Raises Malformed (path of the field), Unreachable, NotFound (unknown there), InvalidArgument (beyond its slot, or
        not written there), Closed (its memory belongs to another by now), TimedOut (its lease, or this load's time),
        StaleEpoch (a later attempt is known).
        """
        return _ended(self.load_start(descriptor, slot, copy, destination, timeout, path, retries, stream, event))

    def load_start(self, descriptor: Union[bytes, bytearray, str], slot: Optional[Slot] = None, copy: bool = False,
                   destination: Any = None, timeout: Optional[float] = None, path: str = "auto", retries: int = 0,
                   stream: Optional[int] = None, event: Optional[int] = None) -> Loaded:
        """Starts a load by descriptor."""
        if descriptor is None:
            raise errors.InvalidArgument("descriptor is None; bytes or the JSON text are needed")
        load = LoadRequest(self._self(), descriptor, None, None, slot, copy, destination, stream, event, timeout, path, retries)
        value, error = c_uint64(), _error()
        status = self._use("load_start", byref(load.struct), byref(value), byref(error))
        if status != _abi.OK:
            raise errors.make(status, error)
        return Loaded(self._self(), value.value, slot.request if slot is not None else "", load.owners)


def _error() -> _abi.Error:
    return _abi.Error(struct_size=sizeof(_abi.Error))


def _ended(transfer: _Kind) -> _Kind:
    """What has ended well; whatever else happens, it is aborted and released."""
    try:
        return transfer.wait()
    except BaseException:
        if isinstance(transfer, Sent):
            try:
                transfer.abort("the sender gave up")
            except errors.ConvoyError:
                pass
        transfer.release()
        raise
