# SPDX-License-Identifier: Apache-2.0
"""A context: one opened instance of the plugin, and the groups and engines in it."""

from __future__ import annotations

import ctypes
import json
import logging
import warnings
from ctypes import addressof, byref, c_void_p, sizeof
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Type, TypeVar, Union

from convoy import _abi, _build, _exit, errors
from convoy._buffers import Text, nanoseconds
from convoy._describe import describe
from convoy.group import AllGather, Group
from convoy.sync import Schema
from convoy.transfer import Engine, PoolOptions

G = TypeVar("G", bound=Group)
LogFunction = Callable[[int, str], None]
_LEVELS = {"error": _abi.LOG_ERROR, "warning": _abi.LOG_WARN, "info": _abi.LOG_INFO, "debug": _abi.LOG_DEBUG,
           "trace": _abi.LOG_TRACE}
_PYTHON_LEVELS = {_abi.LOG_ERROR: logging.ERROR, _abi.LOG_WARN: logging.WARNING, _abi.LOG_INFO: logging.INFO}
_logger = logging.getLogger("convoy")


def _to_logger(level: int, text: str) -> None:
    _logger.log(_PYTHON_LEVELS.get(level, logging.DEBUG), "%s", text)


def _log_callback(log: LogFunction) -> Any:
    def receive(user: Any, level: int, text: Any, length: int) -> None:
        log(level, ctypes.string_at(text, length).decode("utf-8", "replace"))

    return _abi.LogFn(receive)


class Context:
    """One opened instance. Made by ``Plugin.context``; a context manager.

    Any thread may use it. In a forked child every call raises Forked and close does nothing. A context that is still open
    when the interpreter ends is closed then, within about a second.
    """

    def __init__(
        self,
        build: _build.Build,
        secret: Union[bytes, str],
        settings: Optional[Mapping[str, Any]],
        log: Union[LogFunction, bool],
        log_level: str,
    ) -> None:
        self._inner: Optional[int] = None
        self._build = build
        self._members: List[Any] = []
        if log_level not in _LEVELS:
            raise errors.InvalidArgument("log_level is %r; allowed: %s" % (log_level, ", ".join(_LEVELS)))
        self._log = _log_callback(_to_logger if log is True else log) if log else None  # lives as long as the context
        self._inner = self._open(secret.encode() if isinstance(secret, str) else bytes(secret), settings, log_level)
        self._timeout_ns = int(self.config()["timeout_ms"]["value"]) * 1_000_000
        _exit.watch(self)

    def _open(self, secret: bytes, settings: Optional[Mapping[str, Any]], log_level: str) -> int:
        text = Text(None if settings is None else json.dumps(dict(settings)))
        key = ctypes.create_string_buffer(secret, len(secret) or 1)
        config = _abi.ContextConfig(struct_size=sizeof(_abi.ContextConfig), log_level=_LEVELS[log_level])
        config.secret, config.secret_bytes = addressof(key), len(secret)
        config.settings, config.settings_length = text.address, text.length
        if self._log is not None:
            config.log = ctypes.cast(self._log, c_void_p)
        out, error = c_void_p(), _abi.Error(struct_size=sizeof(_abi.Error))
        status = self._build.core.context_open(byref(config), byref(out), byref(error))
        if status != _abi.OK or out.value is None:
            raise errors.make(status, error)
        return out.value

    @property
    def closed(self) -> bool:
        return self._inner is None

    def _describe(self, topic: int) -> str:
        if self._inner is None:
            raise errors.Closed("the context is closed")
        return describe(self._build.core.context_describe, self._inner, topic)

    def config(self) -> Dict[str, Any]:
        """Every setting: {name: {"value": ..., "source": ...}}."""
        settings: Dict[str, Any] = json.loads(self._describe(_abi.TOPIC_CONFIG))
        return settings

    def net(self) -> Dict[str, Any]:
        """UCX: file, version, who loaded it, transports, devices. Opens UCX only with the setting ucx_probe."""
        net: Dict[str, Any] = json.loads(self._describe(_abi.TOPIC_NET))
        return net

    def stats(self) -> Dict[str, Any]:
        """Counters and latency histograms of everything in this context."""
        stats: Dict[str, Any] = json.loads(self._describe(_abi.TOPIC_STATS))
        return stats

    def prometheus(self) -> str:
        """The same as Prometheus text."""
        return self._describe(_abi.TOPIC_PROMETHEUS)

    def group(
        self,
        name: str,
        members: Union[int, Sequence[int]],
        rank: int,
        rendezvous: Optional[str] = None,
        allgather: Optional[AllGather] = None,
        **options: Any,
    ) -> Group:
        """Opens a group and waits for all of its members.

        name: 1 to 127 bytes, the same on all. members: the host's own rank numbers in member order, or a count for
        0..count-1. rank: this member's number in it. rendezvous: "tcp://host:port", where the listener listens; or
        allgather: a function (bytes) -> list of bytes in member order, which every member calls at the same time; a group of
        one needs neither.

        options: listener (rank that listens; default the first), epoch, open_timeout and timeout (seconds; of the open, and
        of every operation), blob_bytes_max, call_log_entries, degrade (a lost member counts as presence "lost"), schema
        (of rows: "sglang-7", "sglang-8" or a list of Column), sync_inner (tp x cp), sync_slots, faults (PollFaults).

        Raises InvalidArgument, Limit, TimedOut (the text names the members not heard), Diverged, StaleEpoch,
        VersionMismatch, Unauthenticated, Unreachable, PeerLost.
        """
        return self._make_group(Group, name, members, rank, rendezvous, allgather, options)

    def _make_group(self, kind: Type[G], name: str, members: Union[int, Sequence[int]], rank: int, rendezvous: Optional[str],
                    allgather: Optional[AllGather], options: Mapping[str, Any]) -> G:
        """A group of this class, which may add calls to Group's."""
        if self._inner is None:
            raise errors.Closed("the context is closed")
        group = kind(self._build, self._inner, self._timeout_ns, name, members, rank, rendezvous, allgather, **options)
        self._members.append(group)
        return group

    def engine(self, options: Optional[PoolOptions] = None, **keywords: Any) -> Engine:
        """Opens a transfer engine: its pool, its port, its threads. See ``convoy.transfer.PoolOptions`` for the options,
        which may be given as keywords. Raises InvalidArgument, Unsupported, InitFailed, Limit, NoMemory."""
        if self._inner is None:
            raise errors.Closed("the context is closed")
        engine = Engine(self._build, self._inner, self._timeout_ns, options or PoolOptions(**keywords))
        self._members.append(engine)
        return engine

    def close(self, timeout: Optional[float] = None) -> None:
        """Closes every group and engine in it and joins all threads. Again: no effect.

        timeout: seconds, None for the setting close_timeout_ms. Raises DrainTimeout: something is still in use, the text
        says what; close again.
        """
        if self._inner is None:
            return
        error = _abi.Error(struct_size=sizeof(_abi.Error))
        status = self._build.core.context_close(self._inner, nanoseconds(timeout), byref(error))
        if status != _abi.OK:
            raise errors.make(status, error)
        for member in self._members:
            member._dead()
        self._members, self._inner = [], None
        _exit.forget(self)

    def __enter__(self) -> "Context":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_inner", None) is not None:
            warnings.warn("a convoy context was not closed", ResourceWarning, source=self)
            try:
                self.close(_exit.SECONDS)
            except errors.ConvoyError:
                pass


__all__ = ["Context", "LogFunction", "Schema"]
