# SPDX-License-Identifier: Apache-2.0
"""Two builds of the plugin that take over from each other, and builds in which one step of that fails."""

from __future__ import annotations

import ctypes
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import convoy
from convoy import _abi, _build
from lib.runner import skip_program

_ROOT = Path(__file__).resolve().parents[3]
FIRST = os.environ.setdefault("CONVOY_LIBRARY", str(_ROOT / "build" / "libconvoy.so.1"))
_PLUGINS = Path(os.environ.get("CONVOY_TINY") or _ROOT / "build" / "release" / "tests" / "abi" / "plugins")
SECOND = str(_PLUGINS / "libconvoy_b.so")
TINY = str(_PLUGINS / "good.so")


def need_second() -> None:
    """Ends the program as skipped when there is no second build."""
    if not os.path.exists(SECOND):
        skip_program("%s has not been built; make test-python builds it" % SECOND)


def other(plugin: convoy.Plugin) -> str:
    """The path of the build that is not loaded."""
    return SECOND if plugin.info().path == FIRST else FIRST


def swap(plugin: convoy.Plugin, timeout: float = 20.0) -> Any:
    """To the other build."""
    return plugin.swap(other(plugin), timeout)


def refusal(error: Any, status: int) -> int:
    """Writes an error as the plugin does."""
    struct = ctypes.cast(error, ctypes.POINTER(_abi.Error)).contents
    struct.status, struct.text = status, b"the test says so"
    return status


class Step:
    """A slot of a build's table that can be told to fail, and says when it is called. Put in the slot's place."""

    def __init__(self, name: str, real: Any, order: List[str]) -> None:
        self.name, self.real, self.order = name, real, order
        self.statuses: List[int] = []  # of the next calls; then the real one is called
        self.before: Callable[[], Any] = lambda: None
        self.after: Callable[[], Any] = lambda: None
        self.calls = 0

    def __call__(self, *arguments: Any) -> int:
        self.calls += 1
        self.order.append(self.name)
        self.before()
        if self.statuses:
            return refusal(arguments[-1], self.statuses.pop(0))
        status: int = self.real(*arguments)
        self.after()
        return status


ORDER: List[str] = []  # names of the steps that were made, in all builds


def steps_of(build: Any) -> Dict[str, Step]:
    """Puts a Step in the place of each slot of the family move, and of those that open and close things."""
    steps: Dict[str, Step] = {}
    tables = [(build.move, name) for name, _, _ in _abi.MoveTable.SLOTS]
    tables += [(build.core, "context_open"), (build.core, "context_close"), (build.core, "group_open_start"),
               (build.transfer, "engine_open")]
    for table, name in tables:
        steps[name] = Step(name, getattr(table, name), ORDER)
        setattr(table, name, steps[name])
    return steps


@contextmanager
def prepared_successor(prepare: Callable[[Dict[str, Step]], Any]) -> Iterator[None]:
    """Calls prepare(steps) on each build that a swap loads."""
    real = _build.load_successor

    def load(running: Any, file: Any) -> Any:
        build = real(running, file)
        prepare(steps_of(build))
        return build

    setattr(_build, "load_successor", load)
    try:
        yield
    finally:
        setattr(_build, "load_successor", real)
