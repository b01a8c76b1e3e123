# SPDX-License-Identifier: Apache-2.0
"""The hash that a plugin carries of what is loaded of it (XXH64, seed 0), so that a damaged file is refused.

Damage in code, symbols or relocations contradicts nothing that the headers say, and the dynamic linker would crash on it.
"""

from __future__ import annotations

import struct

_MASK = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _lane(value: int, word: int) -> int:
    return _rotated((value + word * _P2) & _MASK, 31) * _P1 & _MASK


def _stripes(data: bytes) -> int:
    """All whole runs of 32 bytes; written out, since most of a load's time is spent here."""
    mask, p1, p2 = _MASK, _P1, _P2
    a, b, c, d = (p1 + p2) & mask, p2, 0, -p1 & mask
    for w, x, y, z in struct.iter_unpack("<4Q", memoryview(data)[: len(data) // 32 * 32]):
        a = (a + w * p2) & mask
        a = ((a << 31 | a >> 33) & mask) * p1 & mask
        b = (b + x * p2) & mask
        b = ((b << 31 | b >> 33) & mask) * p1 & mask
        c = (c + y * p2) & mask
        c = ((c << 31 | c >> 33) & mask) * p1 & mask
        d = (d + z * p2) & mask
        d = ((d << 31 | d >> 33) & mask) * p1 & mask
    merged = (_rotated(a, 1) + _rotated(b, 7) + _rotated(c, 12) + _rotated(d, 18)) & mask
    for value in (a, b, c, d):
        merged = ((merged ^ _lane(0, value)) * p1 + _P4) & mask
    return merged


def xxh64(data: bytes) -> int:
    """The 64-bit hash of the bytes."""
    value = _stripes(data) if len(data) >= 32 else _P5
    value = (value + len(data)) & _MASK
    at = len(data) // 32 * 32
    while at + 8 <= len(data):
        word, = struct.unpack_from("<Q", data, at)
        value = (_rotated(value ^ _lane(0, word), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= len(data):
        word, = struct.unpack_from("<I", data, at)
        value = (_rotated(value ^ (word * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        value = _rotated(value ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    value = (value ^ value >> 33) * _P2 & _MASK
    value = (value ^ value >> 29) * _P3 & _MASK
    return value ^ value >> 32
