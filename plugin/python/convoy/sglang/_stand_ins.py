# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for the modules ``torch`` and ``torch.distributed`` in the eyes of one function of the host."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Callable, Dict, Mapping


class StandIn:
    """A module with other values under some names. All else is the real module's, as it is at that moment."""

    __slots__ = ("_real", "_others")

    def __init__(self, real: Any, others: Mapping[str, Any]) -> None:
        self._real = real
        self._others = others

    def __getattr__(self, name: str) -> Any:
        others = self._others
        return others[name] if name in others else getattr(self._real, name)


def stand_ins(collectives: Mapping[str, Callable[..., Any]]) -> Dict[int, Any]:
    """For ``copy_of``: torch and torch.distributed with these functions in place of its own."""
    torch, distributed = import_module("torch"), import_module("torch.distributed")
    inner = StandIn(distributed, collectives)
    return {id(distributed): inner, id(torch): StandIn(torch, {"distributed": inner})}
