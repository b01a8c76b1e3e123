#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The host's hooked functions in real processes over gloo: equal results, and every edge of the table of what happens
when convoy cannot make a collective (plugin/python/convoy/sglang/_lanes.py)."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Dict, List

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]
os.environ.setdefault("CONVOY_LIBRARY", str(_HERE.parents[1] / "build" / "libconvoy.so.1"))

from lib import gang, runner, sglang_gang  # noqa: E402
from lib.gang import Member  # noqa: E402
from lib.runner import expect_equal  # noqa: E402
from lib.sglang_gang import Lines, TorchCalls, hooked, outcome, reduce  # noqa: E402

_HOST = {"CONVOY_FALLBACK": "host"}
_SHORT = {"CONVOY_TIMEOUT_MS": "400"}  # where a rank is to be too late
_LIMIT_S = 90.0


def _gang(size: int, function: Any, *args: Any, groups: Any = None) -> List[Any]:
    return gang.run(size, function, args, groups, limit_s=_LIMIT_S)


# -- equal results ----------------------------------------------------------------------------------------------------


def _polls(member: Member, shape: str) -> Any:
    utils = hooked(shape)
    world, own = member.groups["world"], member.rank
    reduce(utils, shape, [4], world)
    calls, results = TorchCalls(), []
    for states in ([4, 3, 2], [0, 4, 4 - own], [], list(range(5)) * 1200, [4 - own] * 7):
        results.append(reduce(utils, shape, states, world) == _least(member.size, states, own, calls, world))
    return all(results), calls.taken()


def _least(size: int, states: Any, own: int, calls: TorchCalls, world: Any) -> List[int]:
    """The same by torch itself, which is not counted."""
    import torch
    import torch.distributed as dist

    tensor = torch.tensor(list(states), dtype=torch.uint8)
    dist.all_reduce(tensor, op=dist.ReduceOp.MIN, group=world)
    calls.count -= 1
    return [int(value) for value in tensor]


def test_sglang_run_polls_equal_the_hosts() -> None:
    for shape in ("today", "before"):
        expect_equal(_gang(3, _polls, shape), [(True, 0)] * 3, "%s: equal, and collectives of torch" % shape)


def _two_levels(member: Member, shape: str) -> Any:
    utils = hooked(shape)
    tp, cp = member.groups["tp2x2"], member.groups["cp2x2"]
    pollers = [sglang_gang.Poller(state) for state in (4, 4 - member.rank, 2)]
    first = utils.poll_and_all_reduce_attn_cp_tp_group(pollers, cp, tp)
    calls = TorchCalls()
    second = utils.poll_and_all_reduce_attn_cp_tp_group(pollers, attn_cp_cpu_group=cp, attn_tp_cpu_group=tp)
    from convoy.sglang import call_logs

    rounds = sorted(len(log) for log in call_logs().values())
    return first, second, calls.taken(), rounds


def test_sglang_run_two_levels_reduce_once_on_each() -> None:
    for shape in ("today", "before"):
        values = _gang(4, _two_levels, shape, groups=gang.grid_groups(4, 2, 2))
        expect_equal(values, [([4, 1, 2], [4, 1, 2], 0, [2, 2])] * 4, shape)


def _gathers(member: Member, shape: str) -> Any:
    import torch.distributed as dist

    hooked(shape)
    sglang_gang.all_active(member.size)
    world, tokens = member.groups["world"], 10 + member.rank
    modes: List[Dict[str, Any]] = [{}] + ([{"use_all_reduce": True}] if shape == "today" else [])
    first = [sglang_gang.gathered(sglang_gang.batch(shape, member, tokens), world, **mode) for mode in modes]
    calls = TorchCalls()
    again = [sglang_gang.gathered(sglang_gang.batch(shape, member, tokens), world, **mode) for mode in modes]
    torch_calls = calls.taken()
    kind = type(sglang_gang.batch(shape, member, 0))
    own = kind.all_gather.__wrapped__
    plain = []
    for mode in modes:
        one = sglang_gang.batch(shape, member, tokens)
        own(one, "cpu", world, **mode)
        plain.append({name: v.tolist() if hasattr(v, "tolist") else v for name, v in sorted(vars(one).items())})
    dist.barrier()
    return first == plain, again == plain, torch_calls, first[0]["global_num_tokens"]


def test_sglang_run_gathers_equal_the_hosts() -> None:
    for shape in ("today", "before"):
        expect_equal(_gang(3, _gathers, shape), [(True, True, 0, [10, 11, 12])] * 3, shape)


def _wide_world(member: Member) -> Any:
    """Slots for two ranks more than there are, and for one less."""
    import torch

    hooked("today")
    sglang_gang.all_active(member.size)
    results = []
    for slots in (member.size + 2, member.size - 1):
        one = sglang_gang.batch("today", member, 10 + member.rank)
        one.dp_size = slots
        sglang_gang.all_active(slots)
        one.all_gather("cpu", member.groups["world"], use_all_reduce=True)
        assert isinstance(one.tp0_info_cpu, torch.Tensor)
        results.append(one.global_num_tokens)
    return results


def test_sglang_run_world_gather_has_as_many_slots_as_the_host_says() -> None:
    expect_equal(_gang(3, _wide_world), [[[10, 11, 12, 0, 0], [10, 11]]] * 3, "tokens")


# -- a rank that cannot open ------------------------------------------------------------------------------------------


def _without_library(member: Member, shape: str, environment: Dict[str, str]) -> Any:
    lines = Lines()
    if member.rank == 1:
        environment = dict(environment, CONVOY_LIBRARY="/nowhere/libconvoy.so.1")
    utils = hooked(shape, environment)
    results = [outcome(lambda: reduce(utils, shape, [4, 4 - member.rank], member.groups["world"])) for _ in range(2)]
    return results, lines.warnings()


def test_sglang_run_rank_without_library_raises_on_all() -> None:
    for results, _ in _gang(3, _without_library, "today", {}):
        for text in results:
            assert text.startswith("NotFound: rank 1: CONVOY_LIBRARY names /nowhere"), text


def test_sglang_run_rank_without_library_sends_all_the_hosts_way() -> None:
    for shape in ("today", "before"):
        for results, warnings in _gang(3, _without_library, shape, _HOST):
            expect_equal(results, [[4, 2]] * 2, "results")
            assert len(warnings) == 1 and "rank 1" in warnings[0] and "/nowhere" in warnings[0], warnings


# -- input that is refused --------------------------------------------------------------------------------------------


def _refused(member: Member, shape: str, environment: Dict[str, str]) -> Any:
    lines = Lines()
    utils = hooked(shape, environment)
    world = member.groups["world"]
    before = reduce(utils, shape, [4, 3], world)
    bad = 7 if member.rank == 1 else 4
    started = time.monotonic()
    middle = outcome(lambda: reduce(utils, shape, [bad, 3], world))
    seconds = time.monotonic() - started
    calls = TorchCalls()
    after = reduce(utils, shape, [4, 2], world)
    return before, middle, seconds, after, calls.taken(), lines.warnings()


def test_sglang_run_refused_input_is_told_to_the_peers_at_once() -> None:
    for shape in ("today", "before"):
        values = _gang(3, _refused, shape, {})
        for rank, (before, middle, seconds, after, count, _) in enumerate(values):
            expect_equal((before, after, count), ([4, 3], [4, 2], 0), "rounds before and after")
            assert middle.startswith("InvalidArgument" if rank == 1 else "PeerFailed"), (rank, middle)
            assert rank == 1 or "rank 1" in middle, middle
            assert seconds < 30, "told, not waited for"


def test_sglang_run_refused_input_goes_the_hosts_way_for_that_call() -> None:
    for shape in ("today", "before"):
        for before, middle, _, after, count, warnings in _gang(3, _refused, shape, _HOST):
            expect_equal((before, middle, after, count), ([4, 3], [4, 3], [4, 2], 0), "results; convoy makes the last one")
            expect_equal(len(warnings), 1, "warnings: %s" % warnings)


def _refused_row(member: Member, environment: Dict[str, str]) -> Any:
    import torch.distributed as dist

    hooked("today", environment)
    sglang_gang.all_active(member.size)
    world = member.groups["world"]

    def rows() -> Any:
        one = sglang_gang.batch("today", member, 5)
        return outcome(lambda: sglang_gang.gathered(one, world, use_all_reduce=True)["global_num_tokens"])

    before = rows()
    real = dist.get_rank
    if member.rank == 1:  # the host gives the group by name and is told a foreign slot
        dist.get_rank = lambda *args, **kwargs: 0 if "group" in kwargs else real(*args)
    middle = rows()
    dist.get_rank = real
    return before, middle, rows()


def test_sglang_run_world_table_of_another_form_is_told_to_the_peers() -> None:
    for rank, (before, middle, after) in enumerate(_gang(2, _refused_row, {})):
        expect_equal((before, after), ([5, 5], [5, 5]), "gathers before and after")
        assert middle.startswith("InvalidArgument" if rank == 1 else "PeerFailed"), (rank, middle)


def test_sglang_run_world_table_of_another_form_goes_the_hosts_way() -> None:
    expect_equal(_gang(2, _refused_row, _HOST), [([5, 5], [10, 0], [5, 5])] * 2, "sums of torch in between")


# -- ranks that differ, come late, or die -----------------------------------------------------------------------------


def _counts_differ(member: Member, environment: Dict[str, str]) -> Any:
    utils = hooked("today", environment)
    world = member.groups["world"]
    reduce(utils, "today", [4], world)
    text = outcome(lambda: reduce(utils, "today", [4] * (2 + member.rank), world))
    return text, reduce(utils, "today", [3], world)


def test_sglang_run_counts_that_differ_raise_whatever_the_fallback() -> None:
    for environment in ({}, _HOST):
        for text, after in _gang(3, _counts_differ, environment):
            assert isinstance(text, str) and text.startswith("Diverged"), text
            for rank in range(3):
                assert "rank %d brought %d" % (rank, 2 + rank) in text, text
            expect_equal(after, [3], "the next round")


def _late(member: Member, shape: str, environment: Dict[str, str], folder: str) -> Any:
    """Rank 1 begins the second round when both others have given it up."""
    lines = Lines()
    utils = hooked(shape, dict(_SHORT, **environment))
    world, given_up = member.groups["world"], [Path(folder) / str(rank) for rank in (0, 2)]
    first = reduce(utils, shape, [4, 4], world)
    own = Path(folder) / str(member.rank)
    if member.rank == 1:
        _await(lambda: all(path.exists() for path in given_up))
    else:
        lines.at_warning = own.touch  # on the way to torch's collective, where rank 1 is waited for
    second = outcome(lambda: reduce(utils, shape, [4, 4 - member.rank], world))
    own.touch()
    calls = TorchCalls()
    third = outcome(lambda: reduce(utils, shape, [3, 4 - member.rank], world))
    return first, second, third, calls.taken(), lines.warnings()


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LIMIT_S / 2
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not come"
        time.sleep(0.01)


def _slow(member: Member, folder: str) -> Any:
    """Rank 1 begins the second round when both others have said that they wait for it."""
    lanes = import_module("convoy.sglang._lanes")
    lanes.WARN_AFTER_S = 0.2
    lines, utils, world = Lines(), hooked("today"), member.groups["world"]
    reduce(utils, "today", [4], world)
    said = [Path(folder) / str(rank) for rank in (0, 2)]
    if member.rank == 1:
        _await(lambda: all(path.exists() for path in said))
    else:
        lines.at_warning = (Path(folder) / str(member.rank)).touch
    return reduce(utils, "today", [4 - member.rank], world), lines.warnings()


def test_sglang_run_long_wait_is_said_once_and_goes_on() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for rank, (result, warnings) in enumerate(_gang(3, _slow, folder)):
            expect_equal(result, [2], "rank %d" % rank)
            expect_equal(len(warnings), 0 if rank == 1 else 1, "warnings of rank %d: %s" % (rank, warnings))
            assert rank == 1 or ("rank 1" in warnings[0] and "waits" in warnings[0]), warnings


def _late_gang(shape: str, environment: Dict[str, str]) -> List[Any]:
    with tempfile.TemporaryDirectory() as folder:
        return _gang(3, _late, shape, environment, folder)


def test_sglang_run_late_rank_breaks_the_round_for_all() -> None:
    for rank, (first, second, third, _, _) in enumerate(_late_gang("today", {})):
        expect_equal(first, [4, 4], "the first round")
        assert second.startswith("Broken") and third.startswith("Broken"), (second, third)
        if rank != 1:
            assert "rank 1" in second, second


def test_sglang_run_late_rank_sends_all_the_hosts_way_from_that_call_on() -> None:
    for shape in ("today", "before"):
        for first, second, third, count, warnings in _late_gang(shape, _HOST):
            expect_equal((first, second, third, count), ([4, 4], [4, 2], [3, 2], 1), shape)
            expect_equal(len(warnings), 1, "warnings: %s" % warnings)


def _complete_after_all(member: Member, environment: Dict[str, str]) -> Any:
    """A rank whose wait is over when the round is complete for all takes the result."""
    from convoy import errors
    from convoy.group import Group
    from convoy.poll import PollList

    utils = hooked("today", environment)
    world = member.groups["world"]
    reduce(utils, "today", [4], world)
    real = Group.reduce

    def late(self: Any, states: Any) -> Any:
        if member.rank == 1:
            operation_is_open(self, states)
            raise errors.TimedOut("made up: the wait is over")
        return real(self, states)

    def operation_is_open(self: Any, states: Any) -> None:
        operation = self.poll_start([PollList(states)])
        self._left_open = lambda left: operation.wait(left).lists[0].states
        deadline = time.monotonic() + 30
        while self.info().round < 2 and not all_heard(self) and time.monotonic() < deadline:
            time.sleep(0.01)

    def all_heard(self: Any) -> bool:
        report = self.last_report()
        return report is not None and all(one.condition == "heard" for one in report.members)

    Group.reduce = late  # type: ignore[assignment, method-assign]
    try:
        second = outcome(lambda: reduce(utils, "today", [4 - member.rank], world))
    finally:
        Group.reduce = real  # type: ignore[method-assign]
    return second, outcome(lambda: reduce(utils, "today", [2], world))


def test_sglang_run_round_that_is_complete_after_the_time_out_gives_its_result() -> None:
    for environment in ({}, _HOST):
        expect_equal(_gang(2, _complete_after_all, environment), [([3], [2])] * 2, "results")


def _killed(member: Member, environment: Dict[str, str], folder: str) -> Any:
    utils = hooked("today", environment)
    world = member.groups["world"]
    reduce(utils, "today", [4], world)
    if member.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    started = time.monotonic()
    try:
        text = outcome(lambda: str(reduce(utils, "today", [4], world)))
    except RuntimeError as failure:  # torch's own collective fails as well, at once
        text = "torch: %s" % failure
    (Path(folder) / str(member.rank)).write_text("%.1f %s" % (time.monotonic() - started, text))


def _survivors(environment: Dict[str, str]) -> List[str]:
    with tempfile.TemporaryDirectory() as folder:
        try:
            _gang(3, _killed, environment, folder)
        except gang.GangError as failure:
            assert "exit code -9" in str(failure), failure
        else:
            raise AssertionError("rank 1 was not killed")
        files = {path.name: path.read_text() for path in Path(folder).iterdir()}
    expect_equal(sorted(files), ["0", "2"], "survivors that got an answer")
    assert all(float(text.split()[0]) < 30 for text in files.values()), files
    return [text.partition(" ")[2] for _, text in sorted(files.items())]


def test_sglang_run_killed_rank_is_named() -> None:
    for text in _survivors({}):
        assert text.startswith("PeerLost") and "rank 1" in text, text


def test_sglang_run_killed_rank_leaves_torch_to_fail() -> None:
    for text in _survivors(_HOST):
        assert text.startswith("torch: "), text


# -- a child ----------------------------------------------------------------------------------------------------------


def _forks(member: Member) -> Any:
    from convoy.sglang import _state, groups

    utils = hooked("today")
    reduce(utils, "today", [4], member.groups["world"])
    child = os.fork()
    if child == 0:
        is_empty = groups() == [] and _state.process()._context is None
        is_own = not _state.context().closed
        os._exit(0 if is_empty and is_own else 1)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), reduce(utils, "today", [3], member.groups["world"])


def test_sglang_run_forked_child_opens_its_own_context() -> None:
    expect_equal(_gang(2, _forks), [(0, [3])] * 2, "exit code of the child, and the next round of the parent")


if __name__ == "__main__":
    runner.need("torch")
    if not os.path.exists(os.environ["CONVOY_LIBRARY"]):
        runner.skip_program("%s has not been built" % os.environ["CONVOY_LIBRARY"])
    runner.main(globals())
