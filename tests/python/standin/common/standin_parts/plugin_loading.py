# SPDX-License-Identifier: Apache-2.0
"""Finds plugins by their entry points and calls each once."""

from __future__ import annotations

import logging
import os
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Iterable

logger = logging.getLogger(__name__)


def _found(group: str) -> Iterable[EntryPoint]:
    found: Any = entry_points()
    chosen: Iterable[EntryPoint] = found.select(group=group) if hasattr(found, "select") else found.get(group, ())
    return chosen  # before Python 3.10 all were a mapping by group


def call_plugins(group: str) -> None:
    """Calls the function of every entry point of the group that SGLANG_PLUGINS allows. Exceptions are logged."""
    allowed = os.environ.get("SGLANG_PLUGINS")
    names = None if allowed is None else {name.strip() for name in allowed.split(",") if name.strip()}
    for entry in _found(group):
        if names is not None and entry.name not in names:
            continue
        try:
            entry.load()()
        except Exception:
            logger.exception("plugin %s of %s failed", entry.name, group)
