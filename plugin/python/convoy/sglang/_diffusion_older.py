# SPDX-License-Identifier: Apache-2.0
"""Calls of a diffusion manager that older releases of the host have, and newer ones have not: plugins may use them."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from convoy.sglang._diffusion_buffer import ConvoyTransferBuffer

_TYPICAL = 64 << 20  # bytes of a request


class OlderCalls:
    """For a manager with the calls and tables of today."""

    _lock: Any
    _buffer: ConvoyTransferBuffer
    _staged: Any
    _pending_receives: Any
    stage_tensors_async: Any
    load_tensors_async: Any

    def stage_tensors(self, request_id: str, tensor_fields: Mapping[str, Any],
                      scalar_fields: Optional[Mapping[str, Any]] = None, stream: Any = None) -> Any:
        """As ``stage_tensors_async``, and waits for the copies. None: no room."""
        staged, event = self.stage_tensors_async(request_id, tensor_fields, scalar_fields, stream)
        if event is not None:
            event.synchronize()
        return staged

    def load_tensors(self, request_id: str, manifest: Mapping[str, Any], device: Any = "cuda",
                     stream: Any = None) -> Dict[str, Any]:
        """As ``load_tensors_async``, and waits for the copies."""
        tensors, event = self.load_tensors_async(request_id, manifest, device, stream)
        if event is not None:
            event.synchronize()
        loaded: Dict[str, Any] = tensors
        return loaded

    def get_receive_slot_addr(self, request_id: str) -> Optional[int]:
        """Address of the slot that waits under this id, or None."""
        offset = self.get_receive_slot_offset(request_id)
        return None if offset is None else self._buffer.pool_data_ptr + offset

    def get_receive_slot_offset(self, request_id: str) -> Optional[int]:
        """Its offset in the pool, or None."""
        with self._lock:
            receive = self._pending_receives.get(request_id)
        return None if receive is None else int(receive.slot.offset)

    def get_staged_info(self, request_id: str) -> Any:
        """What is staged under this id, or None."""
        with self._lock:
            known = self._staged.get(request_id)
        return None if known is None else known[0]

    def free_slots_count(self, typical_size: int = _TYPICAL) -> int:
        """How many requests of this size there is room for."""
        return self._buffer.free_slots_count(typical_size)
