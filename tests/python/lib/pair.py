# SPDX-License-Identifier: Apache-2.0
"""A second process with an engine of its own, and what both sides need: every wait has an end."""

from __future__ import annotations

import multiprocessing
import os
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator

import convoy
from lib import forked

WAIT_S = 30.0
SECRET = b"of the tests"
_ROOT = Path(__file__).resolve().parents[3]
os.environ.setdefault("CONVOY_LIBRARY", str(_ROOT / "build" / "libconvoy.so.1"))


@contextmanager
def engine_of(pool_bytes: int = 16 << 20, secret: bytes = SECRET, **options: Any) -> Iterator[convoy.Engine]:
    """An engine in a context of its own."""
    with convoy.load() as plugin, plugin.context(secret=secret, settings={"timeout_ms": 20_000}) as context:
        with context.engine(pool_bytes=pool_bytes, **options) as engine:
            yield engine


class Pipe:
    """A connection whose receives are bounded."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def send(self, what: Any) -> None:
        self._connection.send(what)

    def recv(self) -> Any:
        if not self._connection.poll(WAIT_S):
            raise TimeoutError(f"the other process said nothing for {WAIT_S} s")
        return self._connection.recv()


class Child:
    """A process that runs function(pipe, *arguments). Leaving it waits for its end, which must be 0 unless it was killed."""

    def __init__(self, function: Callable[..., None], *arguments: Any, bare: bool = False) -> None:
        """bare: an interpreter of its own, in which nothing is imported yet; else one that has torch in memory."""
        self._process: Any = None
        if bare:
            spawn = multiprocessing.get_context("spawn")
            mine, theirs = spawn.Pipe()
            self._process = spawn.Process(target=_run, args=(function, arguments, theirs), daemon=True)
            self._process.start()
            theirs.close()
        else:
            (self._process,), (mine,) = forked.start(1, _run, lambda number: (function, arguments), duplex=True)
        self.pipe = Pipe(mine)
        self._is_killed = False

    def kill(self) -> None:
        """SIGKILL; returns when it is dead."""
        self._is_killed = True
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.join(WAIT_S)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is not None and self._process.is_alive():
            self._process.kill()
        self._process.join(WAIT_S)
        if kind is None and not self._is_killed and self._process.exitcode != 0:
            raise AssertionError(f"the other process ended with {self._process.exitcode}")


def _run(function: Callable[..., None], arguments: Any, connection: Any) -> None:
    function(Pipe(connection), *arguments)
