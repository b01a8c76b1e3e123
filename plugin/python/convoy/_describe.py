# SPDX-License-Identifier: Apache-2.0
"""Texts that the plugin writes into memory of ours."""

from __future__ import annotations

import ctypes
from ctypes import addressof, byref, sizeof
from typing import Any, Callable, Optional

from convoy import _abi, errors

_FIRST = 16384


def read_bytes(call: Callable[[Any, Any], int]) -> bytes:
    """Calls with (text buffer, error) until the text fits; it may grow between two calls."""
    capacity = _FIRST
    while True:
        memory = ctypes.create_string_buffer(capacity)
        buffer = _abi.TextBuffer(struct_size=sizeof(_abi.TextBuffer), data=addressof(memory), capacity=capacity)
        error = _abi.Error(struct_size=sizeof(_abi.Error))
        status = call(byref(buffer), byref(error))
        if status == _abi.OK:
            return memory.raw[: buffer.length]
        if status != _abi.BUFFER_TOO_SMALL:
            raise errors.make(status, error)
        capacity = buffer.length + buffer.length // 4 + 1


def describe(slot: _abi.Slot, inner: Optional[int], topic: int) -> str:
    """The text of a topic about a context, group or engine."""
    return read_bytes(lambda buffer, error: slot(inner, topic, buffer, error)).decode("utf-8", "replace")
