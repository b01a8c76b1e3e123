#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Hosts that differ from the known releases: rows of other widths, functions under decorators, other plugins' patches."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator, List

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]
os.environ.setdefault("CONVOY_LIBRARY", str(_HERE.parents[1] / "build" / "libconvoy.so.1"))

import standin  # noqa: E402
from lib import gang, runner, sglang_gang  # noqa: E402
from lib.gang import Member  # noqa: E402
from lib.runner import expect_equal  # noqa: E402
from lib.sglang_gang import GATHER, UTILS, TorchCalls  # noqa: E402
from lib.sglang_plans import logged, plan_of  # noqa: E402

_REGISTRY = "sglang.srt.plugins.hook_registry"
_HELPER = UTILS + "._all_reduce_polls"


def _apply() -> None:
    importlib.import_module("convoy.sglang").register()
    importlib.import_module(_REGISTRY).HookRegistry.apply_hooks()


# -- rows of other widths ----------------------------------------------------------------------------------------------


def _release_of(columns: int) -> Any:
    """The class of a release with fewer or more columns than today's eight: today's source, changed, in its module."""
    module = importlib.import_module(GATHER["today"])
    source = inspect.getsource(module)
    fallback = [0, 0, 1, 0, 1, "row_tables.IDLE", 0, 0, 9][:columns]
    source = source.replace("[0, 0, 1, 0, 1, row_tables.IDLE, 0, 0]", "[%s]" % ", ".join(map(str, fallback)))
    if columns > 8:
        last = "            self.prefill_cuda_graph_max_prefix_len,\n"
        source = source.replace(last + "        ]", last + "            self.num_tokens + 100,\n        ]")
    else:
        for line in ("            int(self.can_run_prefill_cuda_graph),\n",
                     "            self.prefill_cuda_graph_max_prefix_len,\n        ]"):
            source = source.replace(line, "        ]" if line.endswith("]") else "")
        source = source[: source.index("        self.can_run_prefill_cuda_graph = bool")]
    exec(compile(source, "<release of %d columns>" % columns, "exec"), vars(module))
    return module.MLPSyncBatchInfo


def _widths(member: Member, columns: int) -> Any:
    standin.use("today")
    kind = _release_of(columns)
    _apply()
    sglang_gang.all_active(member.size)
    world = member.groups["world"]
    values = []
    for options in ({}, {"use_all_reduce": True}):
        ours, hosts = (sglang_gang.batch("today", member, 5 + member.rank) for _ in range(2))
        ours.all_gather("cpu", world, **options)
        calls = TorchCalls() if not values else calls
        ours.all_gather("cpu", world, **options)
        count = calls.taken()
        kind.all_gather.__wrapped__(hosts, "cpu", world, **options)
        calls.taken()
        values.append((ours.tp0_info_cpu.tolist() == hosts.tp0_info_cpu.tolist(), list(ours.tp0_info_cpu.shape), count))
    return values


def test_sglang_releases_with_six_and_with_nine_columns() -> None:
    for columns in (6, 9):
        for value in gang.run(2, _widths, (columns,), limit_s=90.0):
            expect_equal(value, [(True, [2, columns], 0)] * 2, "%d columns: equal, shape, collectives of torch" % columns)


def test_sglang_releases_that_reduce_at_more_places_are_left() -> None:
    for place in (_HELPER, GATHER["today"] + ".MLPSyncBatchInfo.all_gather"):
        standin.use("today")
        module = importlib.import_module(place.rpartition(".")[0].replace(".MLPSyncBatchInfo", ""))
        source = inspect.getsource(module)
        line = next(line for line in source.splitlines() if "dist.all_reduce(" in line or "distributed.all_reduce(" in line)
        exec(compile(source.replace(line, line + "\n" + line), "<twice>", "exec"), vars(module))
        action, reason = plan_of()[place]
        assert action == "warn" and "expected one all_reduce, found 2" in reason, (action, reason)


# -- decorators and patches --------------------------------------------------------------------------------------------


@contextmanager
def _world_of_one() -> Iterator[Any]:
    import torch.distributed as dist

    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method="file://%s/meeting" % folder, rank=0, world_size=1)
        try:
            yield dist.group.WORLD
        finally:
            dist.destroy_process_group()


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        wrapper.calls += 1  # type: ignore[attr-defined]
        return function(*args, **kwargs)

    wrapper.calls = 0  # type: ignore[attr-defined]
    return wrapper


def _held_in_a_list(function: Callable[..., Any]) -> Callable[..., Any]:
    held = [function]

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return held[0](*args, **kwargs)

    return wrapper


class _Object:
    """A decorator that is a class."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def test_sglang_releases_with_decorated_functions() -> None:
    import torch

    followed = {"no_grad": torch.no_grad(), "inference_mode": torch.inference_mode(), "wraps": _wrapped,
                "both": lambda function: torch.no_grad()(_wrapped(function))}
    left = {"cache": functools.lru_cache(), "list": _held_in_a_list, "object": _Object,
            "partial": lambda function: functools.partial(function)}
    with _world_of_one() as world:
        for name, decorate in dict(followed, **left).items():
            standin.use("today")
            utils = importlib.import_module(UTILS)
            utils._all_reduce_polls = decorated = decorate(utils._all_reduce_polls)
            action, reason = plan_of()[_HELPER]
            expect_equal(action, "apply" if name in followed else "warn", "%s: %s" % (name, reason))
            with logged():
                _apply()
            calls = TorchCalls()
            given = (4, 3) if name == "cache" else [4, 3]
            expect_equal(list(utils._all_reduce_polls(given, world)), [4, 3], name)
            expect_equal(calls.taken(), 0 if name in followed else 1, "%s: collectives of torch" % name)
            if name == "wraps":
                expect_equal(decorated.calls, 1, "calls that the decorator has counted")


def test_sglang_releases_with_decorated_callers_and_methods() -> None:
    import torch

    with _world_of_one() as world:
        standin.use("before")
        utils, module = importlib.import_module(UTILS), importlib.import_module(GATHER["before"])
        utils.poll_and_all_reduce = torch.no_grad()(utils.poll_and_all_reduce)
        module.MLPSyncBatchInfo.all_gather = torch.no_grad()(module.MLPSyncBatchInfo.all_gather)
        _apply()
        sglang_gang.all_active(1)
        calls = TorchCalls()
        expect_equal(utils.poll_and_all_reduce([sglang_gang.Poller(3)], gloo_group=world), [3], "the result")
        batch = sglang_gang.batch("before", Member(0, 1), 12)
        batch.all_gather("cpu", world)
        expect_equal((batch.global_num_tokens, calls.taken()), ([12], 0), "tokens, and collectives of torch")


def test_sglang_releases_patched_by_other_plugins() -> None:
    with _world_of_one() as world:
        for is_before in (True, False):
            standin.use("today")
            utils, seen = importlib.import_module(UTILS), []  # type: Any, List[str]

            def patch() -> None:
                inner = utils._all_reduce_polls

                def theirs(polls: Any, group: Any) -> Any:
                    seen.append("theirs")
                    return inner(polls, group)

                utils._all_reduce_polls = theirs

            if is_before:
                patch()  # does not communicate by itself, so nobody knows what it does
                expect_equal(plan_of()[_HELPER][0], "warn", "a function that is not the host's")
            with logged():
                _apply()
            if not is_before:
                patch()
            calls = TorchCalls()
            expect_equal(utils._all_reduce_polls([2], world), [2], "the result")
            expect_equal((seen, calls.taken()), (["theirs"], 1 if is_before else 0), "patched before: %s" % is_before)


def test_sglang_releases_whose_plugins_are_loaded_twice() -> None:
    standin.use("today")
    registry = importlib.import_module(_REGISTRY).HookRegistry
    diffusion = importlib.import_module("sglang.multimodal_gen.plugins").HookRegistry
    sglang = importlib.import_module("convoy.sglang")
    with logged() as log:
        for _ in range(3):
            sglang.register()
            sglang.register_diffusion()
            registry.apply_hooks()
            diffusion.apply_hooks()
    counts = {target: len(entries) for table in (registry._hooks, diffusion._hooks) for target, entries in table.items()}
    expect_equal(sorted(counts.values()), [1] * 5, "hooks: %s" % counts)
    expect_equal(log.of("WARNING"), [], "warnings")
    assert any("registered before" in line for line in log.lines), log.lines


if __name__ == "__main__":
    runner.need("torch")
    if not os.path.exists(os.environ["CONVOY_LIBRARY"]):
        runner.skip_program("%s has not been built" % os.environ["CONVOY_LIBRARY"])
    runner.main(globals())
