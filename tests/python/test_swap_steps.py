#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A swap in which one step fails, or that is interrupted, edge by edge of the table in _crossing.py."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Dict, List, Type

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

import convoy  # noqa: E402
from convoy import _abi  # noqa: E402
from lib import runner, swaps  # noqa: E402
from lib.runner import expect_equal, expect_raises  # noqa: E402
from lib.swaps import Step  # noqa: E402

_LATE_S = 20.0
Steps = Dict[str, Step]


def _opened(count: int = 1) -> Any:
    plugin = convoy.load(swaps.FIRST)
    contexts = [plugin.context(log=False) for _ in range(count)]
    return plugin, contexts, [context.group("g%d" % i, 1, 0, timeout=_LATE_S) for i, context in enumerate(contexts)]


def _goes_on(plugin: convoy.Plugin, groups: List[Any], path: str = swaps.FIRST) -> None:
    """All are of one build, and work; and the next swap gets through."""
    expect_equal((plugin.info().path, {group._build.file.path for group in groups}), (path, {path}), "builds")
    expect_equal([group.reduce([3]) for group in groups], [[3]] * len(groups), "rounds")
    steps = swaps.steps_of(plugin._build)
    done = plugin.swap(swaps.other(plugin), _LATE_S)
    contexts = len({group._context for group in groups})
    expect_equal((done.groups, done.left, steps["retire"].calls), (len(groups), "", contexts), "a swap afterwards")
    expect_equal([group.reduce([2]) for group in groups], [[2]] * len(groups), "rounds afterwards")


def _failing(steps: Steps, slot: str, statuses: List[int], into: List[Steps]) -> None:
    steps[slot].statuses = list(statuses)
    into.append(steps)


def test_swap_step_of_the_new_build_fails_and_the_old_goes_on() -> None:
    for slot, phase, status, kind in (("context_open", "open", _abi.INVALID_ARGUMENT, convoy.InvalidArgument),
                                      ("import_state", "import", _abi.TOO_NEW, convoy.TooNew),
                                      ("import_state", "import", _abi.BUFFER_TOO_SMALL, convoy.BufferTooSmall),
                                      ("resume", "resume", _abi.SYSTEM, convoy.SystemFailure)):
        plugin, contexts, groups = _opened()
        with plugin:
            old, new = swaps.steps_of(plugin._build), []  # type: Steps, List[Steps]
            swaps.ORDER.clear()
            with swaps.prepared_successor(lambda steps: _failing(steps, slot, [status], new)):
                text = str(expect_raises(kind, lambda: plugin.swap(swaps.SECOND, _LATE_S)))
            expect_equal(text, "swap: %s: the test says so" % phase, "text")
            expect_equal(swaps.ORDER[-2:], ["context_close", "resume"] if slot != "context_open" else ["context_open"], "the end")
            begun = slot != "context_open"
            expect_equal((old["quiesce"].calls, old["resume"].calls, old["retire"].calls), (begun, begun, 0), slot)
            expect_equal(contexts[0]._life.former, [], "contexts that are left over")
            _goes_on(plugin, groups)


def test_swap_step_of_the_old_build_fails_and_it_goes_on() -> None:
    for slot, status, kind in (("quiesce", _abi.NO_MEMORY, convoy.NoMemory), ("export_state", _abi.UNSUPPORTED, convoy.Unsupported)):
        plugin, _, groups = _opened()
        with plugin:
            old = swaps.steps_of(plugin._build)
            old[slot].statuses = [status]
            text = str(expect_raises(kind, lambda: plugin.swap(swaps.SECOND, _LATE_S)))
            assert "the test says so" in text and slot[:6] in text, text
            expect_equal((old["resume"].calls, old["retire"].calls), (1, 0), "calls")
            _goes_on(plugin, groups)


def test_swap_whose_rest_cannot_be_freed_is_done_and_says_so() -> None:
    plugin, _, groups = _opened()
    with plugin:
        swaps.steps_of(plugin._build)["retire"].statuses = [_abi.DRAIN_TIMEOUT]
        done = plugin.swap(swaps.SECOND, _LATE_S)
        expect_equal(done.left, "swap: retire: the test says so", "what is left")
        _goes_on(plugin, groups, swaps.SECOND)


def test_swap_that_cannot_be_undone_says_so_and_a_later_one_gets_through() -> None:
    plugin, _, groups = _opened()
    with plugin:
        old = swaps.steps_of(plugin._build)
        old["export_state"].statuses, old["resume"].statuses = [_abi.NO_MEMORY], [_abi.SYSTEM] * 3
        reducer = groups[0].reducer(1)
        text = str(expect_raises(convoy.NoMemory, lambda: plugin.swap(swaps.SECOND, _LATE_S)))
        assert "cannot go on" in text, text
        for call in (lambda: groups[0].reduce([3]), lambda: reducer(1)):
            expect_raises(convoy.Moved, call)
        expect_equal(plugin.swap(swaps.SECOND, _LATE_S).groups, 1, "groups of a later swap")
        reducer(1)
        _goes_on(plugin, groups, swaps.SECOND)


def test_swap_in_which_a_later_context_fails_is_taken_back_in_all() -> None:
    plugin, contexts, groups = _opened(3)
    with plugin:
        new: List[Steps] = []
        with swaps.prepared_successor(lambda steps: _failing(steps, "import_state", [], new)):
            def at_import() -> None:
                if new[0]["import_state"].calls == 3:
                    new[0]["import_state"].statuses = [_abi.MALFORMED]

            real = swaps.steps_of(plugin._build)
            real["export_state"].before = lambda: setattr(new[0]["import_state"], "before", at_import)
            expect_raises(convoy.Malformed, lambda: plugin.swap(swaps.SECOND, _LATE_S))
        expect_equal([len(context._life.former) for context in contexts], [2, 2, 0], "contexts of builds before")
        _goes_on(plugin, groups)


def test_swap_with_another_environment_is_refused() -> None:
    os.environ["CONVOY_TIMEOUT_MS"] = "9000"
    plugin, _, groups = _opened()
    with plugin:
        try:
            os.environ["CONVOY_TIMEOUT_MS"] = "8000"
            text = str(expect_raises(convoy.InvalidArgument, lambda: plugin.swap(swaps.SECOND, _LATE_S)))
            assert "timeout_ms is 9000" in text, text
            os.environ["CONVOY_TIMEOUT_MS"] = "9000"
            _goes_on(plugin, groups)
        finally:
            del os.environ["CONVOY_TIMEOUT_MS"]


def _strike_at(plugin: convoy.Plugin, step: Step) -> None:
    """Ctrl-C comes while the step is made, and is heard before it is over."""
    def strike() -> None:
        step.before = lambda: None
        course, end = plugin._swaps[os.getpid()]._course, time.monotonic() + _LATE_S
        os.kill(os.getpid(), signal.SIGINT)
        while not course.is_stopped and time.monotonic() < end:
            time.sleep(0.001)

    step.before = strike


def test_swap_that_ctrl_c_meets_is_undone_or_complete() -> None:
    for slot in ("quiesce", "export_state", "import_state", "resume", "retire"):
        plugin, _, groups = _opened()
        with plugin:
            old = swaps.steps_of(plugin._build)
            is_new = slot in ("import_state", "resume")
            with swaps.prepared_successor(lambda steps: _strike_at(plugin, steps[slot]) if is_new else None):
                if not is_new:
                    _strike_at(plugin, old[slot])
                expect_raises(KeyboardInterrupt, lambda: plugin.swap(swaps.SECOND, _LATE_S))
            is_over = slot in ("resume", "retire")
            expect_equal((old["resume"].calls, old["retire"].calls), (not is_over, is_over), slot)
            _goes_on(plugin, groups, swaps.SECOND if is_over else swaps.FIRST)


def test_swap_from_a_handler_in_the_middle_of_a_call_is_refused() -> None:
    plugin, _, groups = _opened()
    with plugin:
        heard: List[Type[BaseException]] = []

        def handler(number: int, frame: Any) -> None:
            try:
                plugin.swap(swaps.SECOND, _LATE_S)
            except convoy.Busy as failure:
                heard.append(type(failure))

        before = signal.signal(signal.SIGUSR1, handler)
        try:
            groups[0].alone(lambda: os.kill(os.getpid(), signal.SIGUSR1))
            expect_equal(heard, [convoy.Busy], "what the handler got")
            _goes_on(plugin, groups)
        finally:
            signal.signal(signal.SIGUSR1, before)


def test_swap_on_whose_thread_a_transfer_ends_releases_it_afterwards() -> None:
    """The collector runs on any thread, so on the one that swaps, which cannot wait for itself."""
    for is_viewed in (False, True):
        plugin, contexts, _ = _opened()
        with plugin:
            engine = contexts[0].engine(pool_bytes=1 << 20)
            staged = engine.stage("r1", {"x": ("uint8", (4,), b"abcd")})
            held: List[Any] = [staged.tensors["x"].data if is_viewed else staged]
            if is_viewed:
                staged.release()
            del staged
            swaps.steps_of(plugin._build)["export_state"].before = held.clear
            expect_equal(plugin.swap(swaps.SECOND, _LATE_S).engines, 1, "engines")
            expect_equal((held, engine.figures().taken_count), ([], 0), "slots that are taken")


class _Held:
    """A swap on another thread that stands between export and import until it may go on."""

    def __init__(self, plugin: convoy.Plugin) -> None:
        self._is_in, self._may_go, self.done = threading.Event(), threading.Event(), []  # type: Any, Any, List[Any]
        swaps.steps_of(plugin._build)["export_state"].before = lambda: bool(self._is_in.set()) or self._may_go.wait(_LATE_S)
        self._thread = threading.Thread(target=lambda: self.done.append(plugin.swap(swaps.SECOND, _LATE_S)))

    def __enter__(self) -> "_Held":
        self._thread.start()
        assert self._is_in.wait(_LATE_S)
        return self

    def go_on(self) -> None:
        self._may_go.set()
        self._thread.join(_LATE_S)

    def __exit__(self, *exception: Any) -> None:
        self.go_on()


def test_swap_holds_calls_until_its_end_however_short_their_time() -> None:
    plugin, contexts, groups = _opened()
    with plugin:
        engine, reducer, results = contexts[0].engine(pool_bytes=1 << 20), groups[0].reducer(1), []  # type: Any, Any, List[Any]
        calls = [lambda: groups[0].reduce([3], timeout=0.001), lambda: engine.fits([5]), lambda: contexts[0].group("new", 1, 0)]
        with _Held(plugin) as held:
            expect_equal((groups[0].info().state in ("ready", "active"), engine.info().session), (True, engine.session), "looks")
            threads = [threading.Thread(target=lambda call=call: results.append(call())) for call in calls]
            for thread in threads:
                thread.start()
            threads[0].join(0.01)  # longer than its own time
            expect_equal((results, [thread.is_alive() for thread in threads]), ([], [True] * 3), "calls that wait")
            held.go_on()
            for thread in threads:
                thread.join(_LATE_S)
        expect_equal(([3] in results, None in results, len(results)), (True, True, 3), "results")
        new = next(one for one in results if isinstance(one, convoy.Group))
        expect_equal((new._build.file.path, new.reduce([2])), (swaps.SECOND, [2]), "what was opened meanwhile")
        reducer(1)


def test_swap_holds_a_call_that_ctrl_c_ends() -> None:
    plugin, _, groups = _opened()
    with plugin:
        reducer = groups[0].reducer(1)
        for call in (lambda: groups[0].reduce([3]), lambda: reducer(1), lambda: groups[0].poll([])):
            path = plugin.info().path
            if path == swaps.SECOND:
                plugin.swap(swaps.FIRST, _LATE_S)
            with _Held(plugin):
                def strike() -> None:
                    end = time.monotonic() + _LATE_S
                    while groups[0].owner is None and time.monotonic() < end:
                        time.sleep(0.001)
                    os.kill(os.getpid(), signal.SIGINT)

                thread = threading.Thread(target=strike)
                thread.start()
                expect_raises(KeyboardInterrupt, call)
                thread.join(_LATE_S)
            expect_equal((groups[0].owner, groups[0].reduce([2])), (None, [2]), "the group afterwards")


def test_swap_between_an_open_and_its_end_takes_it_over() -> None:
    """The plugin has opened it; the thread that opens it does not know yet."""
    for kind in ("group", "engine"):
        plugin, contexts, groups = _opened()
        with plugin:
            step = swaps.steps_of(plugin._build)["group_open_start" if kind == "group" else "engine_open"]

            def swap_now() -> None:
                step.after = lambda: None
                thread = threading.Thread(target=lambda: plugin.swap(swaps.SECOND, _LATE_S))
                thread.start()
                thread.join(_LATE_S)

            step.after = swap_now
            opened: Any = contexts[0].group("new", 1, 0) if kind == "group" else contexts[0].engine(pool_bytes=1 << 20)
            expect_equal((plugin.info().path, opened._build.file.path), (swaps.SECOND, swaps.SECOND), kind)
            if kind == "group":
                expect_equal((opened.reduce([2]), opened.reducer(1)(1)), ([2], None), "rounds")
            else:
                expect_equal((opened.session, opened.info().state), (opened.info().session, "open"), "the engine")
            _goes_on(plugin, groups + [opened] * (kind == "group"), swaps.SECOND)


def _child_of_a_fork(plugin: convoy.Plugin, groups: List[Any]) -> int:
    try:
        for call in (lambda: groups[0].reduce([1]), groups[0].info, plugin._contexts[0].stats):
            expect_raises(convoy.Forked, call)
        with plugin.context(log=False) as fresh, fresh.group("fresh", 1, 0) as group:
            expect_equal(group.reduce([2]), [2], "a fresh context")
        return 0
    except BaseException as failure:
        print(repr(failure), flush=True)
        return 1


def test_swap_during_which_the_process_forks_leaves_the_child_forked() -> None:
    plugin, _, groups = _opened()
    with plugin:
        with _Held(plugin) as held:
            child = os.fork()
            if child == 0:
                os._exit(_child_of_a_fork(plugin, groups))
            end, status = time.monotonic() + _LATE_S, (0, 1)
            while status[0] == 0 and time.monotonic() < end:
                status = os.waitpid(child, os.WNOHANG)
                time.sleep(0.001)
            if status[0] == 0:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        expect_equal((status[0] == child, status[1], len(held.done)), (True, 0, 1), "the child's end, and the swap's")
        _goes_on(plugin, groups, swaps.SECOND)


if __name__ == "__main__":
    swaps.need_second()
    runner.main(globals())
