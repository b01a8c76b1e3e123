#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The registry of hooks in the stand-in behaves as the host's does, so that what is shown with it holds for the host."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
import types
from pathlib import Path
from typing import Any, Iterator

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

import standin  # noqa: E402
from lib import runner  # noqa: E402
from lib.runner import expect_equal, expect_raises  # noqa: E402

_SOURCE = """
class Thing:
    def add(self, one, other=0):
        return one + other

    @classmethod
    def named(cls, name):
        return cls.__name__ + name

    @staticmethod
    def twice(one):
        return 2 * one

def add(one, other=0):
    "adds"
    return one + other

def call_add(one):
    return add(one)
"""


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")


class _Scene:
    """A fresh registry, a module `scene_target` to be hooked, and a module `scene_user` that took names from it."""

    def __init__(self, lines: list[str]) -> None:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        self.registry, self.kind, self.lines = HookRegistry, HookType, lines
        self.target: Any = types.ModuleType("scene_target")
        exec(_SOURCE, self.target.__dict__)
        self.user: Any = types.ModuleType("scene_user")
        self.user.plus, self.user.Kind = self.target.add, self.target.Thing
        sys.modules.update(scene_target=self.target, scene_user=self.user)


@contextlib.contextmanager
def _scene() -> Iterator[_Scene]:
    standin.use("today")
    logger, handler = logging.getLogger("sglang"), _Lines()
    parts = logging.getLogger("standin_parts")
    for one in (logger, parts):
        one.addHandler(handler)
        one.propagate = False
    try:
        yield _Scene(handler.lines)
    finally:
        for one in (logger, parts):
            one.removeHandler(handler)
        for name in ("scene_target", "scene_user"):
            sys.modules.pop(name, None)


def test_registry_types_have_the_documented_values() -> None:
    with _scene() as scene:
        expect_equal([kind.value for kind in scene.kind], ["before", "after", "around", "replace"], "values")


def test_registry_register_only_records() -> None:
    with _scene() as scene:
        original = scene.target.add
        scene.registry.register("scene_target.add", lambda result, *a, **k: 9, source="test")
        assert scene.target.add is original
        scene.registry.register("scene_target.absent", lambda *a: None)


def test_registry_before_changes_arguments_or_leaves_them() -> None:
    with _scene() as scene:
        scene.registry.register("scene_target.add", lambda *a, **k: ((a[0] + 1,), {"other": 5}), scene.kind.BEFORE)
        scene.registry.register("scene_target.add", lambda *a, **k: None, scene.kind.BEFORE)
        scene.registry.apply_hooks()
        expect_equal(scene.target.add(1), 7, "1 + 1 + 5")


def test_registry_after_changes_the_result_or_keeps_it() -> None:
    with _scene() as scene:
        scene.registry.register("scene_target.add", lambda result, *a, **k: result * 10 + a[0])
        scene.registry.register("scene_target.add", lambda result, *a, **k: None, scene.kind.AFTER)
        scene.registry.apply_hooks()
        expect_equal(scene.target.add(1, other=2), 31, "3 * 10 + 1")


def test_registry_around_calls_the_original_itself() -> None:
    with _scene() as scene:
        scene.registry.register("scene_target.add", lambda original, *a, **k: -original(*a, **k), scene.kind.AROUND)
        scene.registry.apply_hooks()
        expect_equal(scene.target.add(1, 2), -3, "the negative sum")


def test_registry_replace_comes_first_and_others_wrap_in_order() -> None:
    with _scene() as scene:
        kind = scene.kind
        scene.registry.register("scene_target.add", lambda result, *a, **k: result + "1", kind.AFTER)
        scene.registry.register("scene_target.add", lambda original, *a, **k: f"<{original(*a)}>", kind.AROUND)
        scene.registry.register("scene_target.add", lambda *a, **k: "new", kind.REPLACE)
        scene.registry.register("scene_target.add", lambda result, *a, **k: result + "2", kind.AFTER)
        scene.registry.apply_hooks()
        expect_equal(scene.target.add(0), "<new1>2", "the chain")


def test_registry_second_replace_wins_with_a_warning() -> None:
    with _scene() as scene:
        for value in (1, 2):
            scene.registry.register("scene_target.add", lambda *a, value=value, **k: value, scene.kind.REPLACE)
        scene.registry.apply_hooks()
        expect_equal(scene.target.add(0), 2, "the last replacement")
        assert [line for line in scene.lines if line.startswith("WARNING") and "scene_target.add" in line], scene.lines


def test_registry_wrappers_keep_name_and_original() -> None:
    with _scene() as scene:
        for kind in scene.kind:
            scene.target.add = original = _numbered(scene.target.add)
            scene.registry.reset()
            scene.registry.register("scene_target.add", lambda *a, **k: None, kind)
            scene.registry.apply_hooks()
            assert scene.target.add is not original and scene.target.add.__wrapped__ is original, kind
            expect_equal(scene.target.add.__name__, "add", "the name")


def _numbered(function: Any) -> Any:
    """Another function object with the same code, so that it has not been patched yet."""
    inner = getattr(function, "__wrapped__", function)
    return types.FunctionType(inner.__code__, inner.__globals__, inner.__name__, inner.__defaults__)


def test_registry_class_is_replaced_by_a_class_everywhere() -> None:
    with _scene() as scene:
        new = type("New", (scene.target.Thing,), {})
        scene.registry.register("scene_target.Thing", new, scene.kind.REPLACE)
        scene.registry.apply_hooks()
        assert scene.target.Thing is new and scene.user.Kind is new


def test_registry_class_needs_replace() -> None:
    with _scene() as scene:
        expect_raises(TypeError, lambda: scene.registry.register("scene_target.Thing", dict, scene.kind.AFTER))
        original = scene.target.Thing
        scene.registry.register("scene_target.Thing", lambda *a: None, scene.kind.AROUND)
        scene.registry.register("scene_target.add", lambda *a, **k: 8, scene.kind.REPLACE)
        scene.registry.apply_hooks()
        assert scene.target.Thing is original
        expect_equal(scene.target.add(0), 8, "the other target is patched all the same")
        assert [line for line in scene.lines if line.startswith("ERROR") and "scene_target.Thing" in line], scene.lines


def test_registry_method_classmethod_and_staticmethod_stay_what_they_are() -> None:
    with _scene() as scene:
        scene.registry.register("scene_target.Thing.add", lambda result, self, *a, **k: -result)
        scene.registry.register("scene_target.Thing.named", lambda result, cls, *a: (cls, result))
        scene.registry.register("scene_target.Thing.twice", lambda original, one: original(one) + 1, scene.kind.AROUND)
        scene.registry.apply_hooks()
        thing = scene.target.Thing
        expect_equal(thing().add(1, other=2), -3, "the method")
        expect_equal(thing.named("x"), (thing, "Thingx"), "the classmethod")
        expect_equal((thing.twice(4), thing().twice(4)), (9, 9), "the staticmethod")


def test_registry_reaches_modules_that_imported_the_name() -> None:
    with _scene() as scene:
        scene.registry.register("scene_target.add", lambda *a, **k: "new", scene.kind.REPLACE)
        scene.registry.apply_hooks()
        assert scene.user.plus is scene.target.add
        expect_equal(scene.target.call_add(1), "new", "a caller in the same module")


def test_registry_classes_first_then_by_name() -> None:
    with _scene() as scene:
        class New(scene.target.Thing):  # type: ignore[name-defined, misc]
            pass

        # The method is resolved in the class that has replaced the other one.
        scene.registry.register("scene_target.Thing.add", lambda *a, **k: "hooked", scene.kind.REPLACE)
        scene.registry.register("scene_target.Thing", New, scene.kind.REPLACE)
        scene.registry.apply_hooks()
        assert scene.target.Thing is New
        expect_equal(New().add(1), "hooked", "the method of the new class")
        expect_equal(New.__mro__[1]().add(1), 1, "the method of the old class")


def test_registry_target_is_patched_once() -> None:
    with _scene() as scene:
        calls: list[int] = []
        scene.registry.register("scene_target.add", lambda *a, **k: calls.append(1), scene.kind.BEFORE)
        scene.registry.apply_hooks()
        scene.registry.register("scene_target.add", lambda *a, **k: calls.append(2), scene.kind.BEFORE)
        scene.registry.apply_hooks()
        scene.target.add(1)
        expect_equal(calls, [1], "calls of hooks")
        scene.registry.reset()
        scene.registry.apply_hooks()
        scene.target.add(1)
        expect_equal(calls, [1, 1], "calls of hooks after a reset")


def test_registry_failure_is_logged_and_the_others_go_on() -> None:
    with _scene() as scene:
        scene.registry.register("scene_absent.add", lambda *a, **k: 1, scene.kind.REPLACE)
        scene.registry.register("scene_target.absent", lambda *a, **k: 1, scene.kind.REPLACE)
        scene.registry.register("scene_target.call_add", lambda *a, **k: 1, scene.kind.REPLACE)
        scene.registry.apply_hooks()
        expect_equal(scene.target.call_add(5), 1, "the target that exists")
        expect_equal(len([line for line in scene.lines if line.startswith("ERROR")]), 2, "lines of the log")


def test_registry_of_the_diffusion_server_is_separate() -> None:
    with _scene() as scene:
        from sglang.multimodal_gen.plugins import HookRegistry, HookType

        assert HookType is scene.kind and issubclass(HookRegistry, scene.registry)
        HookRegistry.register("scene_target.add", lambda *a, **k: 1, HookType.REPLACE)
        scene.registry.apply_hooks()
        expect_equal(scene.target.add(5), 5, "before its own registry applies")
        HookRegistry.apply_hooks()
        expect_equal(scene.target.add(5), 1, "after")


_PLUGIN = """
import sys
calls = []
def hook():
    calls.append("hook")
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    HookRegistry.register("scene_target.add", lambda *a, **k: "plugged", HookType.REPLACE)
def other():
    calls.append("other")
def broken():
    calls.append("broken")
    raise RuntimeError("no good")
"""


def _with_plugins(allowed: str | None) -> tuple[list[str], object, list[str]]:
    """The calls of plugins, what the hooked function gives, and the log, after loading twice."""
    with _scene() as scene, tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "scene_plugin-1.0.dist-info"
        package.mkdir()
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: scene_plugin\nVersion: 1.0\n")
        lines = [f"{name} = scene_plugin:{name}" for name in ("broken", "hook", "other")]
        (package / "entry_points.txt").write_text("\n".join(["[sglang.srt.plugins]", *lines, ""]))
        (Path(folder) / "scene_plugin.py").write_text(_PLUGIN)
        sys.path.insert(0, folder)
        sys.modules.pop("scene_plugin", None)
        os.environ.pop("SGLANG_PLUGINS", None)
        if allowed is not None:
            os.environ["SGLANG_PLUGINS"] = allowed
        try:
            from sglang.srt.plugins import load_plugins

            load_plugins()
            load_plugins()
            return list(sys.modules["scene_plugin"].calls), scene.target.add(1), list(scene.lines)
        finally:
            sys.path.remove(folder)
            os.environ.pop("SGLANG_PLUGINS", None)


def test_registry_plugins_are_called_once_and_hooks_applied() -> None:
    calls, result, lines = _with_plugins(None)
    expect_equal(sorted(calls), ["broken", "hook", "other"], "calls")
    expect_equal(result, "plugged", "the hooked function")
    assert [line for line in lines if line.startswith("ERROR") and "broken" in line], lines


def test_registry_plugins_not_in_the_list_are_left_out() -> None:
    calls, result, _lines = _with_plugins("other, absent")
    expect_equal(calls, ["other"], "calls")
    expect_equal(result, 1, "the function that nobody hooked")


if __name__ == "__main__":
    runner.main(globals())
