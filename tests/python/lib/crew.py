# SPDX-License-Identifier: Apache-2.0
"""A crew: forked processes that run one function each, with a port to meet at and a bound on all of it."""

from __future__ import annotations

import faulthandler
import functools
import multiprocessing
import os
import socket
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = os.environ.get("CONVOY_LIBRARY") or str(ROOT / "build" / "libconvoy.so.1")
_fork = multiprocessing.get_context("fork")
_LAST_WORDS_S = 5.0


class CrewError(AssertionError):
    """A member raised, died without leave, or was not done in time."""


@dataclass(frozen=True)
class Died:
    """In place of a value: the member ended with this exit code (negative: by this signal) and said nothing."""

    code: Optional[int]


@dataclass
class Member:
    """What the function of one member gets."""

    rank: int
    size: int
    endpoint: str
    limit_s: float
    barrier: Any
    context: Any = None

    def meet(self) -> None:
        """Waits until all members have come here."""
        self.barrier.wait(self.limit_s)

    def open(self, **settings: Any) -> Any:
        """A context of this process; the first is kept as ``context``."""
        context = plugin().context(secret=b"crew", settings=settings or None, log=False)
        self.context = self.context or context
        return context

    def group(self, name: str = "crew", **options: Any) -> Any:
        """A group of all members, in ``context``."""
        context = self.context or self.open()
        options.setdefault("members", self.size)
        options.setdefault("open_timeout", self.limit_s / 2)
        options.setdefault("rendezvous", self.endpoint if self.size > 1 else None)
        return context.group(name, rank=options.pop("rank", self.rank), **options)


@functools.lru_cache(maxsize=None)
def plugin() -> Any:
    """The plugin under test, loaded once, before the processes are forked."""
    import convoy

    return convoy.load(LIBRARY)


def free_endpoint() -> str:
    """An address on loopback where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return "tcp://127.0.0.1:%d" % probe.getsockname()[1]


def _main(member: Member, function: Callable[..., Any], args: Sequence[Any], answer: Connection) -> None:
    faulthandler.dump_traceback_later(member.limit_s * 0.95)
    try:
        value = function(member, *args)
        if member.context is not None:
            member.context.close()
        answer.send((True, value))
    except BaseException:
        answer.send((False, traceback.format_exc()))
    finally:
        faulthandler.cancel_dump_traceback_later()


def _hear(answers: Dict[Any, int], deadline: float, heard: Dict[int, Any]) -> None:
    for connection in wait(list(answers), max(0.0, deadline - time.monotonic())):
        rank = answers.pop(connection)
        try:
            heard[rank] = connection.recv()  # type: ignore[union-attr]
        except EOFError:
            heard[rank] = None


def run(size: int, function: Callable[..., Any], *args: Any, limit_s: float = 60.0, may_die: Sequence[int] = ()) -> List[Any]:
    """The values of function(member, *args) in ``size`` processes, by rank; Died for a rank of may_die that has ended.
    CrewError: a member raised, died, or was not done within limit_s. All processes have ended on return."""
    plugin()
    endpoint, barrier = free_endpoint(), _fork.Barrier(size)
    processes, answers = [], {}
    for rank in range(size):
        ours, theirs = _fork.Pipe(duplex=False)
        member = Member(rank, size, endpoint, limit_s, barrier)
        process = _fork.Process(target=_main, args=(member, function, args, theirs), daemon=True)
        process.start()
        theirs.close()
        processes.append(process)
        answers[ours] = rank
    heard: Dict[int, Any] = {}
    deadline = time.monotonic() + limit_s
    while answers and time.monotonic() < deadline:
        _hear(answers, deadline, heard)
        if any(said is not None and not said[0] for said in heard.values()):  # the others may hang for its sake
            deadline = min(deadline, time.monotonic() + _LAST_WORDS_S)
    return _verdict(processes, heard, set(may_die))


def _verdict(processes: Sequence[Any], heard: Dict[int, Any], may_die: "set[int]") -> List[Any]:
    values, troubles = [], []
    for rank, process in enumerate(processes):
        process.join(5.0 if rank in heard else 0.1)
        if process.is_alive():
            process.kill()
            process.join(5.0)
            troubles.append("rank %d was not done in time" % rank)
        said = heard.get(rank)
        if said is not None and not said[0]:
            troubles.append("rank %d: %s" % (rank, said[1]))
        elif said is None and rank not in may_die:
            troubles.append("rank %d ended with exit code %s and without an answer" % (rank, process.exitcode))
        values.append(said[1] if said is not None else Died(process.exitcode))
    if troubles:
        raise CrewError("\n".join(troubles))
    return values
