# SPDX-License-Identifier: Apache-2.0
"""What a caller asks of an engine, as the plugin's structs with all that they point to."""

from __future__ import annotations

import ctypes
import json
from ctypes import addressof, sizeof
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Union

from convoy import _abi, errors
from convoy._buffers import Text, nanoseconds
from convoy._memory import memory_of
from convoy._readiness import ADDRESS, Readiness, ReadyFunction
from convoy._tensors import Sources

if TYPE_CHECKING:
    from convoy._holding import Staged
    from convoy._transfers import Slot
    from convoy.peers import Peer

SEND_PATHS = {"auto": _abi.PATH_AUTO, "lend": _abi.PATH_LEND, "push": _abi.PATH_PUSH, "pull": _abi.PATH_PULL}
Scalars = Union[None, str, Mapping[str, Any]]


def _path(path: str) -> int:
    if path not in SEND_PATHS:
        raise errors.InvalidArgument("path is %r; allowed: %s" % (path, ", ".join(SEND_PATHS)))
    return SEND_PATHS[path]


def _scalars(scalars: Scalars) -> Optional[str]:
    if scalars is None or isinstance(scalars, str):
        return scalars
    try:
        return json.dumps(dict(scalars), allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as reason:
        raise errors.InvalidArgument("scalars: %s" % reason) from None


class StageRequest:
    """A stage. ``owners``: of the bytes, until they were copied."""

    def __init__(self, request: str, tensors: Optional[Mapping[str, Any]], scalars: Scalars, attempt: int, checksum: bool,
                 inline: bool, stream: Optional[int], event: Optional[int], ready: Optional[ReadyFunction],
                 timeout: Optional[float], lease: Optional[float], has_device: bool) -> None:
        self.request = request
        self._sources = Sources(tensors or {}, has_device)
        self._texts = Text(request), Text(_scalars(scalars))
        self.readiness = Readiness(ready) if ready is not None else None
        name, text = self._texts
        stage = _abi.Stage(struct_size=sizeof(_abi.Stage), attempt=attempt)
        stage.critical_flags = _abi.STAGE_CHECKSUM if checksum else 0
        stage.hint_flags = _abi.STAGE_INLINE if inline else 0
        stage.request, stage.request_length = name.address, name.length
        stage.scalars, stage.scalars_length = text.address, text.length
        stage.stream, stage.event = stream, event
        stage.timeout_ns, stage.lease_ns = nanoseconds(timeout), nanoseconds(lease, "lease")
        if self.readiness is not None:
            self.readiness.ask()
            stage.ready, stage.user = ADDRESS, self.readiness.user
        self._sources.put(stage)
        self.struct = stage
        self.owners: List[Any] = self._sources.owners


class SendRequest:
    """A send to a peer."""

    def __init__(self, peer: "Peer", staged: "Optional[Staged]", address: int, path: str, retries: int,
                 timeout: Optional[float]) -> None:
        self.struct = _abi.Send(struct_size=sizeof(_abi.Send), path=_path(path), peer=peer.value, address=address,
                                staged=staged.value if staged is not None else 0, retries=retries,
                                timeout_ns=nanoseconds(timeout))


class LoadRequest:
    """An accept, or a load by descriptor. ``owners``: of the destination, until nothing is written there any more."""

    def __init__(self, descriptor: Union[None, bytes, bytearray, str], request: Optional[str], peer: "Optional[Peer]",
                 slot: "Optional[Slot]", copy: bool, destination: Any, stream: Optional[int], event: Optional[int],
                 timeout: Optional[float], path: str, retries: int, has_device: bool) -> None:
        load = _abi.Load(struct_size=sizeof(_abi.Load), path=_path(path), retries=retries, timeout_ns=nanoseconds(timeout))
        self.owners: Any = None
        if destination is not None:
            memory = memory_of(destination, "destination", has_device)
            load.destination, load.destination_bytes, self.owners = memory.address or None, memory.bytes, memory.owner
        load.mode = _abi.LOAD_COPY if copy or destination is not None else _abi.LOAD_VIEW
        load.stream, load.event = stream, event
        load.peer = peer.value if peer is not None else 0
        load.slot = slot.value if slot is not None else 0
        name = Text(request)
        load.request, load.request_length = name.address, name.length
        data = descriptor.encode("utf-8") if isinstance(descriptor, str) else bytes(descriptor or b"")
        self._texts = name, ctypes.create_string_buffer(data, len(data) or 1)
        if descriptor is not None:
            load.descriptor, load.descriptor_length = addressof(self._texts[1]), len(data)
        self.struct = load
