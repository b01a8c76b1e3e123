# SPDX-License-Identifier: Apache-2.0
"""A gang: real processes that form a gloo process group, run one function, and hand its values back within a bound."""

from __future__ import annotations

import faulthandler
import importlib
import os
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any, Callable, Mapping, Sequence

from lib import forked

_LAST_WORDS_S = 5.0  # for what the other ranks report once one has failed
_END_S = 10.0

GroupRanks = Sequence[Sequence[int]]


class GangError(AssertionError):
    """A rank raised, died, or did not end in time; the text says which, with tracebacks."""


@dataclass
class Member:
    """What the function of one rank gets. groups: the process group of each name that this rank is in."""

    rank: int
    size: int
    groups: dict[str, Any] = field(default_factory=dict)
    ranks: dict[str, list[int]] = field(default_factory=dict)


def grid_groups(size: int, tp: int, cp: int) -> dict[str, list[list[int]]]:
    """Sub-groups of a grid in which rank = t x cp + c, repeated where size exceeds tp x cp: names tp<N> and cp<N>."""
    starts = range(0, size, tp * cp)
    return {
        f"tp{tp}x{cp}": [[start + t * cp + c for t in range(tp)] for start in starts for c in range(cp)],
        f"cp{tp}x{cp}": [[start + t * cp + c for c in range(cp)] for start in starts for t in range(tp)],
    }


def _make_groups(member: Member, groups: Mapping[str, GroupRanks], limit: timedelta) -> None:
    dist: Any = importlib.import_module("torch.distributed")
    member.groups["world"], member.ranks["world"] = dist.group.WORLD, list(range(member.size))
    for name, parts in groups.items():
        for ranks in parts:  # every process makes every group, in one order, as torch wants it
            group = dist.new_group(list(ranks), timeout=limit, backend="gloo")
            if member.rank in ranks:
                member.groups[name], member.ranks[name] = group, list(ranks)


def _member_main(
    rank: int,
    size: int,
    meeting: str,
    groups: Mapping[str, GroupRanks],
    limit_s: float,
    function: Callable[..., Any],
    args: Sequence[Any],
    answer: Connection,
) -> None:
    faulthandler.dump_traceback_later(limit_s * 0.95)
    try:
        import torch

        dist: Any = importlib.import_module("torch.distributed")
        torch.set_num_threads(1)
        limit = timedelta(seconds=limit_s)
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=limit)
        member = Member(rank, size)
        _make_groups(member, groups, limit)
        value = function(member, *args)
        dist.barrier()
        answer.send((True, value))
        dist.destroy_process_group()
    except BaseException:
        answer.send((False, traceback.format_exc()))
        raise SystemExit(1) from None
    finally:
        faulthandler.cancel_dump_traceback_later()


class _Crew:
    """The processes of one gang and what they have said so far."""

    def __init__(self, processes: list[forked.Process], answers: list[Connection]) -> None:
        self.processes, self.answers = processes, answers
        self.values: dict[int, Any] = {}
        self.failures: dict[int, str] = {}

    def open_ranks(self) -> list[int]:
        return [i for i in range(len(self.processes)) if i not in self.values and i not in self.failures]

    def _take(self, rank: int) -> None:
        try:
            good, value = self.answers[rank].recv()
        except EOFError:
            self.processes[rank].join(_END_S)
            self.failures[rank] = f"ended with exit code {self.processes[rank].exitcode} and without an answer"
            return
        (self.values if good else self.failures)[rank] = value

    def hear_until(self, deadline: float) -> None:
        """Returns when all ranks have said something, one has failed, or the deadline has passed."""
        while self.open_ranks() and not self.failures:
            self._hear(deadline)
            if time.monotonic() >= deadline:
                return

    def hear_last_words(self, deadline: float) -> None:
        while self.open_ranks() and time.monotonic() < deadline:
            self._hear(deadline)

    def _hear(self, deadline: float) -> None:
        by_connection = {self.answers[rank]: rank for rank in self.open_ranks()}
        left = max(0.0, deadline - time.monotonic())
        for connection in wait(list(by_connection), timeout=left):
            self._take(by_connection[connection])  # type: ignore[index]

    def end(self, is_forced: bool) -> None:
        for process in self.processes:
            if is_forced:
                process.kill()
            process.join(_END_S)
            if process.is_alive():
                process.kill()
                process.join(_END_S)

    def bad_ends(self) -> dict[int, str]:
        return {i: f"exit code {one.exitcode} after its answer" for i, one in enumerate(self.processes) if one.exitcode != 0}


def _start(size: int, meeting: str, groups: Mapping[str, GroupRanks], limit_s: float, work: Any) -> _Crew:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return _Crew(*forked.start(size, _member_main, lambda rank: (rank, size, meeting, groups, limit_s, *work)))


def run(
    size: int,
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    groups: Mapping[str, GroupRanks] | None = None,
    limit_s: float = 120.0,
) -> list[Any]:
    """The values of function(member, *args) in `size` processes, by rank.

    function, args and the values cross process borders, so they must be picklable (a function of a module's top level).
    groups: lists of ranks by name; a member sees those that it is in, and "world".
    GangError: a rank raised or died, or not all were done within limit_s. All processes have ended on return.
    """
    with tempfile.TemporaryDirectory() as folder:
        deadline = time.monotonic() + limit_s
        crew = _start(size, os.path.join(folder, "meeting"), groups or {}, limit_s, (function, args))
        is_good = False
        try:
            crew.hear_until(deadline)
            if crew.failures:
                crew.hear_last_words(min(deadline, time.monotonic() + _LAST_WORDS_S))
            is_good = len(crew.values) == size
        finally:
            crew.end(is_forced=not is_good)
    if crew.failures:
        raise GangError("\n".join(f"rank {rank} of {size}: {text}" for rank, text in crew.failures.items()))
    if is_good and crew.bad_ends():
        raise GangError(f"ranks ended badly: {crew.bad_ends()}")
    if not is_good:
        raise GangError(f"ranks {crew.open_ranks()} of {size} were not done within {limit_s:g} s")
    return [crew.values[rank] for rank in range(size)]
