# SPDX-License-Identifier: Apache-2.0
"""What a file says about itself, read from the file: none of its code runs.

A plugin carries a JSON manifest in an ELF note (owner "convoy", type 1), and the linker's build id in another. Loading a
file only to learn that it should not have been loaded would be too late.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Tuple

from convoy import _abi, errors

_MACHINES = {"x86_64": 62, "aarch64": 183}
_MACHINE_NAMES = {3: "x86 (32 bits)", 40: "arm", 62: "x86-64", 183: "aarch64", 243: "riscv"}
_GNU_BUILD_ID = 3
_PT_LOAD, _PT_NOTE = 1, 4
_ET_DYN = 3
MANIFEST_SCHEMA = 1


@dataclass(frozen=True)
class FileInfo:
    """What one file says of itself."""

    path: str
    machine: str
    build_id: str  # hexadecimal, empty when it has none
    name: str
    release: str
    wire: Tuple[int, int]
    ucx: str  # releases of UCX that it opens
    families: Dict[str, Tuple[str, str]]  # name: lowest and highest version
    manifest: Dict[str, Any]


def inspect(path: str) -> FileInfo:
    """Reads what the file says of itself. Raises NotFound, SystemFailure, BadFile, NoEntry, TooOld, TooNew."""
    data = _read(path)
    machine = _check_header(path, data)
    notes = {(owner, kind): text for owner, kind, text in _notes(path, data)}
    manifest = notes.get((_abi.NOTE_OWNER, _abi.NOTE_MANIFEST))
    if manifest is None:
        raise errors.NoEntry("%s is a shared object, but no convoy plugin: it has no manifest note" % path)
    return _from_manifest(path, machine, notes.get(("GNU", _GNU_BUILD_ID), b"").hex(), _parse(path, manifest))


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise errors.NotFound("%s does not exist" % path) from None
    except OSError as reason:
        raise errors.SystemFailure("%s cannot be read: %s" % (path, os.strerror(reason.errno or 0)),
                                   errno=reason.errno or 0) from reason


def _check_header(path: str, data: bytes) -> str:
    """The machine's name; refuses what cannot be loaded into this process."""
    if len(data) < 64 or data[:4] != b"\x7fELF":
        raise errors.BadFile("%s is no shared object: it does not begin as an ELF file does" % path)
    bits, order = data[4], data[5]
    kind, number = struct.unpack_from("<HH", data, 16)
    name = _MACHINE_NAMES.get(number, "machine %d" % number)
    own = _MACHINES.get(os.uname().machine, 0)
    own_name = _MACHINE_NAMES.get(own, os.uname().machine)
    if bits != 2 or order != 1 or sys.maxsize < 2**32:
        raise errors.BadFile("%s is for %s with %s bits, this process runs on %s with %d bits" % (
            path, name, {1: "32", 2: "64"}.get(bits, "unknown"), own_name, 64 if sys.maxsize > 2**32 else 32))
    if number != own:
        raise errors.BadFile("%s is for %s, this machine is %s" % (path, name, own_name))
    if kind != _ET_DYN:
        raise errors.BadFile("%s is no shared object: ELF type %d" % (path, kind))
    return name


def _segments(path: str, data: bytes) -> Iterator[Tuple[int, int, int]]:
    """(type, offset, bytes in the file) of each program header; refuses a file that ends before one of them does."""
    offset, = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for i in range(count):
        start = offset + i * size
        if size < 56 or start + size > len(data):
            raise errors.BadFile("%s is truncated: program header %d lies beyond its end" % (path, i))
        kind, = struct.unpack_from("<I", data, start)
        at, = struct.unpack_from("<Q", data, start + 8)
        length, = struct.unpack_from("<Q", data, start + 32)
        if kind in (_PT_LOAD, _PT_NOTE) and at + length > len(data):
            raise errors.BadFile("%s is truncated: it has %d bytes, a segment ends at %d" % (path, len(data), at + length))
        yield kind, at, length


def _notes(path: str, data: bytes) -> List[Tuple[str, int, bytes]]:
    found = []
    for kind, at, length in _segments(path, data):
        end = at + length
        while kind == _PT_NOTE and at + 12 <= end:
            name_bytes, text_bytes, number = struct.unpack_from("<III", data, at)
            name_at, text_at = at + 12, at + 12 + (name_bytes + 3) // 4 * 4
            if text_at + text_bytes > end:
                raise errors.BadFile("%s is corrupt: a note is longer than its segment" % path)
            owner = data[name_at : name_at + name_bytes].rstrip(b"\0").decode("ascii", "replace")
            found.append((owner, number, data[text_at : text_at + text_bytes]))
            at = text_at + (text_bytes + 3) // 4 * 4
    return found


def _parse(path: str, text: bytes) -> Dict[str, Any]:
    try:
        manifest = json.loads(text.rstrip(b"\0").decode("utf-8"))
    except ValueError as reason:
        raise errors.BadFile("%s is corrupt: its manifest is no JSON: %s" % (path, reason)) from None
    if not isinstance(manifest, dict):
        raise errors.BadFile("%s is corrupt: its manifest is no JSON object" % path)
    schema = manifest.get("schema")
    if isinstance(schema, int) and schema != MANIFEST_SCHEMA:
        cls = errors.TooNew if schema > MANIFEST_SCHEMA else errors.TooOld
        raise cls("%s has a manifest of schema %d; this package reads %d" % (path, schema, MANIFEST_SCHEMA))
    return manifest


def _from_manifest(path: str, machine: str, build_id: str, manifest: Dict[str, Any]) -> FileInfo:
    try:
        families = {str(f["name"]): (str(f["min"]), str(f["max"])) for f in manifest["families"]}
        wire = (int(manifest["wire"]["min"]), int(manifest["wire"]["max"]))
        return FileInfo(path, machine, build_id, str(manifest["name"]), str(manifest["release"]), wire,
                        str(manifest["ucx"]), families, manifest)
    except (KeyError, TypeError, ValueError) as reason:
        raise errors.BadFile("%s is corrupt: its manifest lacks %s" % (path, reason)) from None
