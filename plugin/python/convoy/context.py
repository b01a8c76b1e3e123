# SPDX-License-Identifier: Apache-2.0
"""A context: one opened instance of the plugin, and the groups and engines in it."""

from __future__ import annotations

import ctypes
import json
import logging
import time
import warnings
from ctypes import addressof, byref, c_void_p, sizeof
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Type, TypeVar, Union

from convoy import _abi, _build, _callbacks, _exit, errors
from convoy._allgather import AllGather
from convoy._bound import Bound
from convoy._buffers import Text, nanoseconds
from convoy._describe import read_bytes
from convoy._life import Life, Turn
from convoy.group import Group
from convoy.sync import Schema
from convoy.transfer import Engine, EngineOptions

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
        try:
            words = ctypes.string_at(text, length).decode("utf-8", "replace")
            _callbacks.run(lambda: log(level, words))
        except KeyboardInterrupt as failure:
            _callbacks.interrupted.append(failure)

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
        self._life = Life(build)
        self._closer = Turn()
        self._is_left = False  # closed, but for the memory that views of an engine's released transfers show
        if not isinstance(log_level, str) or log_level not in _LEVELS:
            raise errors.InvalidArgument("log_level is %r; allowed: %s" % (log_level, ", ".join(_LEVELS)))
        if log and log is not True and not callable(log):
            raise errors.InvalidArgument("log is %r; True, False or a function is needed" % (log,))
        self._log = _log_callback(_to_logger if log is True else log) if log else None  # lives as long as the context
        key = _bytes(secret)
        self._open_in: Callable[[_build.Build], Bound] = lambda other: self._open(other, key, settings, log_level)
        self._life.bound = self._open_in(build)
        config = self.config()
        self._timeout_ns = int(config["timeout_ms"]["value"]) * 1_000_000
        self._close_s = int(config["close_timeout_ms"]["value"]) / 1e3
        _exit.watch(self)

    def _open(self, build: _build.Build, secret: bytes, settings: Optional[Mapping[str, Any]],
              log_level: str) -> Bound:
        """A context of this build, as this one was asked for."""
        try:
            text = Text(None if settings is None else json.dumps(dict(settings)))
        except (TypeError, ValueError, RecursionError) as reason:
            raise errors.InvalidArgument("settings: %s" % reason) from None
        key = ctypes.create_string_buffer(secret, len(secret) or 1)
        config = _abi.ContextConfig(struct_size=sizeof(_abi.ContextConfig), log_level=_LEVELS[log_level])
        config.secret, config.secret_bytes = addressof(key), len(secret)
        config.settings, config.settings_length = text.address, text.length
        if self._log is not None:
            config.log = ctypes.cast(self._log, c_void_p)
        out, error = c_void_p(), _abi.Error(struct_size=sizeof(_abi.Error))
        status = build.core.context_open(byref(config), byref(out), byref(error))
        if status != _abi.OK or out.value is None:
            raise errors.make(status, error)
        return Bound(build, out)

    @property
    def _build(self) -> _build.Build:
        return self._life.bound.build

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._life.inner is None or self._is_left

    def _settings_of(self, bound: Bound) -> Dict[str, Any]:
        """As ``config``, of one of its contexts in the plugin."""
        def describe_it(buffer: Any, error: Any) -> int:
            status: int = bound.build.core.context_describe(bound.handle, _abi.TOPIC_CONFIG, buffer, error)
            return status

        settings: Dict[str, Any] = json.loads(read_bytes(describe_it))
        return settings

    def _describe(self, topic: int) -> str:
        def describe_it(buffer: Any, error: Any) -> int:
            return self._life.use("core", "context_describe", topic, buffer, error)

        return self._life.call(lambda: read_bytes(describe_it)).decode("utf-8", "replace")

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
        return kind(self, self._build, self._life, self._timeout_ns, name, members, rank, rendezvous, allgather, **options)

    def engine(self, options: Optional[EngineOptions] = None, **keywords: Any) -> Engine:
        """Opens a transfer engine: its pool, its port, its threads. See ``convoy.transfer.EngineOptions`` for the options,
        which may be given as keywords. Raises InvalidArgument, Unsupported, InitFailed, Limit, NoMemory."""
        _callbacks.refuse_inside("engine: open")
        if options is not None and (keywords or not isinstance(options, EngineOptions)):
            raise errors.InvalidArgument("engine takes either EngineOptions or their fields as keywords")
        chosen = options or EngineOptions(**keywords)

        return self._life.call(lambda: Engine(self, self._life, self._timeout_ns, self._close_s, chosen))

    def close(self, timeout: Optional[float] = None) -> None:
        """Closes every group and engine in it and joins all threads. Again: no effect. In a forked child: no effect. While
        views of an engine's released transfers are alive, its memory and its threads stay for their sake.

        timeout: seconds, None for the setting close_timeout_ms. Raises DrainTimeout: something is still in use, the text
        says what; it takes no more calls, close it again. Busy: from within a function that the plugin has called.
        """
        time_ns = nanoseconds(timeout)
        _callbacks.refuse_inside("the context: close")
        if self._life.inner is None or self._life.forked:
            return
        until = time.monotonic() + (time_ns / 1e9 if time_ns else self._close_s)
        me = object()
        try:
            self._closer.take_until(me, until, "the context")
            if self._life.inner is not None:
                self._close_it(until)
        finally:
            if self._closer.owner is me:
                self._closer.owner = None

    def _close_it(self, until: float) -> None:
        members = self._life.end(until)
        self._is_left = any(getattr(member, "_is_left", False) for member in members)
        if self._is_left:
            return
        while self._life.former:  # no thread is in a call on one of their handles any more
            self._close_bound(self._life.former[-1], until)
            self._life.former.pop()
        self._close_bound(self._life.bound, until)
        self._life.members = []
        for member in members:
            member._dead()
        _exit.forget(self)

    @staticmethod
    def _close_bound(bound: Bound, until: float) -> None:
        """Closes a context of the plugin's by a time of time.monotonic(); again: no effect. Raises DrainTimeout."""
        if bound.handle.value is None:
            return
        error = _abi.Error(struct_size=sizeof(_abi.Error))
        words, left = byref(error), max(1, int((until - time.monotonic()) * 1e9))
        status = bound.build.core.context_close(bound.handle, left, words)
        if status != _abi.OK:
            raise errors.make(status, error)
        bound.handle.value = None

    def _finish_close(self) -> None:
        """The last view of one of its engines has gone: what was left of a close is closed."""
        if self._is_left:
            self.close(_exit.SECONDS)

    def _after_fork(self) -> None:
        self._closer = Turn()
        self._life.after_fork()

    def __enter__(self) -> "Context":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<convoy.Context of build %s, %s>" % (self._build.file.build_id[:12], "closed" if self.closed else "open")

    def __del__(self) -> None:
        life = getattr(self, "_life", None)
        if life is None or life.inner is None or life.forked or self._is_left:
            return
        warnings.warn("a convoy context was not closed", ResourceWarning, source=self)
        try:
            self.close(_exit.SECONDS)
        except errors.ConvoyError:
            pass


def _bytes(secret: Union[bytes, str]) -> bytes:
    try:
        return secret.encode() if isinstance(secret, str) else bytes(memoryview(secret))
    except (TypeError, UnicodeEncodeError):
        raise errors.InvalidArgument("secret is %s; bytes or a string are needed" % type(secret).__name__) from None


__all__ = ["Context", "LogFunction", "Schema"]
