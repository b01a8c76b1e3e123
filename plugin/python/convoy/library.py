# SPDX-License-Identifier: Apache-2.0
"""Finding and loading the plugin."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from convoy import _build, _search, errors
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
        context = Context(self._build, secret, settings, log, log_level)
        self._contexts = [c for c in self._contexts if not c.closed] + [context]
        return context

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


def load(path: "Optional[Union[str, os.PathLike[str]]]" = None) -> Plugin:
    """Loads the plugin: from ``path``, else CONVOY_LIBRARY, else beside this package, else the system's directories.

    The file decides before any of its code runs. It is loaded with RTLD_NOW and RTLD_LOCAL, and a build that is mapped
    already is used again. Raises NotFound, BadFile (no shared object of this machine), NoEntry (no plugin), TooOld, TooNew
    (versions; the text has both ranges), InitFailed (the dynamic linker refused it).
    """
    return Plugin(_build.load(_search.find(path)))
