# SPDX-License-Identifier: Apache-2.0
"""Which build an address of this process belongs to, read from the memory that is mapped there."""

from __future__ import annotations

import ctypes
import struct
from typing import Any, Iterator, Optional, Tuple

_GNU_BUILD_ID = 3
_PT_NOTE = 4


def _base(address: int) -> Optional[int]:
    """Where the file that lies at the address begins in memory."""
    start_of = {}
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            span, _, offset, device, inode = line.split()[:5]
            start, end = (int(part, 16) for part in span.split("-"))
            if int(offset, 16) == 0:
                start_of[device, inode] = start  # ascending: a file that is mapped twice has its nearest beginning here
            if start <= address < end:
                return start_of.get((device, inode)) if inode != "0" else None
    return None


def _notes(base: int) -> Iterator[Tuple[bytes, int, bytes]]:
    head = ctypes.string_at(base, 64)
    offset, = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    for i in range(count):
        kind, _, _, at, _, _, length, align = struct.unpack("<IIQQQQQQ", ctypes.string_at(base + offset + i * size, 56))
        if kind != _PT_NOTE or align > 4:
            continue
        data, place = ctypes.string_at(base + at, length), 0
        while place + 12 <= len(data):
            name_bytes, text_bytes, number = struct.unpack_from("<III", data, place)
            text_at = place + 12 + (name_bytes + 3) // 4 * 4
            yield data[place + 12 : place + 12 + name_bytes], number, data[text_at : text_at + text_bytes]
            place = text_at + (text_bytes + 3) // 4 * 4


def build_id(function: Any) -> str:
    """The build id, hexadecimal, of the shared object that a function lies in; empty when there is none."""
    base = _base(ctypes.cast(function, ctypes.c_void_p).value or 0)
    if base is None:
        return ""
    return next((text.hex() for owner, kind, text in _notes(base) if owner == b"GNU\0" and kind == _GNU_BUILD_ID), "")
