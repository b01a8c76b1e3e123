# SPDX-License-Identifier: Apache-2.0
"""What functions of the host may do while the plugin calls them, and what becomes of Ctrl-C there.

An exception cannot pass through the plugin's frames. Of a log function's exceptions Python reports all but Ctrl-C, which is
kept here and raised by the call of the plugin that ends next.
"""

from __future__ import annotations

import threading
from typing import Callable, List, TypeVar

from convoy import errors

T = TypeVar("T")
interrupted: List[KeyboardInterrupt] = []
_thread = threading.local()


def run(function: Callable[[], T]) -> T:
    """Calls a function of the host on a thread that is inside the plugin."""
    depth = getattr(_thread, "depth", 0)
    _thread.depth = depth + 1
    try:
        return function()
    finally:
        _thread.depth = depth


def is_inside() -> bool:
    """Whether the plugin has called out on this thread, and waits for its return."""
    return bool(getattr(_thread, "depth", 0))


def refuse_inside(what: str) -> None:
    """Raises Busy on a thread that the plugin has called out on: it would wait for itself."""
    if is_inside():
        raise errors.Busy("%s from within a function that the plugin has called: it is still inside that call" % what)


def raise_interrupt() -> None:
    """Raises a Ctrl-C that was kept. Signals are the main thread's."""
    if interrupted and threading.current_thread() is threading.main_thread():
        failure = interrupted.pop()
        interrupted.clear()  # one Ctrl-C may end several log lines of one call
        raise failure
