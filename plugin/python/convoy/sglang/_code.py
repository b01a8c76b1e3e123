# SPDX-License-Identifier: Apache-2.0
"""What a function of the host does with torch.distributed, read from its code, so that nothing is taken over by guess."""

from __future__ import annotations

import dis
import inspect
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

# Of torch.distributed, what does not communicate.
HARMLESS = frozenset(("ReduceOp", "ProcessGroup", "group", "GroupMember", "get_rank", "get_world_size", "is_available",
                      "is_initialized", "get_backend"))
_GLOBAL_WRITES = frozenset(("STORE_GLOBAL", "DELETE_GLOBAL"))
_ATTRIBUTE = frozenset(("LOAD_ATTR", "LOAD_METHOD"))
_SILENT = frozenset(("EXTENDED_ARG", "CACHE", "NOP"))


class Unknown(Exception):
    """A shape that nobody has written a hook for; the text says what was expected and what was found."""


def innermost(function: Any) -> FunctionType:
    """The host's own function under all wrappers. Raises Unknown: it is no function of Python's."""
    inner = inspect.unwrap(function)
    if not isinstance(inner, FunctionType):
        raise Unknown("expected a function, found %s" % type(inner).__name__)
    return inner


def check_parameters(function: FunctionType, required: Sequence[str], optional: Sequence[str] = ()) -> None:
    """Parameters must be ``required`` in this order, then any of ``optional`` in theirs with defaults, all of them
    positional. Raises Unknown."""
    signature = inspect.signature(function)
    found = list(signature.parameters)
    expected = list(required) + [name for name in optional if name in found]
    plain = all(p.kind is p.POSITIONAL_OR_KEYWORD for p in signature.parameters.values())
    defaulted = all(signature.parameters[name].default is not inspect.Parameter.empty for name in found[len(required):])
    if found != expected or not plain or not defaulted:
        more = " and any of (%s) with defaults" % ", ".join(optional) if optional else ""
        raise Unknown("expected parameters (%s)%s, found %s" % (", ".join(required), more, signature))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


class _Reader:
    """Follows torch.distributed through one function: each use must be ``dist.name`` or ``torch.distributed.name``."""

    def __init__(self, names: Dict[str, Any]) -> None:
        self._names = names
        self._torch, self._distributed = import_module("torch"), import_module("torch.distributed")
        self._held: Optional[str] = None  # the module that the last instruction has pushed
        self.used: List[str] = []

    def read(self, code: CodeType) -> None:
        for instruction in dis.get_instructions(code):
            if instruction.opname not in _SILENT:
                self._step(instruction.opname, instruction.argval)

    def _step(self, operation: str, name: Any) -> None:
        held, self._held = self._held, None
        if held is not None and operation not in _ATTRIBUTE:
            raise Unknown("expected torch.distributed to be used by attribute, found %s of the module %s" % (operation, held))
        if held == "torch":
            self._held = "torch.distributed" if name == "distributed" else None
        elif held is not None:
            self.used.append(name)
        elif operation in _GLOBAL_WRITES:
            raise Unknown("expected no assignment of globals, found one of %s" % name)
        elif operation == "IMPORT_NAME" and str(name).split(".")[0] == "torch":
            raise Unknown("expected torch as a global of the module, found an import of %s in the function" % name)
        elif operation in ("LOAD_GLOBAL", "LOAD_NAME"):
            self._load(str(name))

    def _load(self, name: str) -> None:
        value = self._names.get(name)
        if value is self._torch:
            self._held = "torch"
        elif value is self._distributed:
            self._held = "torch.distributed"
        elif isinstance(value, FunctionType) and str(value.__module__).startswith("torch.distributed"):
            raise Unknown("expected torch.distributed to be used by attribute, found its function %s as a global" % name)
        elif name in ("globals", "exec", "eval") and value is None:
            raise Unknown("expected plain code, found a call of %s" % name)


def distributed_names(function: FunctionType) -> List[str]:
    """What the function uses of torch.distributed, in the order of its code. Raises Unknown: in a way that a stand-in would
    not see."""
    reader = _Reader(function.__globals__)
    for code in _codes(function.__code__):
        reader.read(code)
    return [name for name in reader.used if name not in HARMLESS]


def all_names(function: FunctionType) -> Set[str]:
    """Every name and attribute in the function."""
    return {name for code in _codes(function.__code__) for name in code.co_names}


def check_collectives(function: FunctionType, known: Sequence[str], operations: Sequence[Tuple[str, str]],
                      once: bool = False) -> None:
    """Raises Unknown unless the function uses at least one of ``known``, nothing else that communicates, and with each
    collective of ``operations`` its ReduceOp. once: that collective at one place only, as another may be of other values."""
    names = distributed_names(function)
    used = set(names)
    if not used or not used <= set(known):
        raise Unknown("expected %s of torch.distributed, found %s" % (" or ".join(known), ", ".join(sorted(used)) or "none"))
    for collective, operation in operations:
        if collective in used and operation not in all_names(function):
            raise Unknown("expected %s with ReduceOp.%s, found no such operation" % (collective, operation))
        if once and names.count(collective) > 1:
            raise Unknown("expected one %s, found %d" % (collective, names.count(collective)))
