# SPDX-License-Identifier: Apache-2.0
"""Addresses of what a caller passes: lists, bytes, arrays, and the objects of numpy and torch, which are never imported.

Whoever takes an address keeps the object that is returned beside it, for as long as the plugin may read it.
"""

from __future__ import annotations

import array
import ctypes
import operator
from dataclasses import dataclass
from typing import Any, Optional, Sequence

from convoy import errors

_INTEGER_FORMATS = frozenset("bBhHiIlLqQ?")
ENTRIES_MAX = 1 << 24  # of one list; the plugin's own limits are lower and depend on the group
I32_MIN, I32_MAX, U32_MAX = -(1 << 31), (1 << 31) - 1, (1 << 32) - 1
I64_MIN, I64_MAX, U64_MAX = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1


@dataclass(frozen=True)
class Memory:
    """``count`` integers of ``item_bytes`` each, ``stride`` bytes apart, from ``address`` on."""

    address: int
    item_bytes: int
    count: int
    stride: int
    owner: Any
    is_signed: bool = False


def integer(value: Any, what: str, low: int, high: int) -> int:
    """An integer within a range; ctypes would cut others to their lowest bits. Raises InvalidArgument."""
    try:
        number = operator.index(value)
    except TypeError:
        raise errors.InvalidArgument("%s is %r; an integer is needed" % (what, value)) from None
    if not low <= number <= high:
        raise errors.InvalidArgument("%s is %d; %d to %d are allowed" % (what, number, low, high))
    return number


def _of_tensor(value: Any, what: str) -> Memory:
    if value.device.type != "cpu":
        raise errors.InvalidArgument("%s lies on device %s; it must be host memory" % (what, value.device))
    if value.dim() != 1 or value.is_floating_point() or value.is_complex():
        raise errors.InvalidArgument("%s must be a tensor of integers with one dimension, not %s of shape %s" % (
            what, value.dtype, tuple(value.shape)))
    item, stride = value.element_size(), value.stride(0) if value.numel() else 1
    if stride <= 0:  # one value seen many times: the plugin takes a stride of 0 for none given
        value, stride = value.contiguous(), 1
    return Memory(value.data_ptr(), item, value.numel(), item * stride, value, bool(value.dtype.is_signed))


def _of_view(view: memoryview, what: str) -> Memory:
    code = view.format.lstrip("@=<")
    if view.ndim != 1 or code not in _INTEGER_FORMATS:
        raise errors.InvalidArgument("%s must hold integers in one dimension, not format \"%s\" in %d dimensions" % (
            what, view.format, view.ndim))
    stride = view.strides[0] if view.strides else view.itemsize
    if view.readonly or not view.contiguous:  # ctypes gives no address of it
        copy = bytearray(view.tobytes())
        return Memory(address_of(copy), view.itemsize, len(view), view.itemsize, copy, code.islower())
    owner = (ctypes.c_char * view.nbytes).from_buffer(view) if view.nbytes else None
    return Memory(ctypes.addressof(owner) if owner is not None else 0, view.itemsize, len(view), stride, owner, code.islower())


def is_tensor(value: Any) -> bool:
    """Whether it behaves as torch's tensors do."""
    return hasattr(value, "data_ptr") and hasattr(value, "element_size")


def integers(value: Any, what: str, code: str = "q") -> Memory:
    """Integers of the caller's: a tensor or a buffer is read in place, any other sequence is copied as ``code``."""
    if is_tensor(value):
        return _of_tensor(value, what)
    try:
        view = memoryview(value)
    except TypeError:
        return _of_sequence(value, what, code)
    return _of_view(view, what)


def _of_sequence(value: Sequence[int], what: str, code: str) -> Memory:
    if isinstance(value, str):
        raise errors.InvalidArgument("%s is a string; integers are needed" % what)
    try:
        copy = array.array(code, value)
    except (TypeError, OverflowError) as reason:
        raise errors.InvalidArgument("%s: %s" % (what, reason)) from None
    return Memory(copy.buffer_info()[0], copy.itemsize, len(copy), copy.itemsize, copy, code.islower())


def as_type(value: Any, what: str, code: str) -> Memory:
    """As ``integers``, of exactly this type and without gaps; what differs is copied, and refused where it does not fit."""
    memory = integers(value, what, code)
    wanted = array.array(code).itemsize
    if memory.item_bytes == wanted and memory.stride == wanted and memory.is_signed == code.islower():
        return memory
    return _of_sequence(value.tolist() if hasattr(value, "tolist") else list(value), what, code)


def address_of(memory: Any) -> int:
    """Address of a bytearray, which must not be resized while it is used."""
    return ctypes.addressof((ctypes.c_char * len(memory)).from_buffer(memory)) if len(memory) else 0


class Text:
    """A string for the plugin: UTF-8, with its length."""

    def __init__(self, text: Optional[str]) -> None:
        try:
            data = b"" if text is None else text.encode("utf-8")
        except (AttributeError, UnicodeEncodeError):
            raise errors.InvalidArgument("%r is no text that can be written as UTF-8" % (text,)) from None
        self._buffer = ctypes.create_string_buffer(data) if text is not None else None
        self.address = ctypes.addressof(self._buffer) if self._buffer is not None else None
        self.length = len(data)


def nanoseconds(seconds: Optional[float], what: str = "timeout") -> int:
    """Seconds as the ABI takes times: None is its default, 0."""
    if seconds is None:
        return 0
    try:
        number = 0.0 if isinstance(seconds, (str, bytes)) else float(seconds)
    except (TypeError, ValueError, OverflowError):
        number = 0.0
    if not 0 < number < 2**33:
        raise errors.InvalidArgument("%s is %r; seconds above 0 are allowed, or None for the default" % (what, seconds))
    return max(1, int(number * 1e9))
