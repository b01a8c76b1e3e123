# SPDX-License-Identifier: Apache-2.0
"""One loaded build: its file, its tables of functions, and what each family was answered.

Everything that holds a handle of the plugin holds {build, inner}: the build whose tables are called, and the plugin's own
pointer. Nothing else of the package knows the plugin's addresses, so that another build can be put behind the same
objects.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, sizeof
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar

from convoy import _abi, _elf, _mapped, errors

TABLES: Tuple[Any, ...] = (_abi.CoreTable, _abi.PollTable, _abi.SyncTable, _abi.TransferTable,
                          _abi.MoveTable)
HOST_NAME = b"convoy for Python"
_SPELLINGS = 16  # builds that can follow each other under one file name
T = TypeVar("T")


class Build:
    """Tables by family (``core``, ``poll``, ``sync``, ``transfer``, ``move``) of one mapped build."""

    def __init__(self, file: _elf.FileInfo) -> None:
        self.file = file
        _check_family(file, _abi.CoreTable)
        self.library, self.query = _map(file)
        self.answers = _negotiate(file, self.query)
        refused = self.answers["core"]
        if refused.status != _abi.OK:
            raise errors.class_of(refused.status)("%s: %s" % (file.path, _reason(refused)), status=refused.status)
        # What the first build of a plugin has agreed to: its successors must, and need not agree to more.
        self.counted_on = frozenset(family for family, answer in self.answers.items() if answer.status == _abi.OK)
        self.core: _abi.CoreTable = self._table(_abi.CoreTable)
        self.poll: _abi.PollTable = self._table(_abi.PollTable)
        self.sync: _abi.SyncTable = self._table(_abi.SyncTable)
        self.transfer: _abi.TransferTable = self._table(_abi.TransferTable)
        self.move: _abi.MoveTable = self._table(_abi.MoveTable)

    def _table(self, cls: Callable[[], T]) -> T:
        family: str = getattr(cls, "FAMILY")
        return _bind(cls(), self.answers[family], getattr(cls, "SLOTS"))

    def versions(self) -> Dict[str, str]:
        """Each family's agreed version, or why it was refused."""
        return {family: "%d.%d" % (answer.major, answer.minor) if answer.status == _abi.OK else _reason(answer) or "not offered"
                for family, answer in self.answers.items()}


def _version(text: str) -> Tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


def _check_family(file: _elf.FileInfo, cls: Any) -> None:
    """Refuses by the manifest alone a plugin that offers this family in no version which this package can use."""
    own = "%d.0 to %d.%d" % (cls.MAJOR, cls.MAJOR, cls.MINOR)
    try:
        rows = [(_version(f["min"]), _version(f["max"])) for f in file.manifest["families"] if f["name"] == cls.FAMILY]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise errors.BadFile("%s is corrupt: its manifest has a version that is not MAJOR.MINOR" % file.path) from None
    if not rows:
        raise errors.Unsupported("%s offers no family \"%s\"" % (file.path, cls.FAMILY))
    if any(low <= (cls.MAJOR, cls.MINOR) and high >= (cls.MAJOR, 0) for low, high in rows):
        return
    kind = errors.TooNew if min(rows)[0] > (cls.MAJOR, cls.MINOR) else errors.TooOld
    raise kind("%s offers %s %s; this package uses %s %s" % (
        file.path, cls.FAMILY, ", ".join("%d.%d to %d.%d" % (*low, *high) for low, high in rows), cls.FAMILY, own))


def check_successor(running: Build, file: _elf.FileInfo) -> None:
    """Refuses by the manifest alone what cannot take over from a build: it must serve all that this one serves."""
    answer = running.answers["move"]
    if answer.status != _abi.OK:
        raise errors.Unsupported("the build that is loaded cannot hand over, it has no family \"move\": %s" % (
            _reason(answer) or "not offered"))
    for cls in TABLES:
        if cls.FAMILY in running.counted_on:
            _check_family(file, cls)
    (low, high), (own_low, own_high) = file.wire, running.file.wire
    if low > own_high or high < own_low:
        kind = errors.TooNew if low > own_high else errors.TooOld
        raise kind("%s talks wire %d to %d, the build that is loaded %d to %d" % (file.path, low, high, own_low, own_high))


def load_successor(running: Build, file: _elf.FileInfo) -> Build:
    """Maps and negotiates what ``check_successor`` has found right. Raises Unsupported: it refuses a family after all."""
    build = Build(file)
    build.counted_on = running.counted_on
    for family, answer in build.answers.items():
        if family in running.counted_on and answer.status != _abi.OK:
            raise errors.Unsupported("%s refuses family \"%s\": %s" % (file.path, family, _reason(answer) or "not offered"))
    return build


def _reason(answer: _abi.FamilyAnswer) -> str:
    return answer.reason.decode("utf-8", "replace")


def _map(file: _elf.FileInfo) -> Tuple[Any, Any]:
    """The library and its one function, of the very build that was inspected.

    dlopen compares names before files: a file that was replaced under its old name gives the old code. Another spelling
    of the same path makes the dynamic linker compare files.
    """
    directory, name = os.path.split(os.path.abspath(file.path))
    for spelling in range(_SPELLINGS):
        path = os.path.join(directory, "./" * spelling + name)
        try:
            library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as reason:
            raise errors.InitFailed("%s: the dynamic linker says: %s" % (path, reason)) from None
        try:
            query = library.convoy_query
        except AttributeError:
            raise errors.NoEntry("%s has no %s" % (file.path, _abi.QUERY_SYMBOL)) from None
        query.restype, query.argtypes = _abi.QUERY_RESULT, _abi.QUERY_ARGUMENTS
        if _mapped.build_id(query) == file.build_id:
            return library, query
    raise errors.InitFailed("another build is mapped under the name %s; load this one under a name of its own" % file.path)


def _ask(file: _elf.FileInfo, query: Any, requests: Any, answers: Any) -> None:
    host = _abi.HostInfo(struct_size=sizeof(_abi.HostInfo), name_length=len(HOST_NAME))
    name = ctypes.create_string_buffer(HOST_NAME)
    host.name = ctypes.addressof(name)
    plugin = _abi.PluginInfo(struct_size=sizeof(_abi.PluginInfo))
    host.families, host.family_count = ctypes.addressof(requests), len(requests)
    host.family_stride = sizeof(_abi.FamilyRequest)
    plugin.answers, plugin.answer_capacity = ctypes.addressof(answers), len(answers)
    plugin.answer_stride = sizeof(_abi.FamilyAnswer)
    error = _abi.Error(struct_size=sizeof(_abi.Error))
    status = query(byref(host), byref(plugin), byref(error))
    if status != _abi.OK:
        words = error.text.decode("utf-8", "replace") or "without a reason"
        raise errors.InitFailed("%s: its %s gives status %d: %s" % (file.path, _abi.QUERY_SYMBOL, status, words))


def _negotiate(file: _elf.FileInfo, query: Any) -> Dict[str, _abi.FamilyAnswer]:
    """Asks for every family as this package knows it: one major, every minor of it."""
    requests = (_abi.FamilyRequest * len(TABLES))()
    answers = (_abi.FamilyAnswer * len(TABLES))()
    names: List[Any] = [ctypes.create_string_buffer(cls.FAMILY.encode()) for cls in TABLES]
    for request, cls, name in zip(requests, TABLES, names):
        request.name, request.name_length = ctypes.addressof(name), len(cls.FAMILY)
        request.major_min, request.minor_min = cls.MAJOR, 0
        request.major_max, request.minor_max = cls.MAJOR, cls.MINOR
    _ask(file, query, requests, answers)
    for answer in answers:
        if answer.status == _abi.OK and not answer.table:
            answer.status, answer.reason = _abi.INIT_FAILED, b"it was agreed on, but there is no table"
    return {cls.FAMILY: answer for cls, answer in zip(TABLES, answers)}


def _bind(table: T, answer: _abi.FamilyAnswer, slots: _abi.Slots) -> T:
    """Gives the object one callable per slot. What the build lacks raises Unsupported when it is called."""
    size = 0
    if answer.status == _abi.OK:
        size = _abi.TableHeader.from_address(answer.table).table_size
    for name, offset, prototype in slots:
        function: Optional[Any] = None
        if offset + sizeof(ctypes.c_void_p) <= size:
            address = ctypes.c_void_p.from_address(answer.table + offset).value
            function = prototype(address) if address else None
        setattr(table, name, function or _missing(answer, name))
    return table


def _missing(answer: _abi.FamilyAnswer, name: str) -> Callable[..., int]:
    why = _reason(answer) or "the loaded build is older than this package"

    def missing(*arguments: Any) -> int:
        raise errors.Unsupported("the plugin has no %s: %s" % (name, why))

    return missing


def load(path: str) -> Build:
    """Inspects, maps and negotiates."""
    return Build(_elf.inspect(path))
