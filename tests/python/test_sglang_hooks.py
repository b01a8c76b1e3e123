#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the plugin for the host decides to hook, in each release, and that it leaves alone what it does not know."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any, Callable, Iterator, List, Tuple

_HERE = Path(__file__).resolve().parent
_PACKAGE = _HERE.parents[1] / "plugin" / "python"
sys.path[:0] = [str(_HERE), str(_PACKAGE)]
os.environ.setdefault("CONVOY_LIBRARY", str(_HERE.parents[1] / "build" / "libconvoy.so.1"))

import standin  # noqa: E402
from lib import runner  # noqa: E402
from lib.runner import expect_equal  # noqa: E402
from lib.sglang_plans import actions_of, environment_with, logged, plan_of  # noqa: E402

_UTILS = "sglang.srt.disaggregation.utils"
_GATHER = "sglang.srt.managers.scheduler_components.dp_attn.MLPSyncBatchInfo.all_gather"
_OLD_GATHER = "sglang.srt.managers.scheduler_dp_attn_mixin.MLPSyncBatchInfo.all_gather"
_CALLERS = ["poll_and_all_reduce", "poll_and_all_reduce_attn_cp_tp_group", "poll_and_all_reduce_with_staging"]


def _registry() -> Any:
    return importlib.import_module("sglang.srt.plugins.hook_registry")


def _registered() -> List[str]:
    return sorted(_registry().HookRegistry._hooks)


def _register() -> None:
    from convoy.sglang import register

    register()
    _registry().HookRegistry.apply_hooks()


def test_sglang_plan_of_today_is_the_helper_and_the_gather() -> None:
    standin.use("today")
    expect_equal(actions_of(), {_UTILS + "._all_reduce_polls": "apply", _GATHER: "apply"}, "the plan")


def test_sglang_plan_of_the_release_before_is_the_three_callers() -> None:
    standin.use("before")
    expected = {"%s.%s" % (_UTILS, name): "apply" for name in _CALLERS}
    expect_equal(actions_of(), dict(expected, **{_OLD_GATHER: "apply"}), "the plan")


def test_sglang_plan_of_an_unknown_release_is_to_leave_it_and_says_why() -> None:
    standin.use("future")
    plan = plan_of()
    expect_equal({action for action, _ in plan.values()}, {"warn"}, "actions")
    helper = plan[_UTILS + "._all_reduce_polls"][1]
    for part in ("expected parameters (polls, group)", "priority"):
        assert part in helper, helper


def test_sglang_unknown_release_keeps_the_very_same_functions() -> None:
    standin.use("future")
    utils = importlib.import_module(_UTILS)
    batch = importlib.import_module("sglang.srt.managers.scheduler_components.dp_attn").MLPSyncBatchInfo
    before, methods = dict(vars(utils)), dict(vars(batch))
    with logged() as log:
        _register()
    assert all(vars(utils)[name] is value for name, value in before.items())
    assert all(vars(batch)[name] is value for name, value in methods.items())
    expect_equal(_registered(), [], "what was registered")
    expect_equal(len(log.of("WARNING")), 3, "warnings: one per piece; %s" % log.lines)


def test_sglang_switches_leave_pieces_out() -> None:
    standin.use("today")
    helper = _UTILS + "._all_reduce_polls"
    expect_equal(actions_of({"CONVOY_HOOK_POLL": "0"}), {helper: "leave", _GATHER: "apply"}, "without poll")
    expect_equal(actions_of({"CONVOY_HOOK_GATHER": "0"}), {helper: "apply", _GATHER: "leave"}, "without gather")
    expect_equal(actions_of({"CONVOY_HOOKS": "0"}), {helper: "leave", _GATHER: "leave"}, "without any")
    expect_equal(actions_of({"CONVOY_HOOKS": "1", "CONVOY_HOOK_POLL": "1"}), {helper: "apply", _GATHER: "apply"}, "with all")
    expect_equal(plan_of({"CONVOY_HOOK_POLL": "0"})[helper][1], "CONVOY_HOOK_POLL=0", "the reason")


def test_sglang_dry_run_prints_the_plan_and_registers_nothing() -> None:
    standin.use("today")
    with environment_with(CONVOY_DRY_RUN="1"), contextlib.redirect_stderr(io.StringIO()) as text, logged() as log:
        _register()
    expect_equal(_registered(), [], "what was registered")
    for place in (text.getvalue(), "\n".join(log.lines)):
        assert "hook poll on %s._all_reduce_polls: applied (AROUND)" % _UTILS in place and _GATHER in place, place


def test_sglang_says_one_line_for_each_hook() -> None:
    standin.use("before")
    with logged() as log:
        _register()
    expect_equal(len(log.of("INFO")), 7, "lines: %s" % log.lines)
    expect_equal(log.of("WARNING"), [], "warnings")
    expect_equal(len(_registered()), 7, "hooks")


def test_sglang_diffusion_without_a_registry_of_its_own_is_hooked_by_the_servers() -> None:
    for shape, own in (("today", True), ("before", False)):
        standin.use(shape)
        _register()
        targets = [target for target in _registered() if ".multimodal_gen." in target]
        expect_equal(bool(targets), not own, "%s: %s" % (shape, targets))


def test_sglang_without_a_host_there_is_one_line_and_no_error() -> None:
    text = _run_python("from convoy.sglang import register, register_diffusion as d; import logging; "
                       "logging.basicConfig(level=20); register(); d()")
    expect_equal(text.count("no hooks: no module sglang"), 2, text)
    assert "no hooks in sglang.srt.plugins.hook_registry: no module sglang" in _run_python("-m convoy.sglang")


def _run_python(what: str, *path: str) -> str:
    given = what.split() if what.startswith("-m") else ["-c", what]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join((str(_PACKAGE),) + path))
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, *given], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=120, text=True, cwd=folder)
    expect_equal(done.returncode, 0, "exit code; %s" % done.stdout)
    return done.stdout


def test_sglang_module_prints_the_plan() -> None:
    folder = _HERE / "standin"
    text = _run_python("-m convoy.sglang", str(folder / "today"), str(folder / "common"))
    assert "hook poll on %s._all_reduce_polls: applied (AROUND)" % _UTILS in text and "hook transfer" in text, text


def test_sglang_registry_of_another_shape_gets_no_hooks() -> None:
    standin.use("today")
    registry = _registry().HookRegistry
    registry.register = classmethod(lambda cls, target: None)
    with logged() as log:
        from convoy.sglang import register

        register()
    assert len(log.of("WARNING")) == 1 and "unknown shape of the registry" in log.lines[-1], log.lines


def test_sglang_module_that_cannot_be_imported_is_left_out() -> None:
    standin.use("today")
    with tempfile.TemporaryDirectory() as folder:
        broken = Path(folder) / "sglang" / "srt" / "disaggregation"
        broken.mkdir(parents=True)
        (broken / "utils.py").write_text("raise RuntimeError('no such device')\n")
        sys.path.insert(0, folder)
        try:
            action, reason = plan_of()[_UTILS + "._all_reduce_polls"]
        finally:
            sys.path.remove(folder)
    assert action == "leave" and "no such device" in reason, (action, reason)


# -- a host in one process --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _world_of_one() -> Iterator[Any]:
    import torch.distributed as dist

    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method="file://%s/meeting" % folder, rank=0, world_size=1)
        try:
            yield dist.group.WORLD
        finally:
            dist.destroy_process_group()


class _Poller:
    def __init__(self, state: int) -> None:
        self.state = state

    def poll(self) -> int:
        return self.state


def _torch_reduces(count: List[int]) -> Any:
    import torch.distributed as dist

    original = dist.all_reduce

    def all_reduce(*args: Any, **kwargs: Any) -> Any:
        count.append(1)
        return original(*args, **kwargs)

    return original, all_reduce


def _count_reductions(call: Callable[[], Any]) -> Tuple[Any, int]:
    """The result, and how often torch itself reduced."""
    import torch.distributed as dist

    count: List[int] = []
    original, counting = _torch_reduces(count)
    dist.all_reduce = counting
    try:
        return call(), len(count)
    finally:
        dist.all_reduce = original


def test_sglang_hook_reaches_modules_that_imported_the_name() -> None:
    for shape, name in (("today", "_all_reduce_polls"), ("before", "poll_and_all_reduce")):
        standin.use(shape)
        utils = importlib.import_module(_UTILS)
        user: Any = types.ModuleType("scene_user")
        user.taken = before = vars(utils)[name]
        sys.modules["scene_user"] = user
        try:
            _register()
            assert user.taken is vars(utils)[name] and user.taken is not before
            with _world_of_one() as world:
                given = [4, 3] if shape == "today" else [_Poller(4), _Poller(3)]
                expect_equal(_count_reductions(lambda: user.taken(given, world)), ([4, 3], 0), "through the taken name")
        finally:
            del sys.modules["scene_user"]


def test_sglang_hooks_of_others_run_once_whether_they_come_first_or_last() -> None:
    for shape, name in (("today", "_all_reduce_polls"), ("before", "poll_and_all_reduce")):
        for is_first in (True, False):
            standin.use(shape)
            utils, registry = importlib.import_module(_UTILS), _registry()
            seen: List[str] = []
            if is_first:
                _others(registry, name, seen)
            from convoy.sglang import register

            register()
            if not is_first:
                _others(registry, name, seen)
            registry.HookRegistry.apply_hooks()
            with _world_of_one() as world:
                given = [4, 3] if shape == "today" else [_Poller(4), _Poller(3)]
                result, count = _count_reductions(lambda: vars(utils)[name](given, world))
            expect_equal((result, count), ([4, 3, 9], 0), "%s, first %s" % (shape, is_first))
            # Wrappers go around each other in the order of registration, so the last one is entered first.
            expect_equal(seen, ["around", "before", "after"], "calls of the others")


def _others(registry: Any, name: str, seen: List[str]) -> None:
    kind, target = registry.HookType, "%s.%s" % (_UTILS, name)

    def around(original: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append("around")
        return original(*args, **kwargs)

    registry.HookRegistry.register(target, lambda *a, **k: seen.append("before"), kind.BEFORE)
    registry.HookRegistry.register(target, lambda result, *a, **k: seen.append("after") or result + [9], kind.AFTER)
    registry.HookRegistry.register(target, around, kind.AROUND)


def test_sglang_replacement_by_another_plugin_stays() -> None:
    standin.use("before")
    utils, registry = importlib.import_module(_UTILS), _registry()
    registry.HookRegistry.register(_UTILS + ".poll_and_all_reduce", lambda *a, **k: "theirs", registry.HookType.REPLACE)
    with logged() as log:
        _register()
        expect_equal([utils.poll_and_all_reduce([], None) for _ in range(2)], ["theirs"] * 2, "the result")
    expect_equal(len([line for line in log.of("WARNING") if "is left as it is" in line]), 1, "warnings: %s" % log.lines)


def test_sglang_registered_twice_still_reduces_once() -> None:
    standin.use("today")
    utils = importlib.import_module(_UTILS)
    _register()
    _registry().HookRegistry.reset()
    importlib.import_module("convoy.sglang._host")._registered.clear()  # as another copy of the plugin would be
    _register()
    with _world_of_one() as world:
        expect_equal(utils._all_reduce_polls([4, 2], world), [4, 2], "the result")
        from convoy.sglang import groups

        expect_equal(groups()[-1].info().round, 1, "rounds")


if __name__ == "__main__":
    runner.need("torch")
    if not os.path.exists(os.environ["CONVOY_LIBRARY"]):
        runner.skip_program("%s has not been built" % os.environ["CONVOY_LIBRARY"])
    runner.main(globals())
