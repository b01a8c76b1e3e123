# SPDX-License-Identifier: Apache-2.0
"""The one place where these tests reach into convoy's package: install its hooks, and read the logs of its groups."""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path
from typing import Any, Mapping, Sequence

_ROOT = Path(__file__).resolve().parents[3]
HOOKS = "EQUIVALENCE_HOOKS"  # environment: another module with register() and call_logs(), to test the comparison
Calls = Sequence[Mapping[str, Any]]


def _hooks() -> str:
    return os.environ.get(HOOKS, "convoy.sglang")


def library() -> str:
    """The path of the library under test: CONVOY_LIBRARY, which is set to this tree's build where it is not."""
    return os.environ.setdefault("CONVOY_LIBRARY", str(_ROOT / "build" / "libconvoy.so.1"))


def why_absent() -> str | None:
    """Why the hooks cannot be installed here; None when they can."""
    path = library()
    try:
        if importlib.util.find_spec(_hooks()) is None:
            return f"there is no module {_hooks()}"
    except ModuleNotFoundError:
        return f"there is no package for {_hooks()}"
    return None if os.path.exists(path) else f"{path} has not been built"


def install() -> None:
    """Registers convoy's hooks with the host on sys.path and applies them."""
    os.environ.pop("CONVOY_SCALE", None)  # ours, not a setting of the library, which would warn of it
    importlib.import_module(_hooks()).register()
    importlib.import_module("sglang.srt.plugins.hook_registry").HookRegistry.apply_hooks()


def call_logs() -> dict[str, Calls]:
    """The parsed call log of each group that convoy has open in this process."""
    logs: dict[str, Calls] = importlib.import_module(_hooks()).call_logs()
    return logs


class GroupNames:
    """Which of convoy's groups stands behind which group of the host, learnt from which log has grown."""

    def __init__(self) -> None:
        self._before = self._ends()
        self.of_host: dict[str, str | None] = {}

    def _ends(self) -> dict[str, Any]:
        return {name: (len(calls), calls[-1] if calls else None) for name, calls in call_logs().items()}

    def learn(self, host_name: str, is_alone: bool) -> None:
        """To be called after one reduction over this group. None is learnt for a group of one that made no round.
        AssertionError: no log has grown, or more than one."""
        after = self._ends()
        grown = [name for name, end in after.items() if end != self._before.get(name, (0, None))]
        self._before = after
        if not grown and is_alone:
            self.of_host[host_name] = None
            return
        if len(grown) != 1:
            raise AssertionError(f"a reduction over {host_name} shows in the call logs of {grown}, must be in one")
        self.of_host[host_name] = grown[0]
