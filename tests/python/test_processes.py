#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Forks, spawns and ends of processes with contexts open: children get Forked, parents and peers are not disturbed."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

_HERE = Path(__file__).resolve().parent
_PACKAGE = str(_HERE.parents[1] / "plugin" / "python")
sys.path[:0] = [str(_HERE), _PACKAGE]

import convoy  # noqa: E402
from convoy import PollList  # noqa: E402
from lib import crew, runner  # noqa: E402
from lib.crew import Member  # noqa: E402
from lib.runner import expect_equal, expect_raises  # noqa: E402

_LATE_S = 30.0
_SOON_S = 10.0


def _in_child(function: Callable[[], Any]) -> str:
    """What a function gave, or raised, in a child that fork made and that ends by sys.exit, as a host's might."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(int(_SOON_S))
            os.write(theirs, repr(function()).encode())
            code = 0
        except BaseException as failure:
            os.write(theirs, repr(failure).encode())
        finally:
            convoy._exit._close_all()  # what atexit would do
            gc.collect()
            os._exit(code)
    os.close(theirs)
    with os.fdopen(ours, "rb") as answer:
        text = answer.read().decode()
    _, status = os.waitpid(child, 0)
    return "%s, exit code %d" % (text, os.waitstatus_to_exitcode(status))


def _what_a_child_sees(context: Any, group: Any, reducer: Any, gatherer: Any, operation: Any) -> Dict[str, str]:
    seen: Dict[str, str] = {}
    uses: Dict[str, Callable[[], Any]] = {
        "reduce": lambda: group.reduce([4]), "poll": lambda: group.poll([PollList([4])]), "reducer": lambda: reducer(1),
        "gatherer": gatherer, "gather": lambda: group.gather([1] * 8), "info": group.info, "dump": group.dump,
        "cancel": group.cancel, "abandon": operation.abandon, "test": operation.test, "wait": operation.wait,
        "reopen": group.reopen, "stats": context.stats, "report": group.last_report, "wait on": reducer.wait,
        "group": lambda: context.group("other", 1, 0)}
    for _ in range(2):
        for name, use in uses.items():
            try:
                seen[name] = repr(use())
            except Exception as failure:
                seen[name] = type(failure).__name__
        group.close()
        context.close()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with convoy.load(crew.LIBRARY) as plugin, plugin.context() as fresh, fresh.group("fresh", 1, 0) as own:
            seen["fresh"] = repr(own.reduce([3]))
        gc.collect()
    seen["warnings"] = repr([str(w.message) for w in caught])
    return {name: what for name, what in seen.items() if what != "Forked"}


def _forks(member: Member) -> Any:
    group = member.group(schema="sglang-8", timeout=_LATE_S)
    reducer, gatherer = group.reducer(4), group.gatherer()
    if member.rank == 1:
        member.meet()
        return group.reduce([2])
    operation = group.poll_start([PollList([4])])
    answers = [_in_child(lambda: _what_a_child_sees(member.context, group, reducer, gatherer, operation))]
    waiter: List[Any] = []
    thread = threading.Thread(target=lambda: waiter.append(operation.wait()))
    thread.start()
    end = time.monotonic() + _SOON_S
    while group.owner is None and time.monotonic() < end:
        time.sleep(0.001)
    answers.append(_in_child(lambda: _what_a_child_sees(member.context, group, reducer, gatherer, operation)))
    member.meet()
    thread.join(_SOON_S)
    return answers, waiter[0].lists[0].states


# openucx/ucx issue 10748, PR 7493
def test_a_forked_child_gets_forked_and_the_parent_goes_on() -> None:
    seen = "{'fresh': '[3]', 'warnings': '[]'}, exit code 0"
    expect_equal(crew.run(2, _forks), [([seen, seen], [2]), [2]], "values")


def _environment() -> Dict[str, str]:
    """Without what only tests read: the plugin warns of variables that look like its settings and are none."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CONVOY_")}
    return dict(kept, PYTHONPATH=_PACKAGE, LIBRARY=crew.LIBRARY)


def _script(text: str, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", text, *arguments], env=dict(_environment(), **variables), text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


_OPEN = """
import atexit, gc, os, signal, sys, threading, time
import convoy
context = convoy.load(os.environ["LIBRARY"]).context(secret=b"crew", settings={"timeout_ms": 60000})
group = context.group("crew", 2, 1, sys.argv[1])
def wait_in_flight():
    while not group.info().operation:
        time.sleep(0.001)
    print("in flight", flush=True)
def wait_for_ever():
    try:
        group.reduce([4])
    except convoy.Closed:
        pass
"""
_ENDS: Dict[str, Tuple[str, int, Tuple[str, ...]]] = {
    "an operation in flight": ("operation = group.poll_start([convoy.PollList([4])]); wait_in_flight()", 0, ("closed",)),
    "a thread that waits": ("threading.Thread(target=wait_for_ever, daemon=True).start(); wait_in_flight()", 0,
                            ("closed",)),
    "without atexit": ("operation = group.poll_start([convoy.PollList([4])]); wait_in_flight(); atexit._clear()", 0,
                       ("closed", "lost")),
    "a waiting thread without atexit": ("threading.Thread(target=wait_for_ever, daemon=True).start(); "
                                        "wait_in_flight(); atexit._clear()", 0, ("closed", "lost")),
    "sys.exit": ("group.poll_start([convoy.PollList([4])]); wait_in_flight(); sys.exit(7)", 7, ("closed",)),
    "an exception": ("group.poll_start([convoy.PollList([4])]); wait_in_flight(); raise SystemExit(3)", 3, ("closed",)),
    "os._exit": ("group.poll_start([convoy.PollList([4])]); wait_in_flight(); os._exit(5)", 5, ("lost",)),
    "SIGTERM": ("group.poll_start([convoy.PollList([4])]); wait_in_flight(); os.kill(os.getpid(), signal.SIGTERM); "
                "time.sleep(60)", -signal.SIGTERM, ("lost",)),
    "SIGTERM with a handler": ("signal.signal(signal.SIGTERM, lambda *a: sys.exit(4)); "
                               "threading.Thread(target=lambda: (wait_in_flight(), os.kill(os.getpid(), signal.SIGTERM)), "
                               "daemon=True).start(); group.reduce([4])", 4, ("closed",)),
    "os.fork and sys.exit in the child": (
        "operation = group.poll_start([convoy.PollList([4])]); wait_in_flight()\n"
        "if os.fork() == 0: sys.exit(0)\n"
        "assert os.wait()[1] == 0\nassert operation.wait().lists[0].states == [4]\ncontext.close()", 0, ("closed",)),
}


def _peer_of_an_end(member: Member, kind: str) -> Any:
    body, code, conditions = _ENDS[kind]
    process = _script(_OPEN + body, member.endpoint)
    try:
        group = member.context = member.open()
        group = group.group("crew", 2, 0, member.endpoint, open_timeout=_LATE_S, timeout=_LATE_S)
        assert process.stdout is not None
        expect_equal(process.stdout.readline(), "in flight\n", "its first line")
        began, seen = time.monotonic(), ""
        for tag in (0, 0):  # the round that it left complete still counts
            try:
                group.reduce([4])
            except convoy.PeerLost as failure:
                assert failure.report is not None
                seen = [m.condition for m in failure.report.members if m.rank == 1][0]
                break
        _, errors = process.communicate(timeout=_SOON_S)
        assert time.monotonic() - began < _SOON_S
        return seen in conditions or seen, process.returncode == code or process.returncode, errors
    finally:
        process.kill()
        process.wait()


def test_ends_of_the_interpreter_are_seen_at_once_and_have_their_exit_code() -> None:
    for kind in _ENDS:
        expect_equal(crew.run(1, _peer_of_an_end, kind), [(True, True, "")], kind)


_SPAWN = """
import multiprocessing, os, sys
import convoy
def child(answer):
    with convoy.load(os.environ["LIBRARY"]).context() as context:
        answer.put(context.group("one", 1, 0).reduce([3]))
if __name__ == "__main__":
    with convoy.load(os.environ["LIBRARY"]).context() as context:
        for kind in ("spawn", "forkserver", "fork"):
            here = multiprocessing.get_context(kind)
            answer = here.SimpleQueue()
            process = here.Process(target=child, args=(answer,))
            process.start()
            process.join(20)
            assert process.exitcode == 0 and answer.get() == [3], kind
        assert context.group("one", 1, 0).reduce([2]) == [2]
"""


def test_multiprocessing_in_all_of_its_ways() -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "script.py"
        path.write_text(_SPAWN)
        done = subprocess.run([sys.executable, str(path)], env=_environment(), text=True, capture_output=True,
                              timeout=90, check=False)
        expect_equal((done.returncode, done.stderr), (0, ""), "exit code and errors")


if __name__ == "__main__":
    runner.main(globals())
