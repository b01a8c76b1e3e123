# SPDX-License-Identifier: Apache-2.0
"""The buffer of a diffusion role: slots in the pool of the role's own engine."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional

from convoy import errors
from convoy.sglang import _diffusion_tensors as tensors_of
from convoy.sglang._diffusion_engine import ConvoyTransferEngine, Unbuffered, logger
from convoy.transfer import Slot


@dataclass
class SlotHandle:
    """A slot. offset: from ``pool_data_ptr``. size: rounded. transfer: which owner of that place this is."""

    request_id: str
    offset: int
    size: int
    tensor_views: Dict[str, Any] = field(default_factory=dict)
    transfer: int = 0


def rounded(size: int, block: int) -> int:
    """A power of two, and at least a block."""
    return max(1 << max(0, size - 1).bit_length(), block)


class ConvoyTransferBuffer:
    """Takes the newest engine of this process that has no buffer yet, and makes its pool as large as is asked for.

    pool_size: rounded up to a power of two. min_block_size: a power of two, ValueError else; the engine's own smallest
    block of 1 MiB is the least. A slot is for one owner: freeing by a handle of an earlier one is refused.
    """

    pool_size: int
    pool_data_ptr: int
    device: str

    def __init__(self, pool_size: int, min_block_size: int = 1 << 20, role_name: str = "unknown",
                 device: str = "cpu") -> None:
        if min_block_size <= 0 or min_block_size & (min_block_size - 1):
            raise ValueError("min_block_size is %d, it must be a power of two" % min_block_size)
        self.transfer_engine: ConvoyTransferEngine = Unbuffered.take()
        self.role_name = role_name
        self.device = device
        self._engine = self.transfer_engine.engine
        self._block = max(min_block_size, self._engine.figures().block)
        self._engine.resize(rounded(pool_size, self._block))
        info = self._engine.info()
        self.pool_size = info.pool_bytes
        self.pool_data_ptr = info.pool_address
        self.lock = threading.RLock()  # places are not given to others while one is taken again
        self._slots: Dict[int, Slot] = {}
        self._owners: Dict[int, int] = {}  # offset: SlotHandle.transfer

    def allocate(self, size: int, request_id: str) -> Optional[SlotHandle]:
        """A slot of at least this size, or None when there is no room. Raises ValueError: size is not above 0."""
        if size <= 0:
            raise ValueError("size is %d, it must be above 0" % size)
        bytes = rounded(size, self._block)
        with self.lock:
            slots = self.transfer_engine.reserve(request_id, [bytes])
            if slots is None:
                logger.warning("%s: no slot of %d bytes for request %s: %s", self.role_name, bytes, request_id,
                               self.transfer_engine.last_error)
                return None
            slot = slots[0]
            self._slots[slot.offset] = slot
            self._owners[slot.offset] = slot.value
            return SlotHandle(request_id, slot.offset, bytes, transfer=slot.value)

    def free(self, handle: SlotHandle) -> bool:
        """False: the handle's place is free, or has another owner by now."""
        with self.lock:
            if not self.is_owner(handle):
                return False
            del self._owners[handle.offset]
            return self.transfer_engine.free(self._slots.pop(handle.offset))

    def is_owner(self, handle: SlotHandle) -> bool:
        """Whether the handle still has its place."""
        owner = self._owners.get(handle.offset)
        return owner is not None and owner == getattr(handle, "transfer", 0)

    def is_written(self, handle: SlotHandle) -> bool:
        """Whether a peer has written anything there since it was allocated, or opened again."""
        with self.lock:
            return self.is_owner(handle) and self._slots[handle.offset].result().state != "reserved"

    def reopen(self, handle: SlotHandle) -> bool:
        """Lets peers write into a slot again that one has filled to its last byte, at the same place under the same
        handle. False: the place could not be had again, and peers' writes there are refused."""
        with self.lock:
            if not self.is_owner(handle):
                return False
            slot = self._slots[handle.offset]
            if slot.result().state != "filled":
                return True
            slot.release()
            taken: List[Slot] = []
            while True:
                more = self.transfer_engine.reserve(handle.request_id, [handle.size])
                taken += more or []
                if more is None or taken[-1].offset == handle.offset:
                    break
            for other in taken:
                if other.offset != handle.offset:
                    other.release()
            if not taken or taken[-1].offset != handle.offset:
                logger.error("slot %d of %d bytes cannot be opened again", handle.offset, handle.size)
                return False
            self._slots[handle.offset] = taken[-1]
            return True

    # -- the host's calls by tensor -----------------------------------------------------------------------------------

    def write_tensor(self, handle: SlotHandle, name: str, tensor: Any, byte_offset: int = 0, stream: Any = None) -> int:
        """Copies a tensor into a slot, densely; returns the bytes written. stream: of torch.cuda, waited for first. Raises
        ValueError: it does not fit, or the handle is stale."""
        if stream is not None:
            stream.synchronize()
        source = tensor.detach().contiguous().cpu()
        bytes = int(source.numel() * source.element_size())
        self._check(handle, byte_offset, bytes, name)
        if bytes:
            ctypes.memmove(self.pool_data_ptr + handle.offset + byte_offset, source.data_ptr(), bytes)
        return bytes

    def read_tensor(self, handle: SlotHandle, shape: Any, dtype: Any, byte_offset: int = 0, device: Any = "cpu",
                    stream: Any = None) -> Any:
        """A copy of a tensor in a slot. Raises ValueError: beyond the slot, unknown type, stale handle."""
        entry = {"offset": byte_offset, "shape": list(shape), "dtype": str(dtype).replace("torch.", "")}
        return self.read_tensors_from_manifest(handle, {"tensor": [entry]}, device, stream)["tensor"]

    def write_tensors_from_gpu(self, handle: SlotHandle, tensors: Mapping[str, Any],
                               stream: Any = None) -> tensors_of.Manifest:
        """Copies all tensors, lists with their holes, into a slot, and returns where they are."""
        layout = tensors_of.layout(tensors)
        self._check(handle, 0, layout.bytes, "the tensors")
        if stream is not None:
            stream.synchronize()
        for place in layout.places:
            self.write_tensor(handle, place.name, place.tensor, place.offset)
        return layout.manifest()

    def read_tensors_from_manifest(self, handle: SlotHandle, manifest: tensors_of.Manifest, device: Any = "cpu",
                                   stream: Any = None) -> Dict[str, Any]:
        """Copies of all tensors; a list has None for each hole. Raises ValueError: an entry is beyond the slot, or of an
        unknown type, or the handle is stale; then nothing was read."""
        self._check(handle, 0, 0, "the slot")
        return tensors_of.read(self.pool_data_ptr + handle.offset, handle.size, manifest, device, stream)

    def _check(self, handle: SlotHandle, offset: int, bytes: int, what: str) -> None:
        if not self.is_owner(handle):
            raise ValueError("slot %d of request %s was freed" % (handle.offset, handle.request_id))
        if offset < 0 or offset + bytes > handle.size:
            raise ValueError("%s: %d bytes at %d do not fit into a slot of %d" % (what, bytes, offset, handle.size))

    # -- figures ------------------------------------------------------------------------------------------------------

    def free_slots_count(self, typical_request_size: int) -> int:
        """How many slots of this size there is room for, without regard to how the free room is cut."""
        return self._engine.figures().free // rounded(max(1, typical_request_size), self._block)

    def get_stats(self) -> Dict[str, Any]:
        """The pool's figures as a dictionary, under the names that the host reads."""
        figures = self._engine.figures()
        return {
            "role": self.role_name, "device": self.device, "pool_size": self.pool_size, "min_block_size": self._block,
            "allocated_bytes": figures.taken, "free_bytes": figures.free, "largest_free_bytes": figures.largest_free,
            "quarantined_bytes": figures.quarantined, "allocated_slots": len(self._slots),
            "fragmentation": figures.fragmentation,
        }

    def free_all(self) -> None:
        """Gives every slot back, preallocated ones too."""
        with self.lock:
            for slot in self._slots.values():
                try:
                    self.transfer_engine.free(slot)
                except errors.ConvoyError as failure:
                    self.transfer_engine.note("free", failure)
            self._slots, self._owners = {}, {}
