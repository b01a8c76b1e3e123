# SPDX-License-Identifier: Apache-2.0
"""Tensors of a diffusion role in a slot: where each lies, and the host's manifest that says so.

A manifest is {name: [{"offset": bytes from the start of the slot, "shape": [...], "dtype": "float32", "list_index": place
in a list}]}. A list's trailing holes have no place in it.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple

from convoy import _dtypes

Manifest = Dict[str, List[Dict[str, Any]]]
_ALIGNMENT = 512
_RANK_MAX = 16
_LIST_MAX = 65536


def aligned(offset: int) -> int:
    """Where the next tensor starts."""
    return (offset + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT


@dataclass(frozen=True)
class Place:
    """One tensor and where it goes."""

    name: str
    tensor: Any
    offset: int
    index: Optional[int]


@dataclass(frozen=True)
class Layout:
    """All tensors of a request. bytes: to the end of the last one, which is what is pushed."""

    places: Tuple[Place, ...]
    bytes: int

    def manifest(self) -> Manifest:
        """Empty when there is no byte to move."""
        found: Manifest = {}
        for place in self.places if self.bytes else ():
            entry: Dict[str, Any] = {"offset": place.offset, "shape": list(place.tensor.shape),
                                     "dtype": str(place.tensor.dtype).replace("torch.", "")}
            if place.index is not None:
                entry["list_index"] = place.index
            found.setdefault(place.name, []).append(entry)
        return found


def layout(fields: Mapping[str, Any]) -> Layout:
    """Each tensor at the next multiple of 512, in the order of the fields, as the engine stages them: one without a byte
    takes no place. None is left out, wherever it is."""
    places: List[Place] = []
    end = 0
    for name, value in fields.items():
        is_list = isinstance(value, (list, tuple))
        for index, tensor in enumerate(value if is_list else [value]):
            if tensor is None:
                continue
            bytes = tensor.numel() * tensor.element_size()
            start = aligned(end) if bytes else end // _ALIGNMENT * _ALIGNMENT
            places.append(Place(name, tensor, start, index if is_list else None))
            end = start + bytes if bytes else end
    return Layout(tuple(places), end)


def _bad(name: str, why: str) -> ValueError:
    return ValueError("manifest[\"%s\"]: %s" % (name, why))


def _number(name: str, entry: Mapping[str, Any], key: str, limit: int) -> int:
    value = entry.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < limit:
        raise _bad(name, "%s is %r; 0 to %d are allowed" % (key, value, limit - 1))
    return value


@dataclass(frozen=True)
class Entry:
    """A checked entry of a manifest."""

    offset: int
    shape: Tuple[int, ...]
    dtype: Any
    bytes: int
    index: Optional[int]


def _checked(name: str, entry: Any, slot_bytes: int) -> Entry:
    import torch

    if not isinstance(entry, Mapping):
        raise _bad(name, "an entry is a %s, not an object" % type(entry).__name__)
    offset = _number(name, entry, "offset", slot_bytes + 1)
    index = _number(name, entry, "list_index", _LIST_MAX) if entry.get("list_index") is not None else None
    shape = entry.get("shape")
    if not isinstance(shape, (list, tuple)) or len(shape) > _RANK_MAX or not all(
            isinstance(extent, int) and not isinstance(extent, bool) and extent >= 0 for extent in shape):
        raise _bad(name, "shape is %r; up to %d numbers from 0 on are allowed" % (shape, _RANK_MAX))
    known = _dtypes.known(str(entry.get("dtype")))
    dtype = getattr(torch, known, None) if known is not None else None
    if known is None or not isinstance(dtype, torch.dtype):
        raise _bad(name, "unknown dtype %r" % (entry.get("dtype"),))
    bytes = _dtypes.BITS[known] // 8
    for extent in shape:
        bytes *= extent
    if bytes > slot_bytes or offset > slot_bytes - bytes:
        raise _bad(name, "%d bytes at offset %d are beyond the slot of %d" % (bytes, offset, slot_bytes))
    return Entry(offset, tuple(shape), dtype, bytes, index)


def read(address: int, slot_bytes: int, manifest: Mapping[str, Any], device: Any, stream: Any) -> Dict[str, Any]:
    """Copies of what lies at ``address``; all entries are checked before any byte is read. With a CUDA device the copies
    run on ``stream``, None for the current one, and the slot must stay until they have run."""
    checked: Dict[str, List[Entry]] = {}
    for name, entries in manifest.items():
        if not isinstance(entries, (list, tuple)):
            raise _bad(name, "is a %s, not a list of entries" % type(entries).__name__)
        if entries:  # a field without any is no field
            checked[name] = [_checked(name, entry, slot_bytes) for entry in entries]
    return {name: _field(name, entries, address, device, stream) for name, entries in checked.items()}


def _field(name: str, entries: List[Entry], address: int, device: Any, stream: Any) -> Any:
    single = [entry for entry in entries if entry.index is None]
    if single:
        if len(entries) != 1:
            raise _bad(name, "%d entries, and not all have a list_index" % len(entries))
        return _copy(single[0], address, device, stream)
    items: List[Any] = [None] * (1 + max((entry.index or 0 for entry in entries), default=-1))
    for entry in entries:
        items[entry.index or 0] = _copy(entry, address, device, stream)
    return items


def _copy(entry: Entry, address: int, device: Any, stream: Any) -> Any:
    import torch

    if not entry.bytes:
        return torch.empty(entry.shape, dtype=entry.dtype, device=device)
    span = (ctypes.c_char * entry.bytes).from_address(address + entry.offset)
    view = torch.frombuffer(span, dtype=entry.dtype).reshape(entry.shape)
    if torch.device(device).type == "cpu":
        return view.clone()
    with torch.cuda.stream(stream):  # None: the current one
        return view.to(device, non_blocking=True)
