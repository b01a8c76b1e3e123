#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Another build takes over in one process: objects stay the same and right, what is refused changes nothing, nothing leaks."""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

import convoy  # noqa: E402
from convoy import PollList  # noqa: E402
from lib import runner, swaps  # noqa: E402
from lib.runner import expect_equal, expect_raises  # noqa: E402

_LATE_S = 20.0
_ROW = list(range(8))
_BYTES = bytes(range(250)) * 12


def _plugin() -> convoy.Plugin:
    return convoy.load(swaps.FIRST)


def _group(context: convoy.Context, name: str = "one") -> convoy.Group:
    return context.group(name, 1, 0, schema="sglang-8", timeout=_LATE_S)


def test_swapped_objects_stay_and_go_on() -> None:
    with _plugin() as plugin, plugin.context(log=False) as context:
        group = _group(context)
        reducer, gatherer, operation = group.reducer(2), group.gatherer(), group.poll_start([PollList([3])])
        expect_equal(operation.wait().lists[0].states, [3], "before")
        for turn in range(4):
            was, path = plugin.info(), swaps.other(plugin)
            before, done = group.info().round, plugin.swap(path, _LATE_S)
            now = plugin.info()
            expect_equal((done.path, now.path), (path, path), "path")
            expect_equal((done.from_build_id, done.to_build_id), (was.build_id, now.build_id), "builds")
            expect_equal((done.contexts, done.groups, done.engines, done.left), (1, 1, 0, ""), "what went over")
            assert done.state_bytes > 0 and 0 < done.pause < _LATE_S and done.phases["quiesce"] > 0, done
            expect_equal(group.info().round, before, "rounds go on")
            reducer.states[:] = b"\4\3"
            reducer(2)
            reducer(2, 1.0)
            gatherer.row[:] = memoryview(bytes(64)).cast("q")
            gatherer()
            expect_equal((bytes(reducer.result), group.reduce([4, 1])), (b"\4\3", [4, 1]), "reduced")
            expect_equal(group.gather(_ROW).table, [[_ROW]], "gathered")
            expect_equal(group.poll([PollList([2], keys=[turn], keyed=True)], votes=5).votes_and, 5, "votes")
            assert group.info().round - before >= 5 and context.stats() and group.call_log()
        places = [bound.handle for bound in context._life.former + group._former]
        expect_equal(len(places), 8, "places of before")
    expect_equal((context._life.former, [place.value for place in places]), ([], [None] * 8), "after the close")


def test_swapped_plugin_opens_new_things_in_the_new_build() -> None:
    with _plugin() as plugin:
        empty = swaps.swap(plugin)
        expect_equal((empty.contexts, empty.groups), (0, 0), "nothing was open")
        with plugin.context(log=False) as context:
            expect_equal(context._build.file.path, swaps.SECOND, "build of a new context")
            swaps.swap(plugin)
            with _group(context) as group, context.engine(pool_bytes=1 << 20):
                expect_equal(group._build.file.path, swaps.FIRST, "build of a new group")
                expect_equal(group.reduce([2]), [2], "reduced")


def test_swapped_what_was_closed_stays_closed() -> None:
    with _plugin() as plugin, plugin.context(log=False) as context:
        group, kept, engine = _group(context), _group(context, "two"), context.engine(pool_bytes=1 << 20)
        reducer, operation = group.reducer(2), group.poll_start([PollList([3])])
        operation.wait()
        group.close()
        engine.close()
        done = swaps.swap(plugin)
        expect_equal((done.groups, done.engines), (1, 0), "what went over")
        uses: List[Callable[[], Any]] = [lambda: group.reduce([1]), lambda: reducer(1), lambda: reducer(1, 1.0), group.info,
                                         operation.test, operation.wait, group.wait, engine.info]
        for use in uses:
            expect_raises(convoy.Closed, use)
        kept_reducer = kept.reducer(1)
        kept_reducer(1)
        kept.close()
        expect_raises(convoy.Closed, lambda: kept_reducer(1))
    expect_raises(convoy.Closed, lambda: kept_reducer(1))
    expect_raises(convoy.Closed, context.stats)


def test_swapped_operation_can_be_read_again() -> None:
    with _plugin() as plugin, plugin.context(log=False) as context:
        group = _group(context)
        operation = group.poll_start([PollList([3, 4])])
        first = operation.wait()
        swaps.swap(plugin)
        expect_equal(operation.wait(), first, "the result again")
        expect_equal(operation.test(), first, "and tested")


def test_swapped_engines_views_and_descriptors_stay() -> None:
    with _plugin() as plugin, plugin.context(log=False) as context:
        engine, other = context.engine(pool_bytes=1 << 22, notify=True), context.engine(pool_bytes=1 << 22)
        peer, number = engine.connect(other.session), engine.fileno()
        staged = engine.stage("r1", {"x": ("uint8", (len(_BYTES),), _BYTES)}, {"seed": 7})
        sent = engine.send_start(peer, staged)
        loaded = other.accept(timeout=_LATE_S)
        view = loaded.tensors["x"].data
        address = loaded.tensors["x"].address
        for _ in range(2):
            swaps.swap(plugin)
            expect_equal((bytes(view), loaded.tensors["x"].address, loaded.scalars()), (_BYTES, address, {"seed": 7}), "loaded")
            expect_equal((engine.fileno(), peer.info().state, staged.result().state), (number, "connected", "staged"), "sender")
        loaded.release()
        expect_equal(bytes(view), _BYTES, "a view after the release")
        del view
        sent.wait(_LATE_S)
        readable, _, _ = select.select([number], [], [], _LATE_S)
        expect_equal(readable, [number], "the descriptor, when a completion waits")
        assert [c.transfer for c in engine.completions() if c.transfer == sent.value], "completion of the send"
        staged.release()
        engine.send_start(peer, request="r2", tensors={"y": ("uint8", (4,), b"abcd")})
        with other.accept("r2", timeout=_LATE_S) as again:
            expect_equal(again.tensors["y"].data.tobytes(), b"abcd", "the next")
        swaps.swap(plugin)
        expect_equal((engine.figures().taken_count, other.figures().taken_count), (0, 0), "slots that are taken")


def _holdings() -> Dict[str, int]:
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {"descriptors": len(os.listdir("/proc/self/fd")), "mappings of convoy": len([m for m in maps if "convoy" in m]),
            "threads": len(os.listdir("/proc/self/task"))}


def test_swapped_thirty_times_nothing_leaks() -> None:
    with _plugin() as plugin, plugin.context(log=False) as context:
        group, engine, other = _group(context), context.engine(pool_bytes=1 << 20), context.engine(pool_bytes=1 << 20)
        peer = engine.connect(other.session)
        before: Dict[str, int] = {}
        for turn in range(30):
            swaps.swap(plugin)
            group.reduce([turn % 5])
            engine.send_start(peer, request="r%d" % turn, tensors={"x": ("uint8", (4,), b"abcd")})
            other.accept(timeout=_LATE_S).release()
            if turn == 3:
                before = _holdings()
        end, after = time.monotonic() + _LATE_S, _holdings()
        while after["threads"] > before["threads"] and time.monotonic() < end:  # the system takes a moment to forget one
            after = _holdings()
        assert all(after[name] <= before[name] for name in before), "after 30 swaps %s, after four %s" % (after, before)
        expect_equal(len(group._former), 30, "places of before, one pointer each")


def test_swap_refused_by_the_file_changes_nothing() -> None:
    with _plugin() as plugin, plugin.context(log=False) as context:
        group, before = _group(context), plugin.info()
        calls = swaps.steps_of(plugin._build)
        text = str(expect_raises(convoy.NotFound, lambda: plugin.swap("/nowhere/libconvoy.so.1")))
        assert "swap: inspect:" in text, text
        text = str(expect_raises(convoy.Unsupported, lambda: plugin.swap(swaps.TINY)))
        assert "swap: inspect:" in text and "offers no family" in text, text
        expect_equal([step.calls for step in calls.values()], [0] * len(calls), "calls of the old build")
        expect_equal((plugin.info(), group.reduce([3])), (before, [3]), "it goes on")


def test_swap_of_a_build_without_the_family_is_unsupported() -> None:
    with convoy.load(swaps.TINY) as tiny:
        text = str(expect_raises(convoy.Unsupported, lambda: tiny.swap(swaps.FIRST)))
        assert 'no family "move"' in text, text


def test_swap_with_a_round_that_nobody_reads_times_out() -> None:
    with _plugin() as plugin, plugin.context(log=False) as context:
        group, before = _group(context), plugin.info()
        operation = group.poll_start([PollList([3])])
        text = str(expect_raises(convoy.DrainTimeout, lambda: plugin.swap(swaps.SECOND, 0.3)))
        assert "swap: quiesce:" in text and "one" in text, text
        expect_equal((plugin.info(), operation.wait().lists[0].states, group.reduce([2])), (before, [3], [2]), "it goes on")
        swaps.swap(plugin)
        expect_equal(group.reduce([1]), [1], "and swaps later")


def test_swap_from_within_a_call_is_refused() -> None:
    with _plugin() as plugin, plugin.context(log=False) as context:
        group, refused = _group(context), []

        def read(row: int, entry: int) -> int:
            try:
                plugin.swap(swaps.SECOND)
            except convoy.Busy as failure:
                refused.append(str(failure))
            return 4

        expect_equal(group.poll([PollList(read=read, count=1)]).lists[0].states, [4], "the round")
        assert len(refused) == 1 and refused[0].startswith("swap"), refused


def test_swap_beside_another_is_busy_and_the_first_one_ends() -> None:
    with _plugin() as plugin, plugin.context(log=False) as context:
        group, is_in, may_go, done = _group(context), threading.Event(), threading.Event(), []
        steps = swaps.steps_of(plugin._build)
        steps["export_state"].before = lambda: bool(is_in.set()) or may_go.wait(_LATE_S)
        thread = threading.Thread(target=lambda: done.append(plugin.swap(swaps.SECOND, _LATE_S)))
        thread.start()
        try:
            assert is_in.wait(_LATE_S)
            expect_raises(convoy.Busy, lambda: plugin.swap(swaps.SECOND))
            expect_raises(convoy.DrainTimeout, lambda: context.close(0.05))
        finally:
            may_go.set()
            thread.join(_LATE_S)
        expect_equal((len(done), group.reduce([1])), (1, [1]), "the first one")


if __name__ == "__main__":
    swaps.need_second()
    runner.main(globals())
