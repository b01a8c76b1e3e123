#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What fails in groups made from process groups of torch is told to all ranks alike, and within the deadline."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

from lib import gang, runner  # noqa: E402
from lib.runner import expect_equal  # noqa: E402

try:
    import torch.distributed
except ImportError:
    runner.skip_program("torch is not installed")

import convoy  # noqa: E402
import convoy.torch  # noqa: E402
from lib import torch_calls as calls  # noqa: E402

dist: Any = torch.distributed  # without types in older releases
_DEADLINE_S = 10.0  # of a round that must fail; a death is usually seen within milliseconds


# -- failures of opening ---------------------------------------------------------------------------------------------


def _check_told(told: List[Any], bad: int, kind: str, reason: str) -> None:
    for rank, (name, text, about) in enumerate(told):
        expect_equal((name, about), (kind, bad), f"what rank {rank} is told: {text}")
        expect_equal(f"rank {bad}: " in text and reason in text, True, f"rank and reason in \"{text}\"")


def test_a_rank_without_the_library_is_named_to_those_that_open() -> None:
    _check_told(gang.run(3, calls.fails_to_load, args=(1, True)), 1, "NotFound", "/nowhere/libconvoy.so.1")


def test_a_rank_without_the_library_is_named_to_those_that_agree() -> None:
    _check_told(gang.run(2, calls.fails_to_load, args=(0, False)), 0, "NotFound", "/nowhere/libconvoy.so.1")


def test_an_open_that_fails_fails_for_all() -> None:
    told = gang.run(2, calls.fails_to_open)
    _check_told([one["refused"] for one in told], 1, "InvalidArgument", "3")
    _check_told([one["foreign"] for one in told], 1, "InitFailed", "no such thing")
    _check_told([one["unknown"] for one in told], 1, "InitFailed", "nonsense")
    _check_told([one["late"] for one in told], 1, "InitFailed", "too late")
    expect_equal([one["diverged"][0] for one in told], ["Diverged"] * 2, "options that differ")
    expect_equal([one["left"] for one in told], [[], []], "groups that were left open")


# -- failures of rounds: what the ranks saw goes to files, as a gang in which one dies has no values ------------------


def _note(folder: str, rank: int, seen: Dict[str, Any]) -> None:
    path = os.path.join(folder, str(rank))
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(seen, file)
    os.rename(path + ".part", path)


def _notes(folder: str, ranks: List[int]) -> Dict[int, Any]:
    return {rank: json.loads(Path(folder, str(rank)).read_text(encoding="utf-8")) for rank in ranks}


def _fails_in_a_round(member: gang.Member, folder: str, kill: bool) -> None:
    """Rank 1 dies, or does not come, while the others wait."""
    with calls.opened_context() as context:
        group = convoy.torch.open_group(context, timeout=_DEADLINE_S if kill else 0.5)
        expect_equal(group.all_reduce_min([4]), [4], "a round of all")
        if member.rank == 1:
            if kill:
                os.kill(os.getpid(), signal.SIGKILL)
        else:
            started = time.monotonic()
            try:
                group.all_reduce_min([member.rank])
            except convoy.PeerError as error:
                assert error.report is not None
                _note(folder, member.rank, {"kind": type(error).__name__, "reported": error.report.ranks,
                                            "text": str(error), "seconds": time.monotonic() - started})
        if not kill:
            dist.barrier()


def _check_seen(seen: Dict[int, Any], kind: str) -> None:
    for rank, one in seen.items():
        expect_equal((one["kind"], 1 in one["reported"]), (kind, True), f"what rank {rank} saw: {one}")
        expect_equal(one["seconds"] < _DEADLINE_S, True, f"rank {rank} was told within the deadline: {one}")


def test_a_rank_that_dies_is_named_to_those_that_wait() -> None:
    with tempfile.TemporaryDirectory() as folder:
        failure = runner.expect_raises(gang.GangError, lambda: gang.run(3, _fails_in_a_round, args=(folder, True)))
        expect_equal("rank 1 of 3: ended with exit code -9" in str(failure), True, f"rank 1 died: {failure}")
        _check_seen(_notes(folder, [0, 2]), "PeerLost")


def test_a_rank_that_does_not_come_is_named_to_those_that_wait() -> None:
    with tempfile.TemporaryDirectory() as folder:
        gang.run(3, _fails_in_a_round, args=(folder, False))
        _check_seen(_notes(folder, [0, 2]), "TimedOut")


def _dies_before_an_open(member: gang.Member, folder: str) -> None:
    if member.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with calls.opened_context() as context:
        started = time.monotonic()
        name, text, _ = calls.outcome(lambda: convoy.torch.open_group(context))
        _note(folder, member.rank, {"kind": name, "text": text, "seconds": time.monotonic() - started})


def test_a_rank_that_dies_before_the_open_ends_the_open_of_all() -> None:
    with tempfile.TemporaryDirectory() as folder:
        runner.expect_raises(gang.GangError, lambda: gang.run(2, _dies_before_an_open, args=(folder,)))
        seen = _notes(folder, [0])[0]
    expect_equal((seen["kind"], seen["seconds"] < _DEADLINE_S), ("Unreachable", True), f"what the other saw: {seen}")


# -- Ctrl-C ----------------------------------------------------------------------------------------------------------


def _press_while(call: Callable[[], Any], group: Any) -> float:
    """Presses Ctrl-C once the call waits; seconds from there to KeyboardInterrupt."""
    pressed: List[float] = []

    def press() -> None:
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = calls.when_waiting(group, press)
    try:
        call()
    except KeyboardInterrupt:
        return time.monotonic() - pressed[0]
    finally:
        thread.join(_DEADLINE_S)
    raise AssertionError("the call went on after Ctrl-C")


def _interrupts_a_round(member: gang.Member) -> str:
    with calls.opened_context() as context:
        group = convoy.torch.open_group(context, timeout=60.0)
        if member.rank == 0:
            seconds = _press_while(lambda: group.all_reduce_min([1, 2]), group)
            expect_equal(seconds < 5.0, True, f"Ctrl-C was seen after {seconds:.3f} s")
            expect_equal(group.abandon(), False, "the round was not complete")
        dist.barrier()
        told = calls.outcome(lambda: group.all_reduce_min([1, 2]))[0] if member.rank else "Broken"
        dist.barrier()
        return told


def test_ctrl_c_ends_a_wait() -> None:
    expect_equal(gang.run(2, _interrupts_a_round), ["Broken", "Broken"], "the round that was given up")


def _interrupts_an_open(member: gang.Member, folder: str) -> str:
    from convoy.torch import exchange

    flag = Path(folder, "pressed")

    class Interrupting:
        """time, whose first sleep is Ctrl-C."""

        @staticmethod
        def sleep(seconds: float) -> None:
            if not flag.exists():
                flag.touch()
                signal.raise_signal(signal.SIGINT)
            time.sleep(seconds)

    with calls.opened_context() as context:
        if member.rank == 0:
            setattr(exchange, "time", Interrupting)
        limit = time.monotonic() + 60
        while member.rank != 0 and not flag.exists() and time.monotonic() < limit:
            time.sleep(0.01)
        name, text, _ = calls.outcome(lambda: convoy.torch.open_group(context))
        return f"{name}: {text}"


def test_ctrl_c_while_opening_ends_the_open_of_all() -> None:
    with tempfile.TemporaryDirectory() as folder:
        first, second = gang.run(2, _interrupts_an_open, args=(folder,))
    expect_equal((first, second.split(":")[0]), ("KeyboardInterrupt: ", "InitFailed"), "what the ranks are told")
    expect_equal("rank 0: KeyboardInterrupt" in second, True, f"who and why: {second}")


if __name__ == "__main__":
    runner.main(globals())
