# SPDX-License-Identifier: Apache-2.0
"""Names of element types: the host's and safetensors' spellings, their sizes, and what numpy calls them.

A type that is not listed here is carried as bytes under its name.
"""

from __future__ import annotations

from typing import Dict, Optional

from convoy import errors

BITS: Dict[str, int] = {
    "bool": 8, "uint8": 8, "int8": 8, "uint16": 16, "int16": 16, "uint32": 32, "int32": 32, "uint64": 64, "int64": 64,
    "float16": 16, "bfloat16": 16, "float32": 32, "float64": 64, "float8_e4m3fn": 8, "float8_e5m2": 8,
    "float8_e8m0fnu": 8, "complex64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}
_OTHER_NAMES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "C64": "complex64",
    "half": "float16", "float": "float32", "double": "float64", "short": "int16", "int": "int32", "long": "int64",
    "cfloat": "complex64",
}
_BIT_PATTERNS = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8", "float8_e8m0fnu": "uint8"}
_NUMPY_ONLY = ("complex128",)
_LESS_THAN_A_BYTE = ("F4", "F6_E2M3", "F6_E3M2")


def known(name: str) -> Optional[str]:
    """The host's name of a type under any of its names; None: it is carried as bytes."""
    plain = name[len("torch."):] if name.startswith("torch.") else name
    plain = _OTHER_NAMES.get(plain, plain)
    return plain if plain in BITS else None


def of_format(code: str, item_bytes: int) -> str:
    """The type of a buffer's format. Raises InvalidArgument: byte order, structs, pointers."""
    plain = code.lstrip("@=<")
    if len(plain) != 1 or plain not in "?bBhHiIlLqQnNefd":
        raise errors.InvalidArgument("a buffer of format \"%s\" has no type of tensors" % code)
    if plain in "bBhHiIlLqQnN":
        return "%s%d" % ("int" if plain.islower() else "uint", 8 * item_bytes)
    return "bool" if plain == "?" else "float%d" % (8 * item_bytes)


def for_numpy(name: str) -> str:
    """The numpy type in which elements are shown: of a type that numpy lacks, unsigned integers of their bits.
    Raises Unsupported: less than a byte, or a type that convoy does not know."""
    plain = known(name)
    if name in _NUMPY_ONLY:
        return name
    if plain is None or plain in _LESS_THAN_A_BYTE:
        raise errors.Unsupported("numpy has no elements of type \"%s\"; `data` has the bytes" % name)
    return _BIT_PATTERNS.get(plain, plain)


def for_torch(name: str) -> str:
    """The name among torch's attributes; whether this torch has it is for the caller to see. Raises Unsupported."""
    plain = name if name in _NUMPY_ONLY else known(name)
    if plain is None or plain in _LESS_THAN_A_BYTE:
        raise errors.Unsupported("torch has no elements of type \"%s\"; `data` has the bytes" % name)
    return plain
