# SPDX-License-Identifier: Apache-2.0
"""A server with torch in memory that forks a process for each request. Run as a program: fork_server.py DESCRIPTOR, where
DESCRIPTOR is a socket whose other end asks (lib/forked.py); when that end closes, all processes are killed.

Requests are tuples, each answered by one value: ("start", Setting, work) and then a descriptor -> the process id;
("wait", process id, seconds) -> its exit code (negative: by this signal), or None if it has not ended by then;
("kill", process id) -> None. A process that was forked has only torch and what it loads itself: neither the program
that asks nor convoy is in the server.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import pickle
import select
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from multiprocessing.spawn import import_main_path
from typing import Any, Dict, NoReturn, Optional, Tuple

Setting = Tuple[Dict[str, str], "list[str]", "list[str]", str, Optional[str]]  # environment, path, arguments, folder, main
_PRELOADED = ("torch", "torch.distributed", "multiprocessing.connection", "tempfile")


class _Process:
    """In a process that was forked: what it has to do."""

    def __init__(self, setting: Setting, work: bytes, answer: Connection) -> None:
        self._setting, self._work, self._answer = setting, work, answer

    def run(self) -> NoReturn:
        """Does it, and ends as an interpreter does, but without taking down all modules, which would copy what is shared."""
        code = 1
        try:
            self._call()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _call(self) -> None:
        environment, path, arguments, folder, main = self._setting
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.path[:], sys.argv[:] = path, arguments
        if main is not None:
            import_main_path(main)
        function, args = pickle.loads(self._work)
        function(*args, self._answer)


def _preload() -> None:
    for name in _PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # so that a collection in a process does not touch, and copy, all that is shared


def _exit_code(pid: int, seconds: float) -> Optional[int]:
    watched = os.pidfd_open(pid)
    try:
        if not select.select([watched], [], [], seconds)[0]:
            return None
    finally:
        os.close(watched)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class _Server:
    def __init__(self, channel: Connection) -> None:
        self._channel = channel
        self._living: Dict[int, None] = {}

    def serve(self) -> _Process:
        """Comes back in the processes that it forks, and nowhere else."""
        while True:
            try:
                request = self._channel.recv()
            except (EOFError, ConnectionResetError):
                self._end()
            if request[0] == "start":
                process = self._start(*request[1:])
                if process is not None:
                    return process
            else:
                self._channel.send(self._wait(*request[1:]) if request[0] == "wait" else self._kill(request[1]))

    def _start(self, setting: Setting, work: bytes) -> Optional[_Process]:
        answer = Connection(recv_handle(self._channel))
        threads = len(os.listdir("/proc/self/task"))
        assert threads == 1, "a process with %d threads must not be forked" % threads
        pid = os.fork()
        if pid == 0:
            self._channel.close()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            return _Process(setting, work, answer)
        answer.close()  # so that the death of the process is the end of the pipe
        self._living[pid] = None
        self._channel.send(pid)
        return None

    def _wait(self, pid: int, seconds: float) -> Optional[int]:
        code = _exit_code(pid, seconds)
        if code is not None:
            del self._living[pid]
        return code

    def _kill(self, pid: int) -> None:
        if pid in self._living:  # not waited for, so the number is still its own
            os.kill(pid, signal.SIGKILL)

    def _end(self) -> NoReturn:
        for pid in self._living:
            os.kill(pid, signal.SIGKILL)
        for pid in self._living:
            os.waitpid(pid, 0)
        sys.exit(0)


def _main(descriptor: int) -> Any:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, whose end is the server's
    _preload()
    return _Server(Connection(descriptor)).serve()


if __name__ == "__main__":
    _main(int(sys.argv[1])).run()
