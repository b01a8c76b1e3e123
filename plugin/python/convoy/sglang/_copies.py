# SPDX-License-Identifier: Apache-2.0
"""The host's own function with another collective in it, and chains of hooks around it.

What the host does before and after a collective differs from release to release and must stay as it is. So the host's own
code runs, and only what it finds under the names of torch is something else: a copy of the function (same code object,
defaults and closure) whose globals answer with stand-ins.

Patching ``torch.distributed`` itself would reach every other caller in the process; patching the module's own name would
reach its other functions, on other threads too. A copy reaches exactly one function. Its globals are a dict that asks the
host's live module at each look-up, because a snapshot would miss what the host, or a test, assigns later. CPython looks
names up in the C slots of a plain dict only; for a subclass it calls __getitem__. ``works`` asks the interpreter itself.
What the copy calls by name is found in the live module, hooks of others included: two of the three poll callers call
each other, and the inner one is hooked once, in its own place.
"""

from __future__ import annotations

from types import CellType, FunctionType
from typing import Any, Dict, Mapping, Optional, Tuple

# The interpreter reads these from the storage of a dict, never by __getitem__: builtins, and relative imports.
_STORED = ("__builtins__", "__name__", "__package__", "__spec__", "__path__")


class LiveGlobals(Dict[str, Any]):
    """Globals of a copy: the host's module as it is at each look-up, with stand-ins in place of some of its values."""

    def __init__(self, live: Mapping[str, Any], stand_ins: Mapping[int, Any]) -> None:
        """live: the module's __dict__. stand_ins: what to give instead of a value, by the value's id()."""
        super().__init__((name, live[name]) for name in _STORED if name in live)
        self._live = live
        self._stand_ins = stand_ins

    def __getitem__(self, name: str) -> Any:
        value = self._live[name]  # a KeyError sends the interpreter to the builtins
        return self._stand_ins.get(id(value), value)

    def __contains__(self, name: object) -> bool:
        return name in self._live


def copy_of(function: FunctionType, stand_ins: Mapping[int, Any]) -> FunctionType:
    """The function, seeing stand-ins in its module. stand_ins: by the id() of a value that must stay alive."""
    return _again(function, LiveGlobals(function.__globals__, stand_ins), function.__closure__)


def _again(function: FunctionType, names: Dict[str, Any], closure: Optional[Tuple[CellType, ...]]) -> FunctionType:
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, closure)
    copy.__kwdefaults__ = dict(function.__kwdefaults__) if function.__kwdefaults__ else None  # type: ignore[assignment]
    copy.__dict__.update(function.__dict__)
    copy.__qualname__, copy.__doc__, copy.__module__ = function.__qualname__, function.__doc__, function.__module__
    return copy


def works() -> bool:
    """Whether this interpreter asks a dict's subclass for globals."""
    names: Dict[str, Any] = {"real": object()}
    exec("def probe():\n    return real", names)
    stand_in = object()
    return copy_of(names["probe"], {id(names["real"]): stand_in})() is stand_in


class CannotRebind(Exception):
    """The chain does not lead to the function in a way that can be followed."""


def rebound(chain: Any, innermost: Any, replacement: Any) -> Any:
    """The chain of wrappers with something else in its inside, so that the hooks of others run exactly as before.

    Each wrapper that functools.wraps made names the function below as ``__wrapped__`` and holds it in its closure; it is
    copied with another cell. Raises CannotRebind: a wrapper that does not hold the function below (a REPLACE hook of
    another plugin), or another innermost function.
    """
    if chain is innermost:
        return replacement
    below = getattr(chain, "__wrapped__", None)
    if below is None or not isinstance(chain, FunctionType):
        raise CannotRebind("its innermost function is another one")
    changed = rebound(below, innermost, replacement)
    cells = chain.__closure__ or ()
    if not any(_holds(cell, below) for cell in cells):
        raise CannotRebind("a wrapper around it does not hold it, or another plugin has replaced it")
    closure = tuple(CellType(changed) if _holds(cell, below) else cell for cell in cells)
    copy = _again(chain, chain.__globals__, closure)
    copy.__dict__["__wrapped__"] = changed
    return copy


def check_chain(chain: Any, innermost: Any) -> None:
    """Raises CannotRebind as ``rebound`` would; changes nothing."""
    rebound(getattr(chain, "__func__", chain), innermost, innermost)


def _holds(cell: CellType, value: Any) -> bool:
    try:
        return cell.cell_contents is value
    except ValueError:  # an empty cell
        return False
