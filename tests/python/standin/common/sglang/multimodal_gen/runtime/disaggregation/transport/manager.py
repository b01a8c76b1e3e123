# SPDX-License-Identifier: Apache-2.0
"""Requests on their way from role to role: what is staged here, and what is to arrive here."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import torch
from sglang.multimodal_gen.runtime.disaggregation.transport.buffer import Manifest, SlotHandle, Tensors, TransferTensorBuffer
from sglang.multimodal_gen.runtime.disaggregation.transport.engine import BaseTransferEngine


@dataclass
class StagedTransfer:
    """slot: None when there was nothing to stage; manifest is empty then."""

    request_id: str
    slot: SlotHandle | None
    manifest: Manifest
    scalar_fields: dict[str, Any] = field(default_factory=dict)


@dataclass
class PendingReceive:
    request_id: str
    slot: SlotHandle


def _bytes_of(tensors: Tensors) -> int:
    """Without padding between tensors."""
    total = 0
    for value in tensors.values():
        for tensor in value if isinstance(value, list) else [value]:
            if tensor is not None:
                total += tensor.numel() * tensor.element_size()
    return total


class _NoEvent:
    """What stands for a device's event where copies are over when the call returns."""

    def synchronize(self) -> None:
        return None

    def query(self) -> bool:
        return True


class DiffusionTransferManager:
    """Registers the buffer's pool with the engine. Calls may come from any thread."""

    def __init__(self, engine: BaseTransferEngine, buffer: TransferTensorBuffer) -> None:
        self._engine, self._buffer = engine, buffer
        self._lock = threading.Lock()
        self._staged: dict[str, StagedTransfer] = {}
        self._pending_receives: dict[str, PendingReceive] = {}
        engine.register_buffer(buffer.pool_data_ptr, buffer.pool_size)

    @property
    def session_id(self) -> str:
        return self._engine.session_id

    @property
    def pool_data_ptr(self) -> int:
        return self._buffer.pool_data_ptr

    @property
    def pool_size(self) -> int:
        return self._buffer.pool_size

    def stage_tensors_async(
        self, request_id: str, tensor_fields: Tensors, scalar_fields: dict[str, Any] | None = None, stream: Any = None
    ) -> tuple[StagedTransfer | None, Any]:
        """(what is staged, event); (None, None): no room."""
        size, slot, manifest = _bytes_of(tensor_fields), None, {}
        if size > 0:
            slot = self._buffer.allocate(size, request_id)
            if slot is None:
                return None, None
            manifest = self._buffer.write_tensors_from_gpu(slot, tensor_fields, stream)
        staged = StagedTransfer(request_id, slot, manifest, dict(scalar_fields or {}))
        with self._lock:
            self._staged[request_id] = staged
        return staged, _NoEvent() if slot is not None else None

    def load_tensors_async(
        self, request_id: str, manifest: Manifest, device: Any = "cuda", stream: Any = None
    ) -> tuple[dict[str, Any], Any]:
        """(tensors, event). ValueError: no slot has been registered for the request."""
        with self._lock:
            pending = self._pending_receives.get(request_id)
        if pending is None:
            raise ValueError(f"no receive slot for request {request_id}")
        tensors = self._buffer.read_tensors_from_manifest(pending.slot, manifest, torch.device(device), stream)
        return tensors, _NoEvent()

    def push_to_peer(self, request_id: str, dest_session_id: str, dest_addr: int, transfer_size: int) -> bool:
        """False: nothing is staged under the name, or the engine failed; the slot is kept."""
        with self._lock:
            staged = self._staged.get(request_id)
        if staged is None:
            return False
        if staged.slot is None:
            return True
        source = self._buffer.pool_data_ptr + staged.slot.offset
        return self._engine.transfer_sync(dest_session_id, source, dest_addr, transfer_size) == 0

    def free_staged(self, request_id: str) -> None:
        with self._lock:
            staged = self._staged.pop(request_id, None)
        if staged is not None and staged.slot is not None:
            self._buffer.free(staged.slot)

    def allocate_receive_slot(self, request_id: str, size: int) -> PendingReceive | None:
        """None: no room. ValueError: size is not above 0."""
        slot = self._buffer.allocate(size, request_id)
        return None if slot is None else self.register_prealloc_as_receive(request_id, slot)

    def register_prealloc_as_receive(self, request_id: str, slot: SlotHandle) -> PendingReceive:
        pending = PendingReceive(request_id, slot)
        with self._lock:
            self._pending_receives[request_id] = pending
        return pending

    def free_receive_slot(self, request_id: str) -> None:
        with self._lock:
            pending = self._pending_receives.pop(request_id, None)
        if pending is not None:
            self._buffer.free(pending.slot)

    def cleanup(self) -> None:
        self._engine.deregister_buffer(self._buffer.pool_data_ptr)
