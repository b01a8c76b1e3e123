# SPDX-License-Identifier: Apache-2.0
"""What a file says about itself, read from the file: none of its code runs.

A plugin carries a JSON manifest in an ELF note (owner "convoy", type 1), a hash of what is loaded of it in a second, and
the linker's build id in another. Loading a file only to learn that it should not have been loaded would be too late.
"""

from __future__ import annotations

import json
import os
import stat
import struct
import sys
from dataclasses import dataclass
from typing import IO, Any, Dict, List, NamedTuple, Optional, Tuple

from convoy import _abi, errors
from convoy._digest import xxh64

_MACHINES = {"x86_64": 62, "aarch64": 183}
_MACHINE_NAMES = {3: "x86 (32 bits)", 40: "arm", 62: "x86-64", 183: "aarch64", 243: "riscv"}
_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_GNU_BUILD_ID = 3
_PT_LOAD, _PT_NOTE = 1, 4
_ET_DYN = 3
_PROGRAM_HEADER_BYTES = 56
_PROGRAM_HEADERS_MAX = 256
_NOTE_BYTES_MAX = 65536
_LOADED_BYTES_MAX = 256 << 20
MANIFEST_SCHEMA = 1


@dataclass(frozen=True)
class FileInfo:
    """What one file says of itself."""

    path: str
    machine: str
    build_id: str  # hexadecimal
    name: str
    release: str
    wire: Tuple[int, int]
    ucx: str  # releases of UCX that it opens
    families: Dict[str, Tuple[str, str]]  # name: lowest and highest version
    manifest: Dict[str, Any]


class _Segment(NamedTuple):
    header: bytes
    kind: int
    offset: int
    length: int  # bytes in the file
    align: int


class _Note(NamedTuple):
    owner: str
    kind: int
    text: bytes
    offset: int  # of the text in the file


def inspect(path: str) -> FileInfo:
    """Reads what the file says of itself. Raises NotFound, SystemFailure, BadFile, NoEntry, TooOld, TooNew."""
    try:
        with open(path, "rb", opener=_open) as file:
            return _inspect(path, file)
    except FileNotFoundError:
        raise errors.NotFound("%s does not exist" % path) from None
    except IsADirectoryError:
        raise errors.BadFile("%s is a directory, no shared object" % path) from None
    except OSError as reason:
        raise errors.SystemFailure("%s cannot be read: %s" % (path, os.strerror(reason.errno or 0)),
                                   errno=reason.errno or 0) from reason


def _open(path: str, flags: int) -> int:
    # Opening a pipe to read waits for a writer, which may never come.
    return os.open(path, flags | os.O_NONBLOCK)


def _inspect(path: str, file: IO[bytes]) -> FileInfo:
    about = os.fstat(file.fileno())
    if not stat.S_ISREG(about.st_mode):
        raise errors.BadFile("%s is %s, no shared object" % (path, _KINDS.get(stat.S_IFMT(about.st_mode), "no file")))
    head = file.read(64)
    machine = _check_header(path, head)
    segments = _segments(path, file, head, about.st_size)
    notes = {(note.owner, note.kind): note for segment in segments for note in _notes(path, file, segment)}
    manifest = notes.get((_abi.NOTE_OWNER, _abi.NOTE_MANIFEST))
    if manifest is None:
        raise errors.NoEntry("%s is a shared object, but no convoy plugin: it has no manifest note" % path)
    _check_digest(path, file, segments, notes.get((_abi.NOTE_OWNER, _abi.NOTE_DIGEST)))
    build_id = notes.get(("GNU", _GNU_BUILD_ID))
    if build_id is None or not build_id.text:
        raise errors.NoEntry("%s has no build id; link it with --build-id" % path)
    return _from_manifest(path, machine, build_id.text.hex(), _parse(path, manifest.text))


def _check_header(path: str, head: bytes) -> str:
    """The machine's name; refuses what cannot be loaded into this process."""
    if not head:
        raise errors.BadFile("%s is empty" % path)
    if len(head) < 64 or head[:4] != b"\x7fELF":
        raise errors.BadFile("%s is no shared object: it does not begin as an ELF file does" % path)
    bits, order = head[4], head[5]
    kind, number = struct.unpack_from("<HH", head, 16)
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


def _segments(path: str, file: IO[bytes], head: bytes, size: int) -> List[_Segment]:
    """The program headers; refuses a file that ends before one of them does."""
    offset, = struct.unpack_from("<Q", head, 32)
    header_bytes, count = struct.unpack_from("<HH", head, 54)
    if header_bytes != _PROGRAM_HEADER_BYTES or not 0 < count <= _PROGRAM_HEADERS_MAX:
        raise errors.BadFile("%s is corrupt: %d program headers of %d bytes" % (path, count, header_bytes))
    if offset + count * header_bytes > size:
        raise errors.BadFile("%s is truncated: it has %d bytes, its program headers end at %d" % (
            path, size, offset + count * header_bytes))
    table = _piece(path, file, offset, count * header_bytes)
    found = []
    for i in range(count):
        header = table[i * header_bytes : (i + 1) * header_bytes]
        kind, _, at, _, _, length, _, align = struct.unpack("<IIQQQQQQ", header)
        if kind in (_PT_LOAD, _PT_NOTE) and at + length > size:
            raise errors.BadFile("%s is truncated: it has %d bytes, a segment ends at %d" % (path, size, at + length))
        found.append(_Segment(header, kind, at, length, align))
    return found


def _piece(path: str, file: IO[bytes], offset: int, length: int) -> bytes:
    file.seek(offset)
    data = file.read(length)
    if len(data) != length:
        raise errors.BadFile("%s was truncated while it was read" % path)
    return data


def _notes(path: str, file: IO[bytes], segment: _Segment) -> List[_Note]:
    found: List[_Note] = []
    if segment.kind != _PT_NOTE or segment.align > 4:  # notes with more alignment are padded otherwise, and none of ours
        return found
    if segment.length > _NOTE_BYTES_MAX:
        raise errors.BadFile("%s is corrupt: notes of %d bytes" % (path, segment.length))
    data, at = _piece(path, file, segment.offset, segment.length), 0
    while at + 12 <= len(data):
        name_bytes, text_bytes, kind = struct.unpack_from("<III", data, at)
        name_at, text_at = at + 12, at + 12 + (name_bytes + 3) // 4 * 4
        if text_at + text_bytes > len(data):
            raise errors.BadFile("%s is corrupt: a note is longer than its segment" % path)
        owner = data[name_at : name_at + name_bytes].rstrip(b"\0").decode("ascii", "replace")
        found.append(_Note(owner, kind, data[text_at : text_at + text_bytes], segment.offset + text_at))
        at = text_at + (text_bytes + 3) // 4 * 4
    return found


def _check_digest(path: str, file: IO[bytes], segments: List[_Segment], note: Optional[_Note]) -> None:
    """Refuses a file whose loaded bytes are not those that it was built with."""
    if note is None or len(note.text) != 8 or not any(note.text):
        raise errors.BadFile("%s is damaged, or not finished by its build: it has no digest" % path)
    loaded = sum(segment.length for segment in segments if segment.kind == _PT_LOAD)
    if loaded > _LOADED_BYTES_MAX:
        raise errors.BadFile("%s is corrupt: segments of %d bytes are to be loaded" % (path, loaded))
    # Left out: the digest itself, and in the ELF header the place and number of sections, which `strip` changes.
    holes = ((note.offset, 8), (40, 8), (60, 4))
    hashed = bytearray()
    for segment in segments:
        hashed += segment.header
        if segment.kind == _PT_LOAD:
            hashed += _punched(_piece(path, file, segment.offset, segment.length), segment.offset, holes)
    built, = struct.unpack("<Q", note.text)
    found = xxh64(bytes(hashed))
    if found != built:
        raise errors.BadFile("%s is damaged: its bytes hash to %016x, it was built with %016x" % (path, found, built))


def _punched(data: bytes, offset: int, holes: Tuple[Tuple[int, int], ...]) -> bytearray:
    out = bytearray(data)
    for at, length in holes:
        start, end = max(at, offset) - offset, min(at + length, offset + len(data)) - offset
        if start < end:
            out[start:end] = bytes(end - start)
    return out


def _parse(path: str, text: bytes) -> Dict[str, Any]:
    try:
        manifest = json.loads(text.rstrip(b"\0").decode("utf-8"))
    except (ValueError, RecursionError) as reason:
        raise errors.BadFile("%s is corrupt: its manifest is no JSON: %s" % (path, reason)) from None
    if not isinstance(manifest, dict):
        raise errors.BadFile("%s is corrupt: its manifest is no JSON object" % path)
    schema = manifest.get("schema")
    if not isinstance(schema, int):
        raise errors.BadFile("%s is corrupt: its manifest has no schema number" % path)
    if schema != MANIFEST_SCHEMA:
        cls = errors.TooNew if schema > MANIFEST_SCHEMA else errors.TooOld
        raise cls("%s has a manifest of schema %d; this package reads %d" % (path, schema, MANIFEST_SCHEMA))
    return manifest


def _from_manifest(path: str, machine: str, build_id: str, manifest: Dict[str, Any]) -> FileInfo:
    try:
        families = {str(f["name"]): (str(f["min"]), str(f["max"])) for f in manifest["families"]}
        wire = (int(manifest["wire"]["min"]), int(manifest["wire"]["max"]))
        return FileInfo(path, machine, build_id, str(manifest["name"]), str(manifest["release"]), wire,
                        str(manifest["ucx"]), families, manifest)
    except (KeyError, TypeError, ValueError, AttributeError) as reason:
        raise errors.BadFile("%s is corrupt: a field of its manifest is missing or of a wrong kind: %s" % (
            path, reason)) from None
