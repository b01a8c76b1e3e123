#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What lives how long under the hooks: process groups made again, threads, forks, and the end of the interpreter."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import threading
from importlib import import_module
from pathlib import Path
from typing import Any, Dict, List

_HERE = Path(__file__).resolve().parent
_PACKAGE = _HERE.parents[1] / "plugin" / "python"
sys.path[:0] = [str(_HERE), str(_PACKAGE)]
os.environ.setdefault("CONVOY_LIBRARY", str(_HERE.parents[1] / "build" / "libconvoy.so.1"))
os.environ.setdefault("CONVOY_SECRET", "of the lives")

from lib import gang, runner, sglang_gang  # noqa: E402
from lib.gang import Member  # noqa: E402
from lib.pair import Child, Pipe  # noqa: E402
from lib.runner import expect_equal, expect_raises  # noqa: E402
from lib.sglang_gang import Lines, TorchCalls, hooked, reduce  # noqa: E402

_LIMIT_S = 90.0


def _gang(size: int, function: Any, *args: Any, groups: Any = None) -> List[Any]:
    return gang.run(size, function, args, groups, limit_s=_LIMIT_S)


# -- process groups that come and go -----------------------------------------------------------------------------------


def _held() -> Dict[str, int]:
    """What this process holds of the machine."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        shared = sum("convoy" in line for line in maps)
    return {"files": len(os.listdir("/proc/self/fd")), "threads": len(os.listdir("/proc/self/task")), "maps": shared}


def _remade(member: Member, turns: int) -> Any:
    import torch.distributed as dist

    from convoy.sglang import _state, groups

    utils = hooked("today")
    sglang_gang.all_active(member.size)
    results, held = [], {}
    for turn in range(turns):
        group = dist.new_group([0, 1])
        results.append(reduce(utils, "today", [4, 4 - member.rank], group) == [4, 3])
        row = sglang_gang.gathered(sglang_gang.batch("today", member, turn), group)
        results.append(row["global_num_tokens"] == [turn, turn])
        dist.barrier()
        dist.destroy_process_group(group)
        del group
        gc.collect()
        if turn == 9:
            held = _held()
    grown = {name: count - held[name] for name, count in _held().items()}
    return all(results), len(groups()), len(_state.process().lanes), grown


def test_sglang_lives_of_process_groups_that_are_made_again() -> None:
    turns = runner.scaled(40, 1000)
    for good, count, lanes, grown in _gang(2, _remade, turns):
        expect_equal((good, lanes), (True, 0), "results, and lanes of process groups that have gone")
        assert count <= 4, "%d groups are open" % count
        # What a process group of torch leaves behind is not convoy's; a leak would show once a turn.
        assert all(more < (turns - 10) // 2 for more in grown.values()), grown


def _world_again(member: Member, folder: str) -> Any:
    import torch.distributed as dist

    utils = hooked("today")
    results = [utils._all_reduce_polls([4 - member.rank], None)]
    for turn in range(2):
        dist.barrier()
        dist.destroy_process_group()
        member.groups.clear()
        dist.init_process_group("gloo", init_method="file://%s/%d" % (folder, turn), rank=1 - member.rank, world_size=2)
        results.append(utils._all_reduce_polls([4 - 2 * dist.get_rank(), 3], None))
    return results


def test_sglang_lives_of_a_world_that_is_made_again() -> None:
    with tempfile.TemporaryDirectory() as folder:
        expect_equal(_gang(2, _world_again, folder), [[[3], [2, 3], [2, 3]]] * 2, "results")


# -- threads -----------------------------------------------------------------------------------------------------------


def _two_schedulers(member: Member, rounds: int) -> Any:
    """Two threads, each with a process group of the same ranks, which they open convoy's groups on at once."""
    from convoy.sglang import _state, groups

    utils = hooked("today")
    sglang_gang.all_active(member.size)
    start, wrong, opened = threading.Barrier(2), [], []  # type: Any, List[Any], List[Any]
    library = import_module("convoy.library")
    real = library.Plugin.context

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        opened.append(1)
        return real(self, *args, **kwargs)

    library.Plugin.context = counted

    def scheduler(name: str) -> None:
        group, own = member.groups[name], 3 if name == "a" else 2
        start.wait(_LIMIT_S)
        for turn in range(rounds):
            polls = reduce(utils, "today", [4, own, 4 - member.rank], group)
            batch = sglang_gang.batch("today", member, turn + 100 * own)
            row = sglang_gang.gathered(batch, group, use_all_reduce=turn % 2 == 0)
            if (polls, row["global_num_tokens"]) != ([4, own, 3], [turn + 100 * own] * 2):
                wrong.append((name, turn, polls, row["global_num_tokens"]))

    calls = TorchCalls()
    threads = [threading.Thread(target=scheduler, args=(name,), daemon=True) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_LIMIT_S / 2)
    names = [group.name for group in groups()]
    return [thread.is_alive() for thread in threads], wrong, calls.taken(), len(opened), len(names), len(set(names))


def test_sglang_lives_of_two_schedulers_in_one_process() -> None:
    both = {"a": [[0, 1]], "b": [[0, 1]]}
    for value in _gang(2, _two_schedulers, 100, groups=both):
        expect_equal(value, ([False, False], [], 0, 1, 4, 4), "hanging, wrong, torch's, contexts, groups, names")


# -- forks -------------------------------------------------------------------------------------------------------------


def _forks_with_an_engine(pipe: Pipe) -> None:
    from convoy.sglang.diffusion import ConvoyTransferBuffer, ConvoyTransferEngine

    engine = ConvoyTransferEngine()
    child = os.fork()
    if child == 0:
        try:
            expect_raises(RuntimeError, lambda: ConvoyTransferBuffer(1 << 20))  # the engine is the parent's
            own = ConvoyTransferEngine()
            ConvoyTransferBuffer(1 << 20)
            own.close()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    buffer = ConvoyTransferBuffer(1 << 20)
    pipe.send((os.waitstatus_to_exitcode(status), buffer.transfer_engine is engine))
    engine.close()


def test_sglang_lives_of_an_engine_across_a_fork() -> None:
    with Child(_forks_with_an_engine) as child:
        expect_equal(child.pipe.recv(), (0, True), "exit code of the child, and the parent's buffer")


# -- the end -----------------------------------------------------------------------------------------------------------

_SCRIPT = """
import logging, os, sys, threading
sys.path[:0] = [%r, %r]
logging.basicConfig(level=logging.WARNING)
from lib.sglang_gang import hooked, reduce
import torch.distributed as dist
rank, how = int(sys.argv[1]), sys.argv[3]
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
utils, world = hooked("today"), dist.group.WORLD
assert reduce(utils, "today", [4, 4 - rank], world) == [4, 3]
dist.barrier()
if how == "waits" and rank == 0:
    waiting = threading.Event()
    def wait():
        waiting.set()
        utils._all_reduce_polls([4], world)
    threading.Thread(target=wait, daemon=True).start()
    waiting.wait(30)
if how == "destroys":
    dist.destroy_process_group()
if how == "keeps":
    keep = utils, world, dist
if how == "forgets":
    sys.modules.pop("convoy.sglang")
"""


def _scripts(how: str) -> List[Any]:
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, GLOO_SOCKET_IFNAME="lo", PYTHONFAULTHANDLER="1")
        script = _SCRIPT % (str(_HERE), str(_PACKAGE))
        command = [sys.executable, "-X", "dev", "-W", "ignore", "-c", script]
        ranks = [subprocess.Popen([*command, str(rank), folder + "/meeting", how], env=environment, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in (0, 1)]
        try:
            return [(one.communicate(timeout=_LIMIT_S)[0], one.returncode) for one in ranks]
        finally:
            for one in ranks:
                one.kill()


def test_sglang_lives_end_with_the_interpreter_and_say_nothing() -> None:
    for how in ("leaves", "destroys", "keeps", "forgets"):
        for rank, (text, code) in enumerate(_scripts(how)):
            expect_equal((code, text), (0, ""), "rank %d, which %s: exit code, and what it says" % (rank, how))


def test_sglang_lives_end_while_a_thread_waits_for_a_rank_that_has_gone() -> None:
    for rank, (text, code) in enumerate(_scripts("waits")):
        expect_equal(code, 0, "rank %d: %s" % (rank, text))
        assert "Fatal" not in text and (rank == 0 or text == ""), text


if __name__ == "__main__":
    runner.need("torch")
    if not os.path.exists(os.environ["CONVOY_LIBRARY"]):
        runner.skip_program("%s has not been built" % os.environ["CONVOY_LIBRARY"])
    runner.main(globals())
