# SPDX-License-Identifier: Apache-2.0
"""Memory of the caller's, by address: any object with the buffer protocol, tensors, or a plain address.

An address is valid as long as the object that is kept beside it.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int, c_ssize_t, c_void_p, py_object
from typing import Any, NamedTuple, Optional, Tuple

from convoy import errors
from convoy._buffers import U64_MAX, integer, is_tensor

_WRITABLE, _ANY = 0x0001, 0x011C  # PyBUF_SIMPLE | WRITABLE; strides, format and indirections, read-only allowed


class _Struct(ctypes.Structure):
    """Py_buffer of CPython's stable ABI."""

    buf: Optional[int]
    len: int
    itemsize: int
    ndim: int
    format: Optional[bytes]
    shape: Any
    strides: Any
    suboffsets: Any

    _fields_ = [
        ("buf", c_void_p), ("obj", c_void_p), ("len", c_ssize_t), ("itemsize", c_ssize_t), ("readonly", c_int),
        ("ndim", c_int), ("format", c_char_p), ("shape", ctypes.POINTER(c_ssize_t)),
        ("strides", ctypes.POINTER(c_ssize_t)), ("suboffsets", ctypes.POINTER(c_ssize_t)), ("internal", c_void_p),
    ]


_get = ctypes.pythonapi.PyObject_GetBuffer
_get.argtypes, _get.restype = [py_object, c_void_p, c_int], c_int
_put = ctypes.pythonapi.PyBuffer_Release
_put.argtypes, _put.restype = [c_void_p], None


class Exported:
    """A buffer that its object has given out; it is given back with this. ctypes alone gives no address of what is
    read-only, nor of a view with gaps."""

    _struct: Optional[_Struct] = None  # also where Ctrl-C ends the construction

    def __init__(self, value: Any, writable: bool = False) -> None:
        struct = _Struct()
        _get(value, byref(struct), _WRITABLE if writable else _ANY)  # raises TypeError or BufferError
        self._struct = struct
        self.address = struct.buf or 0
        self.bytes = struct.len
        self.item_bytes = struct.itemsize
        self.format = (struct.format or b"B").decode("ascii")
        dimensions = struct.ndim if struct.shape else 0
        self.shape: Tuple[int, ...] = tuple(struct.shape[i] for i in range(dimensions))
        self.strides: Tuple[int, ...] = tuple(struct.strides[i] for i in range(dimensions)) if struct.strides else ()
        self.is_indirect = bool(struct.suboffsets)

    def __del__(self) -> None:
        if self._struct is not None and _put is not None:
            _put(byref(self._struct))


class Memory(NamedTuple):
    """``bytes`` at ``address``; ``owner`` keeps them."""

    address: int
    bytes: int
    owner: Any


def memory_of(target: Any, what: str, has_device: bool, writable: bool = True) -> Memory:
    """Dense memory of a tensor, of a buffer, or an (address, bytes) pair as it is."""
    if isinstance(target, tuple) and len(target) == 2:
        return Memory(integer(target[0], what + ": address", 0, U64_MAX), integer(target[1], what + ": bytes", 0, U64_MAX), None)
    if is_tensor(target):
        check_device(target, what, has_device)
        if not target.is_contiguous():
            raise errors.InvalidArgument("%s: the tensor is not contiguous" % what)
        return Memory(target.data_ptr(), target.numel() * target.element_size(), target)
    try:
        exported = Exported(target, writable)
    except (TypeError, BufferError, ValueError) as reason:
        raise errors.InvalidArgument("%s must be %sa tensor, a buffer or (address, bytes): %s" % (
            what, "writable: " if writable else "", reason)) from None
    return Memory(exported.address, exported.bytes, exported)


def check_device(tensor: Any, what: str, has_device: bool) -> None:
    """A device pointer that no device is there for would be read as if it were the host's."""
    kind = tensor.device.type
    if kind == "meta" or (kind != "cpu" and not has_device):
        raise errors.InvalidArgument("%s lies on device %s; the engine was opened without a device" % (what, tensor.device))
