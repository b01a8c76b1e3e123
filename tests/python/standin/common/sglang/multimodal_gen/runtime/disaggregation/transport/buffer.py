# SPDX-License-Identifier: Apache-2.0
"""A pool of bytes in which tensors of a request lie behind each other in one slot. Places are found first-fit."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Mapping, Union

import torch

_ALIGNMENT = 512  # of the start of a tensor in its slot
_DTYPES = ("float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool")

Tensors = Mapping[str, Union[torch.Tensor, "list[torch.Tensor | None]", None]]
Manifest = dict[str, list[dict[str, Any]]]


@dataclass
class SlotHandle:
    """offset, size: bytes in the pool; size as it was rounded."""

    request_id: str
    offset: int
    size: int
    tensor_views: dict[str, Any] = field(default_factory=dict)


def _power_of_two(size: int) -> int:
    return 1 << (size - 1).bit_length()


def _dtype(name: str) -> torch.dtype:
    if name not in _DTYPES:
        raise ValueError(f"unknown dtype {name!r}")
    return getattr(torch, name)  # type: ignore[no-any-return]


class TransferTensorBuffer:
    """Calls may come from any thread."""

    def __init__(
        self, pool_size: int, min_block_size: int = 1 << 20, role_name: str = "unknown", device: str = "cpu"
    ) -> None:
        """ValueError: min_block_size is not a power of two above 0. The pool is a power of two as well."""
        if min_block_size <= 0 or min_block_size & (min_block_size - 1):
            raise ValueError(f"min_block_size {min_block_size} is not a power of two")
        self._min_block, self._role = min_block_size, role_name
        self._size = _power_of_two(max(pool_size, min_block_size))
        self._device = device
        self._pool = torch.zeros(self._size, dtype=torch.uint8, device=device)
        self._lock = threading.Lock()
        self._taken: dict[int, int] = {}  # offset: size

    @property
    def pool_size(self) -> int:
        return self._size

    @property
    def device(self) -> str:
        return self._device

    @property
    def pool_data_ptr(self) -> int:
        return int(self._pool.data_ptr())

    def _rounded(self, size: int) -> int:
        if size <= 0:
            raise ValueError(f"cannot allocate {size} bytes")
        return max(_power_of_two(size), self._min_block)

    def _first_fit(self, size: int) -> int | None:
        offset = 0
        for start in sorted(self._taken):
            if start - offset >= size:
                break
            offset = start + self._taken[start]
        return offset if offset + size <= self._size else None

    def allocate(self, size: int, request_id: str) -> SlotHandle | None:
        """None: no room. ValueError: size is not above 0."""
        rounded = self._rounded(size)
        with self._lock:
            offset = self._first_fit(rounded)
            if offset is None:
                return None
            self._taken[offset] = rounded
        return SlotHandle(request_id, offset, rounded)

    def free(self, handle: SlotHandle) -> bool:
        """False: the slot is not taken."""
        with self._lock:
            return self._taken.pop(handle.offset, None) is not None

    def write_tensor(
        self, handle: SlotHandle, name: str, tensor: torch.Tensor, byte_offset: int = 0, stream: Any = None
    ) -> int:
        """Bytes written. ValueError: they would lie beyond the slot."""
        source = tensor.contiguous().view(torch.uint8).reshape(-1)
        end = byte_offset + source.numel()
        if end > handle.size:
            raise ValueError(f"{name} would end at byte {end} of a slot of {handle.size}")
        self._pool[handle.offset + byte_offset : handle.offset + end].copy_(source)
        return int(source.numel())

    def read_tensor(
        self,
        handle: SlotHandle,
        shape: list[int],
        dtype: torch.dtype,
        byte_offset: int = 0,
        device: Any = "cpu",
        stream: Any = None,
    ) -> torch.Tensor:
        """A tensor of its own, not a view of the pool."""
        count = torch.Size(shape).numel() * torch.empty(0, dtype=dtype).element_size()
        start = handle.offset + byte_offset
        return self._pool[start : start + count].clone().view(dtype).reshape(shape).to(device)

    def write_tensors_from_gpu(self, handle: SlotHandle, tensors: Tensors, stream: Any = None) -> Manifest:
        """Where each tensor lies. None is left out, in a list as well."""
        manifest: Manifest = {}
        end = 0
        for name, value in tensors.items():
            items = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
            for index, tensor in items:
                if tensor is None:
                    continue
                entry = {"offset": end, "shape": list(tensor.shape), "dtype": str(tensor.dtype).split(".")[-1]}
                if index is not None:
                    entry["list_index"] = index
                written = self.write_tensor(handle, name, tensor, end, stream)
                end += -(-written // _ALIGNMENT) * _ALIGNMENT
                manifest.setdefault(name, []).append(entry)
        return manifest

    def read_tensors_from_manifest(
        self, handle: SlotHandle, manifest: Manifest, device: Any = "cpu", stream: Any = None
    ) -> dict[str, Any]:
        """ValueError: an unknown dtype. A list has None where it had a hole."""
        tensors: dict[str, Any] = {}
        for name, entries in manifest.items():
            for entry in entries:
                place = (entry["shape"], _dtype(entry["dtype"]), entry["offset"])
                tensor = self.read_tensor(handle, *place, device, stream)
                if "list_index" not in entry:
                    tensors[name] = tensor
                    break
                parts = tensors.setdefault(name, [None] * (1 + max(one["list_index"] for one in entries)))
                parts[entry["list_index"]] = tensor
        return tensors

    def free_slots_count(self, typical_request_size: int) -> int:
        """How many requests of this size there is room for."""
        rounded = self._rounded(typical_request_size)
        with self._lock:
            free = self._size - sum(self._taken.values())
        return free // rounded

    def get_stats(self) -> dict[str, Any]:
        with self._lock:
            used = sum(self._taken.values())
            return {"role": self._role, "pool_size": self._size, "used_bytes": used, "slots": len(self._taken)}
