# SPDX-License-Identifier: Apache-2.0
"""What ranks of a gang do with groups of convoy.torch. Each returns what its test looks at."""

from __future__ import annotations

import contextlib
import os
import random
import threading
from pathlib import Path
from typing import Any, Callable, Iterator, List, Optional, Tuple

import convoy
import convoy.torch
import torch
import torch.distributed
from lib import gang
from lib.runner import expect_equal

dist: Any = torch.distributed  # without types in older releases
_ROOT = Path(__file__).resolve().parents[3]
LIBRARY = os.environ.setdefault("CONVOY_LIBRARY", str(_ROOT / "build" / "libconvoy.so.1"))
DTYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
WIDTH = 8


@contextlib.contextmanager
def opened_context() -> Iterator[convoy.Context]:
    with convoy.load() as plugin, plugin.context(secret=b"test") as context:
        yield context


def min_over(process_group: Any, values: Any) -> List[int]:
    """What gloo makes of it. An empty list needs no exchange."""
    tensor = torch.tensor(values, dtype=torch.int64)
    if len(values):
        dist.all_reduce(tensor, op=dist.ReduceOp.MIN, group=process_group)
    result: List[int] = tensor.tolist()
    return result


def _check_tensors(group: Any, process_group: Any, states: List[int]) -> None:
    expected = min_over(process_group, states)
    for dtype in DTYPES:
        tensor = torch.tensor(states, dtype=dtype)
        expect_equal(group.all_reduce_min(tensor) is tensor, True, "the same tensor comes back")
        expect_equal((tensor.dtype, tensor.tolist()), (dtype, expected), f"{len(states)} of {dtype}")
        gaps = torch.full((3 * len(states),), 7, dtype=dtype)
        gaps[1::3] = torch.tensor(states, dtype=dtype)
        group.all_reduce_min(gaps[1::3])
        expect_equal(gaps[1::3].tolist(), expected, f"{len(states)} of {dtype} with gaps")
        expect_equal(gaps[0::3].tolist() + gaps[2::3].tolist(), [7] * (2 * len(states)), f"the gaps, {dtype}")


def _check_shapes(group: Any, process_group: Any, random_states: Callable[[int], List[int]]) -> None:
    for dtype in DTYPES:
        states = random_states(12)
        turned = torch.tensor(states, dtype=dtype).reshape(3, 4).t()
        expected = torch.tensor(min_over(process_group, states), dtype=dtype).reshape(3, 4).t()
        expect_equal(group.all_reduce_min(turned).tolist(), expected.tolist(), f"a transposed tensor of {dtype}")
        single = torch.tensor(states[0], dtype=dtype)
        expect_equal(int(group.all_reduce_min(single)), min_over(process_group, states[:1])[0], f"no dimension, {dtype}")
        entry = torch.tensor(states[:1], dtype=dtype)
        expect_equal(group.reduce(entry), min_over(process_group, states[:1]), f"reduce of a tensor of one, {dtype}")


def reduces_like_gloo(member: gang.Member, seed: int) -> List[str]:
    """Names of the groups, after equality over every process group that this rank is in."""
    rng = random.Random(seed * 100 + member.rank)
    names = []
    with opened_context() as context:
        for name in sorted(member.groups):
            process_group = member.groups[name]
            group = convoy.torch.open_group(context, process_group)
            expect_equal(group.members, member.ranks[name], f"members of {name}")
            expect_equal(group.rank, member.rank, "own rank")
            for count in (0, 1, 3, 64, 5000):
                states = [rng.randrange(5) for _ in range(count)]
                expect_equal(group.all_reduce_min(states), min_over(process_group, states), f"a list of {count}")
                _check_tensors(group, process_group, states)
            _check_shapes(group, process_group, lambda count: [rng.randrange(5) for _ in range(count)])
            names.append(group.name)
    return names


def reduces_in_place(member: gang.Member) -> None:
    with opened_context() as context:
        group = convoy.torch.open_group(context)
        tensor = torch.tensor([4, member.rank, 2], dtype=torch.uint8)
        before = tensor.data_ptr()
        group.all_reduce_min(tensor)
        expect_equal((tensor.data_ptr(), tensor.tolist()), (before, [4, 0, 2]), "reduced in place")

        def aim(*arguments: Any) -> None:
            raise AssertionError("the same tensor was set up again")

        setattr(group._tensor_reducer, "aim", aim)
        for round_number in range(3):
            tensor.fill_(member.rank + round_number)
            expect_equal(group.all_reduce_min(tensor).tolist(), [round_number] * 3, f"round {round_number}")
            expect_equal(tensor.data_ptr(), before, "its memory")
        delattr(group._tensor_reducer, "aim")
        expect_equal(group.all_reduce_min(tensor[:1]).tolist(), [2], "the same address, but shorter")
        expect_equal(group.all_reduce_min(tensor).tolist(), [2, 2, 2], "and longer again")


def refuses_tensors(member: gang.Member) -> None:
    """Refused before anything is sent: the round after that works."""
    with opened_context() as context:
        group = convoy.torch.open_group(context, schema="sglang-8")
        wide = torch.tensor([1, 256], dtype=torch.int64)
        refused: List[Tuple[Callable[[], Any], str]] = [
            (lambda: group.all_reduce_min(torch.zeros(3)), "float32"),
            (lambda: group.all_reduce_min(wide), "256"),
            (lambda: group.all_reduce_min(torch.zeros(1, dtype=torch.uint8).expand(3)), "expanded"),
            (lambda: group.all_reduce_min(torch.tensor([5], dtype=torch.uint8)), "5"),
            (lambda: group.gather_row([0] * WIDTH, torch.zeros(WIDTH * member.size)), "float32"),
            (lambda: group.gather_row([0] * WIDTH, torch.zeros(WIDTH, dtype=torch.int64)), "8 elements"),
            (lambda: group.gather_row([0] * (WIDTH - 1)), "8 integers"),
            (lambda: group.gather_row([2**63] + [0] * (WIDTH - 1)), "64 bits"),
            (lambda: group.gather_row(torch.zeros(WIDTH - 1, dtype=torch.int64)), "7 values")]
        for call, word in refused:
            name, text, _ = outcome(call)
            expect_equal((name, word in text), ("InvalidArgument", True), f"what is refused: {text}")
        expect_equal(wide.tolist(), [1, 256], "what was refused is as it was")
        expect_equal(group.all_reduce_min([3, member.rank]), [3, 0], "the round after that")


def rows_like_gloo(member: gang.Member, inner: int) -> None:
    rng = random.Random(member.rank)
    shape = (member.size // inner, inner, WIDTH)
    with opened_context() as context:
        group = convoy.torch.open_group(context, schema="sglang-8", sync_inner=inner)
        for kind in ("list", "tensor", "gaps"):
            row = torch.tensor([rng.randrange(-(2**62), 2**62) for _ in range(WIDTH)])
            parts = [torch.empty_like(row) for _ in range(member.size)]
            dist.all_gather(parts, row)
            expected = torch.stack(parts).reshape(shape)
            spread = torch.zeros((WIDTH, 2), dtype=torch.int64)
            spread[:, 1] = row
            given: Any = {"list": row.tolist(), "tensor": row, "gaps": spread[:, 1]}[kind]
            _check_outs(group, given, expected)
        own = expected.clone().zero_().reshape(-1, WIDTH)
        own[member.rank] = row
        group.gather_row(own[member.rank], own)
        expect_equal(own.tolist(), expected.reshape(-1, WIDTH).tolist(), "a row that lies in its own table")
        voted = group.gather_row(row.tolist(), active=[1] + [0] * (member.size - 1), mask_version=1)
        expect_equal(group.presence, [0] + [1] * (member.size - 1), "who is present")
        expect_equal(voted.reshape(-1, WIDTH)[0].tolist(), expected.reshape(-1, WIDTH)[0].tolist(), "the active row")
        expect_equal(group.gather_row(row.tolist()).tolist(), expected.tolist(), "the plain way after that")
        expect_equal(group.presence, [0] * member.size, "all present")


def _check_outs(group: Any, row: Any, expected: torch.Tensor) -> None:
    expect_equal(group.gather_row(row).tolist(), expected.tolist(), "a table of its own")
    flat = torch.zeros((expected.numel() // WIDTH, WIDTH), dtype=torch.int64)
    before = flat.data_ptr()
    expect_equal(group.gather_row(row, flat) is flat and flat.data_ptr() == before, True, "filled in place")
    expect_equal(flat.reshape(expected.shape).tolist(), expected.tolist(), "a table of the caller's")
    gaps = torch.full((*expected.shape, 2), 7, dtype=torch.int64)
    group.gather_row(row, gaps[..., 0])
    expect_equal((gaps[..., 0].tolist(), int(gaps[..., 1].min())), (expected.tolist(), 7), "a table with gaps")


def is_closed(group: Any) -> bool:
    try:
        group.info()
    except convoy.Closed:
        return True
    return False


def keeps_groups(member: gang.Member, meeting: str) -> None:
    ranks = list(range(member.size))
    with opened_context() as context, convoy.torch.Groups(context) as groups:
        first = dist.new_group(ranks)
        old = groups.get(first)
        expect_equal(groups.get(first) is old, True, "the same process group, the same group")
        dist.destroy_process_group(first)
        del first
        again = dist.new_group(ranks)
        fresh = groups.get(again)
        expect_equal(fresh is old, False, "a process group that was made again has a group of its own")
        expect_equal(is_closed(old), True, "the old one is closed")
        expect_equal(fresh.all_reduce_min([2, 3 + member.rank]), [2, 3], "the fresh one")

        world = groups.get()
        expect_equal(groups.get(dist.group.WORLD) is world, True, "None is the world")
        expect_equal(len({old.name, fresh.name, world.name}), 3, "names of groups of the same ranks")
        rounds = [group.all_reduce_min([index + member.rank]) for index in range(3) for group in (fresh, world)]
        expect_equal(rounds, [[0], [0], [1], [1], [2], [2]], "two groups of the same ranks, in turns")
        dist.barrier()
        member.groups.clear()
        del again
        dist.destroy_process_group()
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=member.rank, world_size=member.size)
        expect_equal(groups.get() is world, False, "the world that was made again")
        expect_equal(groups.get().all_reduce_min([member.rank]), [0], "a round in it")
        groups.close()
        expect_equal(groups.get().all_reduce_min([member.rank]), [0], "opened anew after close")


def outcome(call: Callable[[], Any]) -> Tuple[str, str, int]:
    """Class, text and rank of what a call raises."""
    try:
        call()
    except (Exception, KeyboardInterrupt) as error:
        return type(error).__name__, str(error), getattr(error, "rank", -1)
    return "nothing", "", -1


def fails_to_load(member: gang.Member, bad: int, others_open: bool) -> Any:
    """The bad rank has no library; the others have, and open a group meanwhile or agree first."""
    failure: Optional[BaseException] = None
    with contextlib.ExitStack() as stack:
        try:
            plugin = stack.enter_context(convoy.load("/nowhere/libconvoy.so.1" if member.rank == bad else None))
        except convoy.ConvoyError as reason:
            failure = reason
        else:
            context = stack.enter_context(plugin.context())
        if failure is None and others_open:
            told = outcome(lambda: convoy.torch.open_group(context))
        else:
            told = outcome(lambda: convoy.torch.agree(None, failure))
    with opened_context() as context:
        expect_equal(convoy.torch.open_group(context).all_reduce_min([member.rank]), [0], "the process group goes on")
    return told


def fails_to_open(member: gang.Member) -> Any:
    """Rank 1 is refused at once; its options differ; it fails for reasons of its own before, in, and after the open."""
    is_bad = member.rank == 1
    with opened_context() as context:
        refused = outcome(lambda: convoy.torch.open_group(context, sync_inner=3 if is_bad else 0))
        diverged = outcome(lambda: convoy.torch.open_group(context, blob_bytes_max=32768 if is_bad else 0))
        foreign = outcome(lambda: convoy.torch.agree(None, OSError("no such thing") if is_bad else None))
        nonsense: Any = {"nonsense": 1} if is_bad else {}
        unknown = outcome(lambda: convoy.torch.open_group(context, **nonsense))
        make = context._make_group

        def make_and_fail(*arguments: Any) -> Any:
            make(*arguments).close()
            raise OSError("too late")

        if is_bad:
            setattr(context, "_make_group", make_and_fail)
        late = outcome(lambda: convoy.torch.open_group(context))
        setattr(context, "_make_group", make)
        left = [m.name for m in context._life.members]
        expect_equal(convoy.torch.open_group(context).all_reduce_min([member.rank]), [0], "the process group goes on")
    return {"refused": refused, "diverged": diverged, "foreign": foreign, "unknown": unknown, "late": late, "left": left}


def when_waiting(group: Any, then: Callable[[], Any]) -> threading.Thread:
    """Calls ``then`` once the main thread is inside a round of the group."""

    def watch() -> None:
        limit = threading.Event()
        while group.info().state != "active" and not limit.wait(0.001):
            pass
        then()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread
