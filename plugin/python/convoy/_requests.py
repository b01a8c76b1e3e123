# SPDX-License-Identifier: Apache-2.0
"""What a caller asks of an engine, as the plugin's structs with all that they point to."""

from __future__ import annotations

import ctypes
import json
from ctypes import addressof, sizeof
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Union

from convoy import _abi, errors
from convoy._buffers import U32_MAX, U64_MAX, Text, integer, nanoseconds
from convoy._handles import own
from convoy._holding import Staged
from convoy._memory import memory_of
from convoy._readiness import ADDRESS, Readiness, ReadyFunction
from convoy._tensors import Sources
from convoy._transfers import Slot
from convoy.peers import Peer

if TYPE_CHECKING:
    from convoy.transfer import Engine

SEND_PATHS = {"auto": _abi.PATH_AUTO, "lend": _abi.PATH_LEND, "push": _abi.PATH_PUSH, "pull": _abi.PATH_PULL}
Scalars = Union[None, str, Mapping[str, Any]]


def _path(path: str) -> int:
    if not isinstance(path, str) or path not in SEND_PATHS:
        raise errors.InvalidArgument("path is %r; allowed: %s" % (path, ", ".join(SEND_PATHS)))
    return SEND_PATHS[path]


def _scalars(scalars: Scalars) -> Optional[str]:
    if scalars is None or isinstance(scalars, str):
        return scalars
    try:
        return json.dumps(dict(scalars), allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as reason:
        raise errors.InvalidArgument("scalars: %s" % reason) from None


def _number(value: Optional[int], what: str) -> Optional[int]:
    """A handle of the device's, None = none."""
    return None if value is None else integer(value, what, 0, U64_MAX)


def _priority(value: int) -> int:
    return integer(value, "priority", -(2**31), 2**31 - 1)


def _descriptor(descriptor: Any) -> bytes:
    try:
        return descriptor.encode("utf-8") if isinstance(descriptor, str) else bytes(memoryview(descriptor))
    except (TypeError, ValueError):
        raise errors.InvalidArgument("descriptor is a %s; bytes or the JSON text are needed" % (
            type(descriptor).__name__)) from None


class StageRequest:
    """A stage. ``owners``: of the bytes, until they were copied."""

    def __init__(self, request: str, tensors: Optional[Mapping[str, Any]], scalars: Scalars, attempt: int, checksum: bool,
                 inline: bool, stream: Optional[int], event: Optional[int], ready: Optional[ReadyFunction],
                 timeout: Optional[float], lease: Optional[float], priority: int, has_device: bool) -> None:
        self.request = request
        self._sources = Sources(tensors or {}, has_device)
        self._texts = Text(request), Text(_scalars(scalars))
        if ready is not None and not callable(ready):
            raise errors.InvalidArgument("ready is %r; a function is needed" % (ready,))
        self.readiness = Readiness(ready) if ready is not None else None
        name, text = self._texts
        stage = _abi.Stage(struct_size=sizeof(_abi.Stage), attempt=integer(attempt, "attempt", 0, U32_MAX))
        stage.critical_flags = _abi.STAGE_CHECKSUM if checksum else 0
        stage.hint_flags = _abi.STAGE_INLINE if inline else 0
        stage.request, stage.request_length = name.address, name.length
        stage.scalars, stage.scalars_length = text.address, text.length
        stage.stream, stage.event = _number(stream, "stream"), _number(event, "event")
        stage.timeout_ns, stage.lease_ns = nanoseconds(timeout), nanoseconds(lease, "lease")
        stage.priority = _priority(priority)
        if self.readiness is not None:
            self.readiness.ask()
            stage.ready, stage.user = ADDRESS, self.readiness.user
        self._sources.put(stage)
        self.struct = stage
        self.owners: List[Any] = self._sources.owners


class SendRequest:
    """A send to a peer."""

    def __init__(self, engine: "Engine", peer: Peer, staged: Optional[Staged], address: int, path: str, retries: int,
                 timeout: Optional[float], priority: int) -> None:
        self.struct = _abi.Send(
            struct_size=sizeof(_abi.Send), path=_path(path), peer=own(peer, Peer, engine, "peer"),
            address=integer(address, "address", 0, U64_MAX), retries=integer(retries, "retries", 0, U32_MAX),
            staged=own(staged, Staged, engine, "staged") if staged is not None else 0, timeout_ns=nanoseconds(timeout),
            priority=_priority(priority))


class LoadRequest:
    """An accept, or a load by descriptor. ``owners``: of the destination, until nothing is written there any more."""

    def __init__(self, engine: "Engine", descriptor: Union[None, bytes, bytearray, str], request: Optional[str],
                 peer: Optional[Peer], slot: Optional[Slot], copy: bool, destination: Any, stream: Optional[int],
                 event: Optional[int], timeout: Optional[float], path: str, retries: int) -> None:
        load = _abi.Load(struct_size=sizeof(_abi.Load), path=_path(path), timeout_ns=nanoseconds(timeout))
        load.retries = integer(retries, "retries", 0, U32_MAX)
        self.owners: Any = None
        if destination is not None:
            memory = memory_of(destination, "destination", engine._has_device)
            load.destination, load.destination_bytes, self.owners = memory.address or None, memory.bytes, memory.owner
        load.mode = _abi.LOAD_COPY if copy or destination is not None else _abi.LOAD_VIEW
        load.stream, load.event = _number(stream, "stream"), _number(event, "event")
        load.peer = own(peer, Peer, engine, "peer") if peer is not None else 0
        load.slot = own(slot, Slot, engine, "slot") if slot is not None else 0
        name = Text(request)
        load.request, load.request_length = name.address, name.length
        data = b"" if descriptor is None else _descriptor(descriptor)
        self._texts = name, ctypes.create_string_buffer(data, len(data) or 1)
        if descriptor is not None:
            load.descriptor, load.descriptor_length = addressof(self._texts[1]), len(data)
        self.struct = load


def admission_of(under_way_max: int, under_way_bytes: int, peer_under_way_max: int, peer_under_way_bytes: int,
                 waiting_max: int, age: Optional[float]) -> _abi.Admission:
    """Limits of sends, as the plugin's struct. 0 is no limit."""
    return _abi.Admission(
        struct_size=sizeof(_abi.Admission), under_way_max=integer(under_way_max, "under_way_max", 0, U32_MAX),
        under_way_bytes=integer(under_way_bytes, "under_way_bytes", 0, U64_MAX),
        peer_under_way_max=integer(peer_under_way_max, "peer_under_way_max", 0, U32_MAX),
        peer_under_way_bytes=integer(peer_under_way_bytes, "peer_under_way_bytes", 0, U64_MAX),
        waiting_max=integer(waiting_max, "waiting_max", 0, U32_MAX), age_ns=nanoseconds(age, "age"))
