# SPDX-License-Identifier: Apache-2.0
"""Finding and loading the plugin."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from convoy import _build, _callbacks, _search, errors
from convoy._buffers import nanoseconds
from convoy._life import is_below
from convoy._swap import Swap, Swapped
from convoy.context import Context, LogFunction
from convoy.poll import consensus
from convoy.sync import Padded, padded_size, starts


@dataclass(frozen=True)
class PluginInfo:
    """What was loaded: from its file, and what its families answered."""

    path: str
    release: str
    build_id: str
    machine: str
    wire: Tuple[int, int]  # lowest and highest wire version
    ucx: str  # releases of UCX that it opens
    families: Dict[str, str]  # name: agreed version, or why it was refused


class Plugin:
    """One loaded build. A context manager: leaving it closes the contexts that were opened from it.

    The code stays mapped until the process ends, as the plugin asks for.
    """

    def __init__(self, build: _build.Build) -> None:
        self._build = build
        self._contexts: List[Context] = []
        self._locks: Dict[int, Any] = {}  # by process, as a forked child may inherit one that nobody gives back
        self._swaps: Dict[int, Swap] = {}  # by process: the one that is under way

    def info(self) -> PluginInfo:
        """What is loaded. Opens nothing."""
        file = self._build.file
        return PluginInfo(file.path, file.release, file.build_id, file.machine, file.wire, file.ucx, self._build.versions())

    def context(
        self,
        secret: Union[bytes, str] = b"",
        settings: Optional[Mapping[str, Any]] = None,
        log: Union[LogFunction, bool] = True,
        log_level: str = "warning",
    ) -> Context:
        """Opens an instance; opens neither UCX nor sockets.

        secret: shared by all members, at most 1,024 bytes; empty lets everybody in. settings: as in the README under
        "Configuration", such as {"timeout_ms": 2000}. log: True sends lines to the logger "convoy", a function is called
        as log(level, text) on threads that are inside a call, False drops them. log_level: "error", "warning", "info",
        "debug" or "trace".
        Raises InvalidArgument (unknown setting, value out of range), NoMemory, SystemFailure.
        """
        with self._lock():
            context = Context(self._build, secret, settings, log, log_level)
            self._contexts = [c for c in self._contexts if c._life.inner is not None] + [context]
        return context

    def _lock(self) -> Any:
        """Of the list of contexts."""
        return self._locks.setdefault(os.getpid(), threading.RLock())

    def swap(self, path: "Union[str, os.PathLike[str]]", timeout: Optional[float] = None) -> Swapped:
        """Puts another build behind this plugin and all that came from it, while other threads go on calling: contexts,
        groups, prepared calls, started operations, engines, peers, transfers and views. They stay the same objects; closed
        ones stay closed. Peers in other processes notice a pause. Going back is the same, with the old path.

        The file decides before any of its code runs: it must serve every family that the loaded build serves, and both
        must serve "move". Then the same contexts are opened in it, and one after another is handed over: no new rounds
        begin, open ones end, the state goes over, the old build's memory is freed, but for its code and handles. A call that
        comes meanwhile waits for the end of the swap, also when its own time is shorter, and is made on the new build.

        path: of the file. timeout: seconds for open rounds to end and be read, None for the setting close_timeout_ms. It
        returns what was done. When it raises, the loaded build goes on, and the text says in which phase it failed:
        NotFound, BadFile, NoEntry, TooOld, TooNew, Unsupported, InitFailed (the file); InvalidArgument (its settings);
        DrainTimeout (a round has not ended, or has not been read; the text says whose); VersionMismatch, Malformed,
        NoMemory, SystemFailure (import and resume); Busy (another swap, a function that the plugin has called, or a signal's
        handler in the middle of a call).
        Ctrl-C stops a swap that is not committed; it raises KeyboardInterrupt once that is undone, or the swap is complete.
        """
        _callbacks.refuse_inside("swap")
        time_ns = nanoseconds(timeout)
        for context in self._contexts:
            _refuse_below(context)
        seconds = time_ns / 1e9 if time_ns else max([1.0] + [c._close_s for c in self._contexts])
        return Swap(self, os.fspath(path), seconds).result()

    def _behind(self, build: _build.Build) -> List[Context]:
        """Open contexts that are not of this build."""
        return [c for c in self._contexts if c._life.inner is not None and not c._life.forked and c._build is not build]

    def _settle(self, build: _build.Build) -> bool:
        """Takes this build for new contexts, when all that are open are of it."""
        with self._lock():
            if not self._behind(build):
                self._build = build
        return self._build is build

    def consensus(self, ids: Sequence[int], good: Sequence[int], bad: Sequence[int], success_state: int) -> List[Optional[int]]:
        """Pipeline-parallel consensus of agreed lists: Failed for an id among ``bad``, ``success_state`` for one among
        ``good``, None for one in neither. It never communicates. Ids are below 2**64."""
        return consensus(self._build, ids, good, bad, success_state)

    def padded_size(self, tokens: Sequence[int], captures: Optional[Sequence[int]] = None, limit: int = 0,
                    layout: str = "max") -> Padded:
        """The padded size that all ranks compute alike from gathered tokens (one count per rank).

        captures: ascending sizes that a graph was captured for, None = no rounding. limit: the largest figure that is
        eligible, 0 = none. layout: "max" pads every rank to one extent, "sum" lets ranks follow each other. Pure."""
        return padded_size(self._build, tokens, captures, limit, layout)

    def starts(self, tokens: Sequence[int], extent: int, layout: str = "max") -> List[int]:
        """Where each rank starts, for a layout and a given extent ("sum" ignores it). Pure."""
        return starts(self._build, tokens, extent, layout)

    def close(self, timeout: Optional[float] = None) -> None:
        """Closes the contexts, each within ``timeout`` seconds (None: the setting close_timeout_ms)."""
        failure: Optional[BaseException] = None
        for context in self._contexts:
            try:
                context.close(timeout)
            except errors.ConvoyError as reason:  # the others are closed all the same
                failure = failure or reason
        self._contexts = [context for context in self._contexts if not context.closed]
        if failure is not None:
            raise failure

    def __enter__(self) -> "Plugin":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<convoy.Plugin %s, build %s, from %s>" % (
            self._build.file.release, self._build.file.build_id[:12], self._build.file.path)


def _refuse_below(context: Context) -> None:
    """Raises Busy: a call that this thread is in would have to end first."""
    suspended = [*context._life._inside, *(getattr(member, "owner", None) for member in context._life.members)]
    if any(token is not None and is_below(token) for token in suspended):
        raise errors.Busy("swap from a signal's handler, in the middle of a call that would have to end first")


def load(path: "Optional[Union[str, os.PathLike[str]]]" = None) -> Plugin:
    """Loads the plugin: from ``path``, else CONVOY_LIBRARY, else beside this package, else the system's directories.

    The file decides before any of its code runs. It is loaded with RTLD_NOW and RTLD_LOCAL, and a build that is mapped
    already is used again. Raises NotFound, BadFile (no shared object of this machine), NoEntry (no plugin), TooOld, TooNew
    (versions; the text has both ranges), InitFailed (the dynamic linker refused it).
    """
    return Plugin(_build.load(_search.find(path)))
