# SPDX-License-Identifier: Apache-2.0
"""Looking into the host: its modules, and its registries of hooks."""

from __future__ import annotations

import inspect
import os
import sys
import weakref
from importlib import import_module
from importlib.util import find_spec
from typing import Any, List, Mapping, Sequence, Set, Tuple

from convoy.sglang import _hooks, _lanes
from convoy.sglang._code import Unknown

logger = _lanes.logger
SERVER_REGISTRY = "sglang.srt.plugins.hook_registry"
DIFFUSION_REGISTRY = "sglang.multimodal_gen.plugins"
_registered: "weakref.WeakKeyDictionary[Any, Set[str]]" = weakref.WeakKeyDictionary()  # targets, by registry


def _module(dotted: str) -> Any:
    """Raises LookupError: there is none, or it cannot be imported."""
    if dotted in sys.modules:
        return sys.modules[dotted]
    try:
        if find_spec(dotted) is None:
            raise LookupError("no module %s" % dotted)
        return import_module(dotted)
    except LookupError:
        raise
    except ModuleNotFoundError as reason:
        raise LookupError("no module %s" % (reason.name or dotted)) from None
    except Exception as reason:  # a module of the host that does not import is the host's own matter
        raise LookupError("module %s cannot be imported: %s: %s" % (dotted, type(reason).__name__, reason)) from None


def find(target: str) -> Any:
    """The object of a dotted name: module.name or module.Class.name. Raises LookupError."""
    parts = target.split(".")
    classes = next((i for i, part in enumerate(parts) if part[:1].isupper()), len(parts) - 1)
    value = _module(".".join(parts[:classes]))
    for part in parts[classes:]:
        value = inspect.getattr_static(value, part, None) if inspect.isclass(value) else getattr(value, part, None)
        if value is None:
            raise LookupError("no %s" % target)
    return value


def registry(dotted: str) -> Tuple[Any, Any]:
    """(HookRegistry, HookType) of a module. Raises LookupError: absent; Unknown: not as it is known."""
    module = _module(dotted)
    hooks, kinds = getattr(module, "HookRegistry", None), getattr(module, "HookType", None)
    if hooks is None or kinds is None:
        raise Unknown("expected HookRegistry and HookType in %s, found no %s" % (
            dotted, "HookRegistry" if hooks is None else "HookType"))
    for kind in (_hooks.AROUND, _hooks.REPLACE):
        if not hasattr(kinds, kind):
            raise Unknown("expected HookType.%s in %s, found none" % (kind, dotted))
    try:
        inspect.signature(hooks.register).bind("target", print, kinds.AROUND)
    except (TypeError, ValueError, AttributeError) as reason:
        raise Unknown("expected HookRegistry.register(target, hook, hook_type) in %s, found: %s" % (dotted, reason)) from None
    return hooks, kinds


def has_diffusion_registry() -> bool:
    """Whether the diffusion server has a registry of its own. Looks for its file: importing its package is dear."""
    if DIFFUSION_REGISTRY in sys.modules:
        return True
    try:
        host = find_spec("sglang")
    except (ImportError, ValueError):
        return False
    places = [] if host is None else list(host.submodule_search_locations or [])
    name = os.path.join(*DIFFUSION_REGISTRY.split(".")[1:])
    return any(os.path.exists(os.path.join(place, name + end)) for place in places for end in (".py", "/__init__.py"))


def server_pieces() -> Tuple[_hooks.Piece, ...]:
    """What is registered with the server's registry: all, unless diffusion has one of its own."""
    return _hooks.SERVER if has_diffusion_registry() else _hooks.SERVER + _hooks.DIFFUSION


def decisions(chosen: Sequence[_hooks.Chosen]) -> List[_hooks.Decision]:
    """All decisions, one per target."""
    return [decision for one in chosen for decision in one.decisions]


def _log(chosen: Sequence[_hooks.Chosen]) -> None:
    """One line per piece that stays as it is, one per target that is hooked."""
    for one in chosen:
        for decision in one.decisions if one.shape is not None else one.decisions[:1]:
            (logger.warning if decision.action == _hooks.WARN else logger.info)("%s", decision)


def print_plan(chosen: Sequence[_hooks.Chosen]) -> None:
    """The plan on stderr and in the log."""
    for decision in decisions(chosen):
        print("convoy: %s" % str(decision), file=sys.stderr, flush=True)
        logger.info("dry run: %s", decision)


def _register(one: _hooks.Chosen, hooks: Any, kinds: Any) -> _hooks.Chosen:
    """Registers one piece whole, or, when its hooks cannot be made, not at all. Gives what has become of it."""
    assert one.shape is not None
    known = _registered.setdefault(hooks, set())
    if known & set(one.shape.targets):
        return _hooks.Chosen(one.piece, tuple(d._replace(action=_hooks.LEAVE, reason="registered before")
                                              for d in one.decisions))
    try:
        made = one.shape.make(one.found)
    except Exception as reason:
        text = "its hooks cannot be made: %s: %s; the host's own code stays" % (type(reason).__name__, reason)
        return _hooks.Chosen(one.piece, tuple(d._replace(action=_hooks.WARN, reason=text) for d in one.decisions))
    for target, hook in made.items():
        hooks.register(target, hook, getattr(kinds, one.piece.kind))
        known.add(target)
    return one


def register(pieces: Sequence[_hooks.Piece], registry_name: str, environment: Mapping[str, str] = os.environ) -> None:
    """Decides about each piece and registers the hooks of those that are applied. Raises nothing that the host caused."""
    if environment.get("CONVOY_FALLBACK", "raise").strip().lower() not in ("raise", "host"):
        logger.warning("CONVOY_FALLBACK is %r; allowed: raise, host; raise is taken", environment["CONVOY_FALLBACK"])
    try:
        hooks, kinds = registry(registry_name)
    except LookupError as reason:
        logger.info("no hooks: %s", reason.args[0])
        return
    except Unknown as reason:
        logger.warning("no hooks: unknown shape of the registry: %s", reason)
        return
    chosen = _hooks.plan(pieces, environment, find)
    if environment.get("CONVOY_DRY_RUN", "0").strip() not in ("", "0"):
        print_plan(chosen)
        return
    _log([_register(one, hooks, kinds) if one.shape is not None else one for one in chosen])
