#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The hooked functions called in every way that a host may call them: forms of arguments, of states, of rows, of groups."""

from __future__ import annotations

import enum
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Dict, List

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]
os.environ.setdefault("CONVOY_LIBRARY", str(_HERE.parents[1] / "build" / "libconvoy.so.1"))

from lib import gang, runner, sglang_gang  # noqa: E402
from lib.gang import Member  # noqa: E402
from lib.runner import expect_equal  # noqa: E402
from lib.sglang_gang import GATHER, Lines, TorchCalls, hooked, outcome, reduce  # noqa: E402

_LIMIT_S = 90.0
_MOST = 1 << 16  # states of one poll reduce


class State(enum.IntEnum):
    Failed = 0
    Success = 4


class Number(int):
    pass


def _gang(size: int, function: Any, *args: Any) -> List[Any]:
    return gang.run(size, function, args, limit_s=_LIMIT_S)


# -- states ------------------------------------------------------------------------------------------------------------


def _forms(rank: int) -> Dict[str, Any]:
    import numpy as np
    import torch

    low = 4 - rank
    return {
        "list": [4, low], "tuple": (4, low), "none": [], "none in a tuple": (), "bytes": bytes([4, low]),
        "enum": [State.Success, State.Failed if rank else State.Success], "subclass": [Number(4), Number(low)],
        "bool": [True, rank == 0], "numpy ints": list(np.array([4, low])), "numpy bytes": list(np.array([4, low], np.uint8)),
        "scalars of torch": [torch.tensor(4, dtype=torch.uint8), torch.tensor(low, dtype=torch.uint8)],
        "mixed": [4, np.int32(low), Number(3), torch.tensor(2)], "array": np.array([4, low], np.uint8),
        "wide array": np.array([4, low]), "tensor": torch.tensor([4, low], dtype=torch.uint8),
        "wide tensor": torch.tensor([4, low]), "one tensor": torch.tensor([3], dtype=torch.uint8),
    }


def _states(member: Member) -> Any:
    utils, world = hooked("today"), member.groups["world"]
    ours = utils._all_reduce_polls
    ours([4], world)
    calls, wrong = TorchCalls(), []
    for name, states in _forms(member.rank).items():
        for result in (ours(states, world), ours(polls=states, group=world), ours(states, group=None)):
            least = ours.__wrapped__([int(one) for one in states], world)
            calls.count -= 1
            if result != least or type(result) is not list or any(type(one) is not int for one in result):
                wrong.append((name, result, least))
    return wrong, calls.taken()


def test_sglang_calls_with_states_of_every_kind() -> None:
    expect_equal(_gang(2, _states), [([], 0)] * 2, "states that came out otherwise, and collectives of torch")


def _no_states(member: Member, environment: Dict[str, str]) -> Any:
    utils, world = hooked("today", environment), member.groups["world"]
    texts = []
    for bad in (["4"], [None], [5], [-1], [256], [2**70], "44", 7, None):
        given = bad if member.rank == 1 else [4]
        texts.append(outcome(lambda: utils._all_reduce_polls(given, world)).split(":")[0])
    return texts, utils._all_reduce_polls([4, 4 - member.rank], world)


def test_sglang_calls_with_what_are_no_states_are_told_to_the_peers() -> None:
    for rank, value in enumerate(_gang(2, _no_states, {})):
        expect_equal(value, (["InvalidArgument" if rank else "PeerFailed"] * 9, [4, 3]), "rank %d" % rank)


def _long(member: Member, environment: Dict[str, str], counts: List[int]) -> Any:
    utils, world = hooked("today", environment), member.groups["world"]
    lines, results = Lines(), []
    for count in counts:
        states = [4, 4 - member.rank] * (count // 2)
        result = outcome(lambda: utils._all_reduce_polls(states, world))
        results.append(result if isinstance(result, str) else result == [4, 3] * (count // 2))
    return results, lines.warnings()


def test_sglang_calls_of_long_queues() -> None:
    for results, warnings in _gang(2, _long, {}, [10, 5000, 20_000, _MOST, 10]):
        expect_equal((results, warnings), ([True] * 5, []), "results")


def test_sglang_calls_of_queues_that_are_too_long_are_refused_alike() -> None:
    for results, _ in _gang(2, _long, {}, [10, _MOST + 2, 10]):
        expect_equal((results[0], results[2]), (True, True), "before and after")
        assert results[1].startswith("Limit") and str(_MOST + 2) in results[1] and str(_MOST) in results[1], results[1]
    for results, warnings in _gang(2, _long, {"CONVOY_FALLBACK": "host"}, [10, _MOST + 2, 10]):
        expect_equal((results, len(warnings)), ([True] * 3, 1), "the host's way: %s" % warnings)


def _one_too_long(member: Member) -> Any:
    utils, world = hooked("today"), member.groups["world"]
    states = [4] * (_MOST + 2 if member.rank else 2)
    return outcome(lambda: utils._all_reduce_polls(states, world)), utils._all_reduce_polls([3], world)


def test_sglang_calls_of_one_queue_that_is_too_long_are_told_to_the_peers() -> None:
    for rank, (text, after) in enumerate(_gang(2, _one_too_long)):
        assert text.startswith("Limit" if rank else "PeerFailed"), text
        expect_equal(after, [3], "the next round")


def _again_and_again(member: Member) -> Any:
    utils, world = hooked("today", {"CONVOY_FALLBACK": "host"}), member.groups["world"]
    lines = Lines()
    results = [utils._all_reduce_polls([7 if member.rank else 4], world) for _ in range(20)]
    return results, len(lines.warnings()), lines.warnings()[-1].endswith("(16 times by now)")


def test_sglang_calls_that_fail_every_time_do_not_flood_the_log() -> None:
    expect_equal(_gang(2, _again_and_again), [([[4]] * 20, 5, True)] * 2, "lines")


# -- rows --------------------------------------------------------------------------------------------------------------


def _row_calls(member: Member) -> Any:
    import torch

    hooked("today")
    sglang_gang.all_active(4)
    world, kind = member.groups["world"], import_module(GATHER["today"]).MLPSyncBatchInfo
    ours, hosts = kind.all_gather, kind.all_gather.__wrapped__
    cpu = torch.device("cpu")

    class Narrow(kind):  # type: ignore[misc, valid-type]
        """Rows of 32 bits, which stay torch's."""

        def _get_local_tensor(self, device: Any, dtype: Any = torch.int32) -> Any:
            return super()._get_local_tensor(device, torch.int32)

        def _get_fallback_tensor(self, device: Any, dtype: Any = torch.int32) -> Any:
            return super()._get_fallback_tensor(device, torch.int32)

    class Nine(kind):  # type: ignore[misc, valid-type]
        """A column more."""

        def _get_local_tensor(self, device: Any, dtype: Any = torch.int64) -> Any:
            return torch.cat([super()._get_local_tensor(device), torch.tensor([77 + member.rank])])

        def _get_fallback_tensor(self, device: Any, dtype: Any = torch.int64) -> Any:
            return torch.cat([super()._get_fallback_tensor(device), torch.tensor([5])])

    def batch(of: Any = kind, dp_size: int = member.size, tokens: int = 10 + member.rank) -> Any:
        return of(dp_size, 1, 1, tokens, 1, True, False, True, 2, True, 7)

    cases: List[Any] = [
        (batch, ("cpu", world), {}), (batch, (), {"device": "cpu", "group": world}), (batch, (cpu, world), {}),
        (batch, (cpu, None), {}), (batch, ("cpu", world, True), {}), (batch, (cpu, None, True), {}),
        (batch, ("cpu",), {"group": world, "use_all_reduce": True}),
        (lambda: batch(Nine), ("cpu", world), {}), (lambda: batch(Nine), ("cpu", world, True), {}),
        (lambda: batch(Narrow), ("cpu", world), {}), (lambda: batch(Narrow), ("cpu", world, True), {}),
        (lambda: batch(dp_size=4), ("cpu", world, True), {}), (lambda: batch(dp_size=1), ("cpu", world, True), {}),
        (batch, ("cpu", world), {}), (lambda: batch(tokens=0), ("cpu", world, True), {}),
        (lambda: batch(tokens=2**40), ("cpu", world, True), {}),
    ]
    return [_compared(ours, hosts, *case) for case in cases]


def _compared(ours: Any, hosts: Any, make: Any, args: Any, kwargs: Any) -> Any:
    """"" when both do the same."""
    one, other = make(), make()
    results = [ours(one, *args, **kwargs), hosts(other, *args, **kwargs)]
    plain = [{name: v.tolist() if hasattr(v, "tolist") else v for name, v in vars(batch).items()} for batch in (one, other)]
    return "" if results == [None, None] and plain[0] == plain[1] else "%s is not %s" % tuple(plain)


def test_sglang_calls_of_the_gather_in_every_form() -> None:
    for rank, value in enumerate(_gang(2, _row_calls)):
        expect_equal(value, [""] * 16, "rank %d" % rank)


# -- groups ------------------------------------------------------------------------------------------------------------


def _mixed(member: Member) -> Any:
    """Polls and gathers through one process group, by turns; and a process group that rank 1 is not in."""
    import torch.distributed as dist

    from convoy.sglang import call_logs, groups

    utils, world = hooked("today"), member.groups["world"]
    sglang_gang.all_active(member.size)
    rows = []
    for turn in range(4):
        rows.append(reduce(utils, "today", [4 - turn, 4 - member.rank], world))
        rows.append(sglang_gang.gathered(sglang_gang.batch("today", member, turn), world)["global_num_tokens"])
    alone = dist.new_group([0])
    single = [utils._all_reduce_polls([3], alone) for _ in range(2)]
    names = [group.name for group in groups()]
    return rows, single, sorted(len(log) for log in call_logs().values()), len(set(names)) == len(names)


def test_sglang_calls_of_polls_and_gathers_on_one_process_group() -> None:
    expected = [part for turn in range(4) for part in ([4 - turn, 3], [turn, turn])]
    for rank, value in enumerate(_gang(2, _mixed)):
        expect_equal(value, (expected, [[3], [3]], [4, 4] if rank else [2, 4, 4], True), "rank %d" % rank)


if __name__ == "__main__":
    runner.need("torch", "numpy")
    if not os.path.exists(os.environ["CONVOY_LIBRARY"]):
        runner.skip_program("%s has not been built" % os.environ["CONVOY_LIBRARY"])
    runner.main(globals())
