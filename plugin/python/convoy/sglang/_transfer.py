# SPDX-License-Identifier: Apache-2.0
"""The hooks on the diffusion transfer: the engine that the host makes, and the buffer and manager that go with it.

The host makes engine, buffer and manager in this order in one process. Buffer and manager of convoy work with convoy's
engine only, so with any other engine the classes give what the host's own would.
"""

from __future__ import annotations

import inspect
import logging
from abc import ABCMeta
from importlib import import_module
from typing import Any, Callable, Dict, Mapping, Optional

from convoy import errors
from convoy.sglang import _code, _lanes
from convoy.sglang._around import around

logger = logging.getLogger("convoy.sglang")
_PACKAGE = "sglang.multimodal_gen.runtime.disaggregation.transport"
ENGINE = _PACKAGE + ".engine.create_transfer_engine"
BUFFER = _PACKAGE + ".buffer.TransferTensorBuffer"
MANAGER = _PACKAGE + ".manager.DiffusionTransferManager"
_ENGINE_PARAMETERS = ("hostname", "gpu_id", "ib_device", "backend", "force_mock")
_OUR_BACKENDS = (None, "auto", "convoy")
_CONSTRUCTORS = {  # required, optional
    BUFFER: (("self", "pool_size"), ("min_block_size", "role_name", "device")),
    MANAGER: (("self", "engine", "buffer"), ()),
}


_OURS = {  # module, class
    BUFFER: ("convoy.sglang._diffusion_buffer", "ConvoyTransferBuffer"),
    MANAGER: ("convoy.sglang._diffusion_manager", "ConvoyTransferManager"),
}


class _Newest:
    """The engine that this process made last: convoy's, or another."""

    is_convoy = False


def check_engine(functions: Mapping[str, Any]) -> None:
    """Raises Unknown: not the factory that is known."""
    function = _code.innermost(functions[ENGINE])
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in _ENGINE_PARAMETERS or parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise _code.Unknown("expected parameters among (%s), found %s" % (
                ", ".join(_ENGINE_PARAMETERS), inspect.signature(function)))


def engine_hooks(functions: Mapping[str, Any]) -> Dict[str, Any]:
    """{target: hook}. What the operator asks for by name (a backend, the mock) stays the host's."""
    host = _code.innermost(functions[ENGINE])
    signature = inspect.signature(host)
    _register_engine()

    def create_transfer_engine(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        chosen: Dict[str, Any] = dict(given.arguments)
        _Newest.is_convoy = False
        engine = None
        if not chosen.get("force_mock") and chosen.get("backend") in _OUR_BACKENDS:
            engine = _make(chosen)
        if engine is None:
            return host(*args, **kwargs)
        _Newest.is_convoy = True
        return engine

    return {ENGINE: around(ENGINE, host, create_transfer_engine)}


def _make(chosen: Mapping[str, Any]) -> Optional[Any]:
    """convoy's engine. None: it cannot be made, and CONVOY_FALLBACK=host."""
    diffusion = import_module("convoy.sglang.diffusion")
    names = {name: chosen[name] for name in ("hostname", "gpu_id", "ib_device") if name in chosen}
    try:
        return diffusion.ConvoyTransferEngine(**names)
    except errors.ConvoyError as failure:
        if not _lanes.falls_back():
            raise
        logger.warning("no transfer engine: %s; this role uses the host's own, and its peers must as well", failure)
        return None


def _register_engine() -> None:
    """Makes isinstance(engine, BaseTransferEngine) hold where the host's base class is abstract."""
    base = getattr(import_module(_PACKAGE + ".engine"), "BaseTransferEngine", None)
    if isinstance(base, ABCMeta):
        base.register(import_module("convoy.sglang.diffusion").ConvoyTransferEngine)


def check_classes(classes: Mapping[str, Any]) -> None:
    """Raises Unknown: a constructor or a call is not as it is today, so that convoy's class cannot stand in its place."""
    for target, value in classes.items():
        name = target.rpartition(".")[2]
        if not inspect.isclass(value):
            raise _code.Unknown("%s: expected a class, found %s" % (name, type(value).__name__))
        try:
            _code.check_parameters(_code.innermost(value.__init__), *_CONSTRUCTORS[target])
            module, ours = _OURS[target]
            _check_calls(value, getattr(import_module(module), ours))
        except _code.Unknown as reason:
            raise _code.Unknown("%s: %s" % (name, reason)) from None


def _check_calls(host: Any, ours: Any) -> None:
    """Raises Unknown: the host's class has a call that convoy's has not, or one with other parameters."""
    for name in (name for name in dir(host) if not name.startswith("_")):
        if not hasattr(ours, name) and name not in ours.__annotations__:
            raise _code.Unknown("expected no public name but those that are known, found %s" % name)
        theirs, own = getattr(host, name), getattr(ours, name, None)
        if inspect.isfunction(theirs):
            wanted = list(inspect.signature(theirs).parameters)
            known = list(inspect.signature(own).parameters) if inspect.isfunction(own) else []
            if known[: len(wanted)] != wanted:
                raise _code.Unknown("%s: expected parameters (%s), found (%s)" % (name, ", ".join(known), ", ".join(wanted)))


def class_hooks(classes: Mapping[str, Any]) -> Dict[str, Any]:
    """{target: class}."""
    diffusion = import_module("convoy.sglang.diffusion")
    buffer, manager = classes[BUFFER], classes[MANAGER]
    return {
        BUFFER: _either(buffer, diffusion.ConvoyTransferBuffer, lambda args, kwargs: _Newest.is_convoy),
        MANAGER: _either(manager, diffusion.ConvoyTransferManager, lambda *given: _manages_ours(manager, *given)),
    }


def _manages_ours(host: Any, args: Any, kwargs: Any) -> bool:
    """Whether engine and buffer are both convoy's; the newest engine may be another by now."""
    diffusion = import_module("convoy.sglang.diffusion")
    try:
        given = inspect.signature(host.__init__).bind(None, *args, **kwargs).arguments
    except TypeError:  # the host says what is wrong with the arguments
        return False
    return (isinstance(given["engine"], diffusion.ConvoyTransferEngine) and
            isinstance(given["buffer"], diffusion.ConvoyTransferBuffer))


def _either(host: Any, ours: Any, is_ours: Callable[[Any, Any], bool]) -> Any:
    """A class that makes convoy's objects where ``is_ours``, and the host's own elsewhere. Both are instances of it."""

    def make(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_ours(args, kwargs):
            return host(*args, **kwargs)  # no instance of cls, so __init__ is not called on it
        return ours.__new__(cls)

    meta = type(ours) if issubclass(type(ours), ABCMeta) else type("EitherMeta", (ABCMeta, type(ours)), {})
    made = meta(host.__name__, (ours,), {"__new__": make, "__doc__": ours.__doc__, "__module__": host.__module__})
    made.register(host)
    return made
