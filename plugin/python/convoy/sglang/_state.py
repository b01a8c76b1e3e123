# SPDX-License-Identifier: Apache-2.0
"""What this process has open for its host: one context, opened at first use, and the groups in it.

A forked child has inherited handles that belong to its parent; it starts with nothing and opens its own. What is still open
when the interpreter ends is closed by the package.
"""

from __future__ import annotations

import os
import threading
import weakref
from importlib import import_module
from typing import Any, Dict, List, Optional, Tuple, Union

from convoy import errors, library
from convoy._swap import Swapped
from convoy.context import Context
from convoy.group import Group

Path = Union[str, "os.PathLike[str]"]
OPEN_TIMEOUT_S = 60.0  # of a group whose members have all been heard already
_HOST_PATIENCE_S = 1800.0  # torch's own default for a collective


class Process:
    """One process's context and groups. Not shared with children. Any thread may call it.

    Process groups are held weakly: hosts destroy them and make them again, and each new one gets groups of its own.
    """

    def __init__(self) -> None:
        self._plugin: Optional[library.Plugin] = None
        self._context: Optional[Context] = None
        self.lock = threading.Lock()  # never held while ranks wait for each other
        self.lanes: "weakref.WeakKeyDictionary[Any, Dict[Any, Any]]" = weakref.WeakKeyDictionary()  # see _lanes
        self._opened: List[Tuple[Any, Group]] = []  # (weak reference of the process group, its group)

    def swap(self, path: Path, timeout: Optional[float]) -> Swapped:
        """See ``convoy.sglang.swap``."""
        with self.lock:
            if self._plugin is None:
                self._plugin = library.load()
        return self._plugin.swap(path, timeout)

    def context(self) -> Context:
        """The context; opened when there is none. Raises LoadError and what ``Plugin.context`` raises."""
        with self.lock:
            if self._context is None or self._context.closed:
                if self._plugin is None:
                    self._plugin = library.load()
                self._context = self._plugin.context(secret=os.environ.get("CONVOY_SECRET", ""))
            return self._context

    def groups(self) -> List[Group]:
        """Those that are open."""
        with self.lock:
            return [group for _, group in self._opened if group._inner is not None]

    def _sweep(self) -> None:
        """Closes the groups of process groups that have gone."""
        with self.lock:
            gone = [one for one in self._opened if one[0]() is None]
            self._opened = [one for one in self._opened if one[0]() is not None]
        for reference, group in gone:
            try:
                group.close()
            except errors.ConvoyError:  # a call of it is still inside somewhere; the next sweep closes it
                with self.lock:
                    self._opened.append((reference, group))

    def open_group(self, process_group: Any, **options: Any) -> Group:
        """Opens a group on all ranks of the process group, or raises the same on all of them. Collective."""
        convoy_torch = import_module("convoy.torch")
        self._sweep()
        try:
            context = self.context()
        except Exception as failure:  # the others are opening, and must hear that this rank cannot
            convoy_torch.agree(process_group, failure)
            raise
        options.setdefault("open_timeout", OPEN_TIMEOUT_S)
        group: Group = convoy_torch.open_group(context, process_group, **options)
        with self.lock:
            self._opened.append((weakref.ref(process_group), group))
        return group


def patience(process_group: Any) -> Optional[float]:
    """Seconds that a round waits for a rank that is late: CONVOY_TIMEOUT_MS where it is set (None), else as long as the
    host's own collective on this process group would. A rank that has died is noticed at once and needs no time-out."""
    if os.environ.get("CONVOY_TIMEOUT_MS"):
        return None
    try:
        backend = process_group
        if hasattr(process_group, "_get_backend"):
            backend = process_group._get_backend(import_module("torch").device("cpu"))
        seconds = float(backend.options._timeout.total_seconds())
    except (AttributeError, RuntimeError, TypeError):
        return _HOST_PATIENCE_S
    return min(max(seconds, 1.0), 86400.0)


_inherited: List[Process] = []  # kept, as dropping a context of the parent's would close it
_process = Process()


def _in_child() -> None:
    global _process
    _inherited.append(_process)
    _process = Process()


os.register_at_fork(after_in_child=_in_child)


def process() -> Process:
    """This process's state."""
    return _process


def context() -> Context:
    """This process's context, opened when there is none."""
    return _process.context()


def swap(path: Path, timeout: Optional[float] = None) -> Swapped:
    """Puts another build of the plugin behind the hooks of this process, between two of its collectives or while they run:
    see ``Plugin.swap``. Each process does it for itself, at any time; others notice a pause."""
    return _process.swap(path, timeout)


def groups() -> List[Group]:
    """The groups that hooks have opened in this process and that are still open."""
    return _process.groups()


def call_logs() -> Dict[str, Any]:
    """The last rounds of each group: {name: ``Group.call_log()``'s list}. For tests and debugging."""
    return {group.name: group.call_log() for group in groups()}
