# SPDX-License-Identifier: Apache-2.0
"""The host's registry of hooks: plugins name a target and a function, `apply_hooks` patches all of them at once."""

from __future__ import annotations

import functools
import inspect
import logging
import pkgutil
import sys
from dataclasses import dataclass
from enum import Enum
from typing import Any, Callable, ClassVar

logger = logging.getLogger(__name__)


class HookType(Enum):
    BEFORE = "before"
    AFTER = "after"
    AROUND = "around"
    REPLACE = "replace"


@dataclass(frozen=True)
class _Entry:
    hook: Any
    hook_type: HookType
    source: str | None


def _with_before(inner: Callable[..., Any], hook: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        changed = hook(*args, **kwargs)
        if changed is not None:
            args, kwargs = changed
        return inner(*args, **kwargs)

    return wrapper


def _with_after(inner: Callable[..., Any], hook: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = inner(*args, **kwargs)
        changed = hook(result, *args, **kwargs)
        return result if changed is None else changed

    return wrapper


def _with_around(inner: Callable[..., Any], hook: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return hook(inner, *args, **kwargs)

    return wrapper


def _with_replace(inner: Callable[..., Any], hook: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return hook(*args, **kwargs)

    return wrapper


_WRAPPERS = {HookType.BEFORE: _with_before, HookType.AFTER: _with_after, HookType.AROUND: _with_around}


def _resolve(target: str) -> tuple[Any, str, Any]:
    """(owner, name, what the owner's table holds): a classmethod or staticmethod comes as its descriptor."""
    path, _, name = target.rpartition(".")
    owner = pkgutil.resolve_name(path)
    held = getattr(owner, name)
    if inspect.isclass(owner):
        held = inspect.getattr_static(owner, name)
    return owner, name, held


def _last_replace(target: str, entries: list[_Entry]) -> _Entry | None:
    replaces = [entry for entry in entries if entry.hook_type is HookType.REPLACE]
    if len(replaces) > 1:
        logger.warning("%d REPLACE hooks on %s, the last one wins", len(replaces), target)
    return replaces[-1] if replaces else None


def _chain(target: str, original: Any, entries: list[_Entry]) -> Any:
    """What stands in for the original: the last REPLACE, wrapped by the other hooks as they were registered."""
    replace = _last_replace(target, entries)
    if inspect.isclass(original):
        if any(entry.hook_type is not HookType.REPLACE for entry in entries):
            raise TypeError(f"{target} is a class, and only REPLACE can be used on a class")
    result = original
    if replace is not None:
        result = replace.hook if inspect.isclass(replace.hook) else _with_replace(original, replace.hook)
    for entry in entries:
        if entry.hook_type is not HookType.REPLACE:
            result = _WRAPPERS[entry.hook_type](result, entry.hook)
    return result


def _propagate(original: Any, result: Any) -> None:
    """Modules that took the name by `from ... import` hold the object itself and get the new one."""
    for module in list(sys.modules.values()):
        table = getattr(module, "__dict__", None)
        if not isinstance(table, dict):
            continue
        for name, value in list(table.items()):
            if value is original:
                setattr(module, name, result)


class HookRegistry:
    """One table of hooks for the process; a subclass has tables of its own."""

    _hooks: ClassVar[dict[str, list[_Entry]]] = {}
    _patched: ClassVar[set[str]] = set()

    def __init_subclass__(cls) -> None:
        cls._hooks = {}
        cls._patched = set()

    @classmethod
    def register(cls, target: str, hook: Any, hook_type: HookType = HookType.AFTER, *, source: str | None = None) -> None:
        """Records only. TypeError: a class as hook with anything but REPLACE."""
        if inspect.isclass(hook) and hook_type is not HookType.REPLACE:
            raise TypeError(f"the hook on {target} is a class, which works with REPLACE only")
        cls._hooks.setdefault(target, []).append(_Entry(hook, hook_type, source))

    @classmethod
    def apply_hooks(cls) -> None:
        """Patches each target once: those with a class as hook first, then the others, by name. Failures are logged."""

        def order(target: str) -> tuple[bool, str]:
            return not any(inspect.isclass(entry.hook) for entry in cls._hooks[target]), target

        for target in sorted(cls._hooks, key=order):
            if target in cls._patched:
                continue
            try:
                cls._patch(target)
            except Exception:
                logger.exception("cannot apply the hooks on %s", target)

    @classmethod
    def _patch(cls, target: str) -> None:
        owner, name, held = _resolve(target)
        is_bound = isinstance(held, (classmethod, staticmethod))
        original = held.__func__ if is_bound else held
        result = _chain(target, original, cls._hooks[target])
        setattr(owner, name, type(held)(result) if is_bound else result)
        cls._patched.add(target)
        _propagate(original, result)

    @classmethod
    def reset(cls) -> None:
        """Forgets what was registered and what was patched; what is patched stays so."""
        cls._hooks.clear()
        cls._patched.clear()
