# SPDX-License-Identifier: Apache-2.0
"""An AROUND hook that puts something in place of the host's own function, under the hooks of other plugins.

The registry gives an AROUND hook the chain below it: the host's function, or that with other plugins' hooks around. Those
hooks must run exactly as before, so the chain is made again with another innermost function.
"""

from __future__ import annotations

import logging
from types import FunctionType
from typing import Any, Callable, Tuple

from convoy.sglang._copies import CannotRebind, rebound

logger = logging.getLogger("convoy.sglang")
_MARK = "_stands_in_for_the_host"


def around(target: str, host: FunctionType, replacement: Callable[..., Any]) -> Callable[..., Any]:
    """The hook. host: the host's own function, whose shape was checked; another one below leaves the chain as it is."""
    setattr(replacement, _MARK, True)
    last: Tuple[Any, Any] = (host, replacement)  # the chain below, and what is called in its place

    def hook(original: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal last
        chain, call = last
        if chain is not original:
            call = _rebound(target, original, host, replacement)
            last = (original, call)
        return call(*args, **kwargs)

    return hook


def _rebound(target: str, chain: Any, host: FunctionType, replacement: Callable[..., Any]) -> Any:
    if getattr(chain, _MARK, False):  # hooked twice: the other hook has been here already
        return chain
    try:
        return rebound(chain, host, replacement)
    except CannotRebind as reason:
        logger.warning("%s is left as it is: %s", target, reason)
        return chain
