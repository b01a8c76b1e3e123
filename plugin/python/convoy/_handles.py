# SPDX-License-Identifier: Apache-2.0
"""Numbers of peers and transfers. They name something else, or nothing, at another engine, so whose they are is checked."""

from __future__ import annotations

from typing import Any, Type

from convoy import errors


def own(given: Any, kind: Type[Any], engine: Any, what: str) -> int:
    """The plugin's number of a peer or a transfer of this engine. Raises InvalidArgument; Closed: it was released."""
    if not isinstance(given, kind):
        raise errors.InvalidArgument("%s is a %s; a %s of this engine is needed" % (
            what, type(given).__name__, kind.__name__))
    if given._engine is not engine:
        raise errors.InvalidArgument("%s belongs to another engine" % what)
    number: int = given.handle()
    return number
