# SPDX-License-Identifier: Apache-2.0
"""What happens when the interpreter ends with contexts open.

They are closed, so that peers read "closed" instead of "its process ended", and waits in other threads end. That takes at
most SECONDS; what cannot be closed by then is left to the end of the process, which ends everything that is convoy's.
In a forked child closing does nothing: what was inherited belongs to the parent.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Any

SECONDS = 1.0
_open: "weakref.WeakSet[Any]" = weakref.WeakSet()


def watch(context: Any) -> None:
    """The context is to be closed when the interpreter ends."""
    _open.add(context)


def forget(context: Any) -> None:
    """The context has been closed."""
    _open.discard(context)


def _close_all() -> None:
    for context in list(_open):
        try:
            context.close(SECONDS)
        except Exception:  # the process ends anyhow, and a traceback at exit would hide the one that matters
            pass


def _after_fork() -> None:
    """In a forked child: what is open belongs to the parent. Calls give Forked, closing does nothing."""
    for context in list(_open):
        context._after_fork()
    _open.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)
