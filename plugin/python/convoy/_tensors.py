# SPDX-License-Identifier: Apache-2.0
"""Tensors to stage, as the plugin's structs. Nothing is copied here, but what has no type of the plugin's and gaps.

numpy and torch are never imported: their objects are known by what they offer.
"""

from __future__ import annotations

import re
from ctypes import addressof, c_int64, c_uint64, sizeof
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from convoy import _abi, _dtypes, errors
from convoy._buffers import I64_MAX, I64_MIN, U64_MAX, Text, integer, is_tensor
from convoy._memory import Exported, check_device, memory_of


_TYPESTR = re.compile(r"([<>|=])([A-Za-z])([0-9]{1,18})(\[[^]]*\])?$")  # byte order, kind, bytes, unit of times


@dataclass(frozen=True)
class Source:
    """One tensor of the caller's. strides: in bytes, None = dense. bytes: None = what type and shape give."""

    dtype: str
    shape: Tuple[int, ...]
    strides: Optional[Tuple[int, ...]]
    address: int
    bytes: Optional[int]
    owner: Any


def _is_dense(shape: Sequence[int], strides: Sequence[int], item_bytes: int) -> bool:
    expected = item_bytes
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent == 0:
            return True
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def _product(shape: Sequence[int]) -> int:
    product = 1
    for extent in shape:
        product *= extent
    return product


def _source(dtype: str, shape: Tuple[int, ...], strides: Optional[Tuple[int, ...]], item_bytes: int, address: int,
            owner: Any) -> Source:
    if strides is not None and _is_dense(shape, strides, item_bytes):
        strides = None
    return Source(dtype, shape, strides, address, _product(shape) * item_bytes, owner)


def _of_torch(tensor: Any, what: str, has_device: bool) -> Source:
    check_device(tensor, what, has_device)
    if str(tensor.layout) != "torch.strided" or tensor.is_quantized:
        raise errors.InvalidArgument("%s is a tensor of layout %s, type %s; it must be strided and not quantized" % (
            what, tensor.layout, tensor.dtype))
    tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():  # not as its memory says
        tensor = tensor.resolve_conj().resolve_neg()
    item, dtype = tensor.element_size(), str(tensor.dtype).replace("torch.", "")
    source = _source(dtype, tuple(tensor.shape), tuple(s * item for s in tensor.stride()), item, tensor.data_ptr(), tensor)
    if source.strides is not None and _dtypes.known(dtype) is None:
        return _of_torch(tensor.contiguous(), what, has_device)
    return source


def _of_interface(value: Any, interface: Mapping[str, Any], what: str) -> Source:
    """By numpy's array interface, or its like for device memory."""
    kind = _TYPESTR.match(str(interface.get("typestr")))
    place, type_of = interface.get("data"), getattr(value, "dtype", None)
    if kind is None or not isinstance(place, tuple) or type_of is None or "shape" not in interface:
        raise errors.InvalidArgument("%s has an array interface that lacks a known type, a shape or an address" % what)
    if kind[1] == ">" or kind[2] == "O" or getattr(type_of, "hasobject", False):
        raise errors.InvalidArgument("%s is of type %s; objects and big-endian numbers are not carried" % (what, type_of))
    item, dtype = int(kind[3]) * (4 if kind[2] == "U" else 1), str(getattr(type_of, "name", type_of))
    shape = tuple(integer(extent, what + ".shape", 0, I64_MAX) for extent in interface["shape"])
    strides = interface.get("strides")
    if strides is not None:
        strides = tuple(integer(stride, what + ".strides", I64_MIN, I64_MAX) for stride in strides)
        if len(strides) != len(shape):
            raise errors.InvalidArgument("%s has %d extents and %d strides" % (what, len(shape), len(strides)))
    source = _source(dtype, shape, strides, item, integer(place[0] or 0, what + ".data", 0, U64_MAX), value)
    if source.strides is not None and _dtypes.known(dtype) is None:
        dense = value.copy(order="C")
        return _of_interface(dense, dense.__array_interface__, what)
    return source


def _of_buffer(value: Any, what: str) -> Source:
    try:
        exported = Exported(value)
    except (TypeError, BufferError, ValueError):
        raise errors.InvalidArgument("%s is a %s; a tensor, an array, a buffer or (dtype, shape, bytes) is needed" % (
            what, type(value).__name__)) from None
    if exported.is_indirect:
        raise errors.InvalidArgument("%s is a buffer of pointers" % what)
    dtype = _dtypes.of_format(exported.format, exported.item_bytes)
    return _source(dtype, exported.shape, exported.strides or None, exported.item_bytes, exported.address, exported)


def _of_triple(dtype: str, shape: Sequence[int], data: Any, what: str, has_device: bool) -> Source:
    try:
        extents = tuple(integer(extent, what + ".shape", 0, I64_MAX) for extent in shape)
    except TypeError:
        raise errors.InvalidArgument("%s.shape is %r; a sequence of integers is needed" % (what, shape)) from None
    if isinstance(data, int):
        if _dtypes.known(dtype) is None:
            raise errors.InvalidArgument("%s: an address needs a type that convoy knows, not \"%s\"" % (what, dtype))
        return Source(dtype, extents, None, integer(data, what + ": address", 0, U64_MAX), None, None)
    memory = memory_of(data, what, has_device, writable=False)
    return Source(dtype, extents, None, memory.address, memory.bytes, memory.owner)


def source_of(value: Any, what: str, has_device: bool) -> Source:
    """One tensor of any of the kinds that ``Engine.stage`` names. Raises InvalidArgument with the field in its text."""
    if isinstance(value, tuple) and len(value) == 3 and isinstance(value[0], str):
        return _of_triple(value[0], value[1], value[2], what, has_device)
    if is_tensor(value):
        return _of_torch(value, what, has_device)
    if hasattr(value, "__array_interface__"):
        array = value.__array__() if hasattr(value, "__array__") else value  # numpy's scalars point to what dies at once
        return _of_interface(array, array.__array_interface__, what)
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        if not has_device:
            raise errors.InvalidArgument("%s is device memory; the engine was opened without a device" % what)
        return _of_interface(value, interface, what)
    return _of_buffer(value, what)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) or (
        isinstance(value, tuple) and not (len(value) == 3 and isinstance(value[0], str)))


class Sources:
    """All tensors of one request: rows and lists for a stage, and what they point to."""

    def __init__(self, tensors: Mapping[str, Any], has_device: bool) -> None:
        self.keep: List[Any] = []
        self.owners: List[Any] = []  # of the bytes, until they were copied
        given: List[Tuple[Text, int, Source]] = []
        lists: Dict[str, Tuple[Text, int]] = {}
        if not isinstance(tensors, Mapping):
            raise errors.InvalidArgument("tensors is a %s; a mapping of names to tensors is needed" % type(tensors).__name__)
        for name, value in tensors.items():
            text = Text(name)
            self.keep.append(text)
            if not _is_list(value):
                given.append((text, -1, source_of(value, "tensors[\"%s\"]" % name, has_device)))
                continue
            lists[name] = (text, len(value))
            for index, item in enumerate(value):
                if item is not None:
                    given.append((text, index, source_of(item, "tensors[\"%s\"][%d]" % (name, index), has_device)))
        self.count, self.list_count = len(given), len(lists)
        self.rows = (_abi.TensorSource * max(1, self.count))()
        self.lists = (_abi.TensorListEntry * max(1, self.list_count))()
        for row, (text, index, source) in zip(self.rows, given):
            self._fill(row, text, index, source)
        for entry, (text, length) in zip(self.lists, lists.values()):
            entry.name, entry.name_length, entry.length = text.address, text.length, length

    def _fill(self, row: _abi.TensorSource, name: Text, index: int, source: Source) -> None:
        rank = len(source.shape)
        dtype, shape = Text(source.dtype), (c_uint64 * max(1, rank))(*source.shape)
        row.name, row.name_length = name.address, name.length
        row.dtype, row.dtype_length = dtype.address, dtype.length
        row.data, row.bytes = source.address or None, source.bytes or 0
        row.shape, row.rank = addressof(shape), rank
        self.keep += [dtype, shape]
        if source.strides is not None:
            strides = (c_int64 * max(1, rank))(*source.strides)
            row.strides = addressof(strides)
            self.keep.append(strides)
        if index >= 0:
            row.flags, row.list_index = _abi.TENSOR_LISTED, index
        self.owners.append(source.owner)

    def put(self, stage: _abi.Stage) -> None:
        """Points a stage to them."""
        stage.tensors, stage.tensor_count, stage.tensor_stride = addressof(self.rows), self.count, sizeof(_abi.TensorSource)
        stage.lists, stage.list_count = addressof(self.lists), self.list_count
        stage.list_stride = sizeof(_abi.TensorListEntry)
