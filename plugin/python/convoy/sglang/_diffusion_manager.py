# SPDX-License-Identifier: Apache-2.0
"""The manager of a diffusion role: stages, pushes and loads requests in the buffer of the role's engine."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from convoy import errors
from convoy.sglang import _diffusion_tensors as tensors_of
from convoy.sglang import _noise
from convoy.sglang._diffusion_buffer import ConvoyTransferBuffer, SlotHandle, rounded
from convoy.sglang._diffusion_engine import ConvoyTransferEngine, logger
from convoy.sglang._diffusion_older import OlderCalls
from convoy.transfer import Staged


@dataclass
class StagedTransfer:
    """What is staged. slot: where in the own pool, with the payload's size rounded as a receiver allocates; None = no
    byte."""

    request_id: str
    slot: Optional[SlotHandle]
    manifest: tensors_of.Manifest
    scalar_fields: Dict[str, Any] = field(default_factory=dict)


@dataclass
class PendingReceive:
    """A slot that a request's bytes come to. is_kept: preallocated, it is used again."""

    request_id: str
    slot: SlotHandle
    is_kept: bool = False


class Pending(Dict[str, PendingReceive]):
    """The slots that are waited for or read. The host takes preallocated ones out by itself: that opens them again."""

    def __init__(self, reopen: Callable[[SlotHandle], Any]) -> None:
        super().__init__()
        self._reopen = reopen

    def pop(self, key: str, *default: Any) -> Any:
        """As of a dictionary; the slot of what is taken out is open for pushes again."""
        receive = super().pop(key, *default)
        if isinstance(receive, PendingReceive) and receive.is_kept:
            self._reopen(receive.slot)
        return receive


class ConvoyTransferManager(OlderCalls):
    """The host's calls on convoy's engine and buffer, which belong together (ValueError else). Any thread may call it.

    Events are None for host memory, else of torch.cuda.
    """

    def __init__(self, engine: ConvoyTransferEngine, buffer: ConvoyTransferBuffer) -> None:
        if buffer.transfer_engine is not engine:
            raise ValueError("the buffer is in the pool of another engine")
        self._engine = engine
        self._buffer = buffer
        self._lock = threading.RLock()
        self._staged: Dict[str, Tuple[StagedTransfer, Optional[Staged], int]] = {}
        self._pending_receives = Pending(buffer.reopen)
        self._events: Dict[str, Any] = {}  # of loads
        self._repeats = _noise.Repeats()
        self._late: List[Tuple[Any, SlotHandle]] = []  # freed by the host while a device still reads them

    @property
    def session_id(self) -> str:
        """The engine's."""
        return self._engine.session_id

    @property
    def pool_data_ptr(self) -> int:
        """Address that slot offsets count from."""
        return self._buffer.pool_data_ptr

    @property
    def pool_size(self) -> int:
        """Bytes."""
        return self._buffer.pool_size

    # -- sender -------------------------------------------------------------------------------------------------------

    def stage_tensors_async(self, request_id: str, tensor_fields: Mapping[str, Any],
                            scalar_fields: Optional[Mapping[str, Any]] = None,
                            stream: Any = None) -> Tuple[Optional[StagedTransfer], Any]:
        """Copies a request's tensors into the own pool. (what is staged, event), or (None, None) without room.

        tensor_fields: a tensor or a list with holes by name; tensors may have gaps. stream: of torch.cuda, for tensors on
        a device: it waits for the current one first. What was staged before under this id is freed.
        """
        self._sweep()
        layout = tensors_of.layout(tensor_fields)
        scalars = dict(scalar_fields or {})
        if not layout.bytes:
            return self._keep(StagedTransfer(request_id, None, {}, scalars), None, 0), None
        on_device = any(place.tensor.is_cuda for place in layout.places)
        chosen = _stream_behind_current(stream) if on_device else None
        with self._buffer.lock:
            staged = self._engine.stage_async(request_id, _named(layout), stream=chosen.cuda_stream if chosen else None)
        if staged is None:
            return None, None
        try:
            if chosen is None:
                staged.wait()
            result = staged.result()
            event = chosen.record_event() if chosen is not None else None
        except errors.ConvoyError as failure:
            self._engine.note("stage", failure)
            staged.release()
            return None, None
        except BaseException:
            staged.release()
            raise
        block = rounded(layout.bytes, self._buffer._block)
        slot = SlotHandle(request_id, result.address - self.pool_data_ptr, block, transfer=staged.value)
        return self._keep(StagedTransfer(request_id, slot, layout.manifest(), scalars), staged, layout.bytes), event

    def _keep(self, transfer: StagedTransfer, staged: Optional[Staged], bytes: int) -> StagedTransfer:
        with self._lock:
            self.free_staged(transfer.request_id)
            self._staged[transfer.request_id] = transfer, staged, bytes
        return transfer

    def push_to_peer(self, request_id: str, dest_session_id: str, dest_addr: int, transfer_size: int) -> bool:
        """Writes the payload, to the byte, to an address of a peer, and returns when it is there. False: the log and the
        engine's ``last_error`` say why, and what is staged stays. transfer_size: room at the other side."""
        with self._lock:
            known = self._staged.get(request_id)
        if known is None:
            return self._refuse(request_id, "nothing is staged under this id")
        _, staged, bytes = known
        if staged is None:
            return True
        if bytes > transfer_size:
            return self._refuse(request_id, "%d bytes do not fit into the receiver's %d" % (bytes, transfer_size))
        status = self._engine.push(dest_session_id, staged, dest_addr)
        if status != 0:
            count = self._repeats.count((dest_session_id, status))
            logger.log(logging.WARNING if count else logging.DEBUG, "request %s was not pushed to %s (%d): %s%s", request_id,
                       dest_session_id, status, self._engine.last_error, _noise.times(count) if count else "")
        return status == 0

    def _refuse(self, request_id: str, why: str) -> bool:
        self._engine.last_error = "push of request %s: %s" % (request_id, why)
        logger.warning("%s", self._engine.last_error)
        return False

    def free_staged(self, request_id: str) -> None:
        """Gives the room back; of what is not staged, nothing."""
        with self._lock:
            known = self._staged.pop(request_id, None)
        if known is not None and known[1] is not None:
            self._engine.free(known[1])

    # -- receiver -----------------------------------------------------------------------------------------------------

    def allocate_receive_slot(self, request_id: str, size: int) -> Optional[PendingReceive]:
        """A slot for a request whose payload is this large; of none, the smallest there is. None: no room."""
        self._sweep()
        slot = self._buffer.allocate(max(1, size) if size >= 0 else size, request_id)
        return None if slot is None else self._expect(PendingReceive(request_id, slot))

    def register_prealloc_as_receive(self, request_id: str, slot: SlotHandle) -> PendingReceive:
        """A preallocated slot receives this request. It is never freed by ``free_receive_slot``."""
        return self._expect(PendingReceive(request_id, slot, is_kept=True))

    def _expect(self, receive: PendingReceive) -> PendingReceive:
        with self._lock:
            self.free_receive_slot(receive.request_id)
            self._pending_receives[receive.request_id] = receive
        return receive

    def load_tensors_async(self, request_id: str, manifest: tensors_of.Manifest, device: Any = "cuda",
                           stream: Any = None) -> Tuple[Dict[str, Any], Any]:
        """Copies of a request's tensors on a device: (by name, event). Free the slot after the event was waited for.

        Raises ValueError: no slot waits under this id, nobody has written to it, an entry is beyond it or of an unknown
        type.
        """
        with self._lock:
            receive = self._pending_receives.get(request_id)
        if receive is None:
            raise ValueError("no slot waits for request %s" % request_id)
        if not manifest:
            return {}, None
        if not self._buffer.is_written(receive.slot):
            raise ValueError("nobody has written to the slot of request %s, or it was freed" % request_id)
        tensors = self._buffer.read_tensors_from_manifest(receive.slot, manifest, device, stream)
        event = _event_behind(device, stream)
        if event is not None:
            with self._lock:
                self._events[request_id] = event
        return tensors, event

    def free_receive_slot(self, request_id: str) -> None:
        """Gives a slot back, once the device has read it; opens a preallocated one again."""
        with self._lock:
            receive = self._pending_receives.pop(request_id, None)
            event = self._events.pop(request_id, None)
            if receive is None or receive.is_kept:
                return
            if event is not None and not event.query():
                self._late.append((event, receive.slot))
                return
        self._buffer.free(receive.slot)

    def _sweep(self) -> None:
        """Frees what devices have read meanwhile."""
        with self._lock:
            read = [slot for event, slot in self._late if event.query()]
            self._late = [(event, slot) for event, slot in self._late if not any(slot is one for one in read)]
        for slot in read:
            self._buffer.free(slot)

    def cleanup(self) -> None:
        """Gives back all that is staged, pending or preallocated. The engine stays open: ``close`` is its owner's."""
        with self._lock:
            for request_id in list(self._staged):
                self.free_staged(request_id)
            for event, _ in self._late:
                event.synchronize()
            for event in self._events.values():
                event.synchronize()
            self._late, self._events = [], {}
            self._pending_receives.clear()
        self._buffer.free_all()


def _named(layout: tensors_of.Layout) -> Dict[str, Any]:
    """The tensors for a stage, in the order of the layout."""
    fields: Dict[str, Any] = {}
    for place in layout.places:
        if place.index is None:
            fields[place.name] = place.tensor
        else:
            items = fields.setdefault(place.name, [])
            items += [None] * (place.index - len(items)) + [place.tensor]
    return fields


def _stream_behind_current(stream: Any) -> Any:
    """The stream to copy on, behind what the current one has."""
    import torch

    current = torch.cuda.current_stream()
    if stream is None:
        return current
    stream.wait_stream(current)
    return stream


def _event_behind(device: Any, stream: Any) -> Any:
    import torch

    if torch.device(device).type == "cpu":
        return None
    return (stream if stream is not None else torch.cuda.current_stream()).record_event()
