# SPDX-License-Identifier: Apache-2.0
"""Processes that fork servers with torch in memory (lib/fork_server.py) start, for the price of a fork.

There are two servers, which take turns, so that processes of one gang differ in the seed of their hashes, as those that
a host starts do. The environment, sys.path and arguments of a process are the program's own at the time of its start.
"""

from __future__ import annotations

import atexit
import functools
import os
import pickle
import socket
import subprocess
import sys
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any, Callable, Optional, Sequence, Tuple

_SERVERS = 2
_REPLY_S = 60.0  # for a reply, beyond what the request itself takes; the first waits for torch
_END_S = 10.0
# What of torch and numpy would start threads, which a fork does not copy. Read when they are loaded.
_ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}


class ServerError(RuntimeError):
    """A fork server has ended or does not answer."""


class _Server:
    """The program's end of one fork server."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            flags = ["-B"] if sys.dont_write_bytecode else []
            command = [sys.executable, *flags, str(Path(__file__).with_name("fork_server.py")), str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env={**os.environ, **_ONE_THREAD})
        self._channel = Connection(ours.detach())
        atexit.register(self._end)

    def ask(self, request: Tuple[Any, ...], descriptor: Optional[int] = None, seconds: float = 0.0) -> Any:
        try:
            self._channel.send(request)
            if descriptor is not None:
                send_handle(self._channel, descriptor, self._process.pid)
            if self._channel.poll(seconds + _REPLY_S):
                return self._channel.recv()
        except (EOFError, OSError) as error:
            raise ServerError("the fork server has ended") from error
        raise ServerError(f"the fork server has not answered within {seconds + _REPLY_S:g} s")

    def _end(self) -> None:
        self._channel.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@functools.lru_cache(maxsize=None)
def _server(number: int) -> _Server:
    return _Server()


class Process:
    """One that was started, with the calls of multiprocessing.Process that a gang uses."""

    def __init__(self, server: _Server, pid: int) -> None:
        self._server, self.pid = server, pid
        self.exitcode: Optional[int] = None  # once join has seen the end; negative: by this signal

    def join(self, seconds: float) -> None:
        if self.exitcode is None:
            self.exitcode = self._server.ask(("wait", self.pid, seconds), seconds=seconds)

    def is_alive(self) -> bool:
        self.join(0.0)
        return self.exitcode is None

    def kill(self) -> None:
        if self.exitcode is None:
            self._server.ask(("kill", self.pid))


def _setting() -> Any:
    main = getattr(sys.modules["__main__"], "__file__", None)
    path = [os.path.abspath(one) for one in sys.path]
    return dict(os.environ), path, list(sys.argv), os.getcwd(), main and os.path.abspath(main)


def start(size: int, function: Callable[..., None], args: Callable[[int], Sequence[Any]],
          duplex: bool = False) -> Tuple["list[Process]", "list[Connection]"]:
    """Starts function(*args(i), connection) in processes 0 to size - 1; the other ends of the connections come back too.
    duplex: the connections go both ways, else from the processes to here.
    function and args cross a process border, so they must be picklable. ServerError: no server could start them."""
    servers = [_server(number) for number in range(min(size, _SERVERS))]
    processes, answers = [], []
    for number in range(size):
        server = servers[number % _SERVERS]
        ours, theirs = Pipe(duplex)
        work = pickle.dumps((function, tuple(args(number))))
        with theirs:
            processes.append(Process(server, server.ask(("start", _setting(), work), theirs.fileno())))
        answers.append(ours)
    return processes, answers
