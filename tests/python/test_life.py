#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Lives of contexts, groups and operations: closing in every order and from other threads, leaks, callbacks that raise."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, List

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

import convoy  # noqa: E402
from convoy import PollList  # noqa: E402
from lib import crew, runner  # noqa: E402
from lib.crew import Member  # noqa: E402
from lib.runner import expect_equal, expect_raises  # noqa: E402

_LATE_S = 20.0
_SOON_S = 5.0  # a close or a wake-up takes milliseconds
_ROW = list(range(8))


def _uses(group: Any) -> Dict[str, Callable[[], Any]]:
    """Everything that can be asked of a group and of what comes from it, made while it is open."""
    reducer, gatherer, operation = group.reducer(4), group.gatherer(), group.poll_start([PollList([4])])
    operation.wait()
    return {
        "reduce": lambda: group.reduce([4]), "reduce with a time": lambda: group.reduce([4], 1.0),
        "reduce of many": lambda: group.reduce([4] * 500), "poll": lambda: group.poll([PollList([4])]),
        "votes": lambda: group.poll([], votes=1), "post_error": lambda: group.post_error(1),
        "poll_start": lambda: group.poll_start([PollList([4])]), "gather": lambda: group.gather(_ROW),
        "gather_start": lambda: group.gather_start(_ROW), "reducer": lambda: reducer(1), "reducer.wait": reducer.wait,
        "reducer with a time": lambda: reducer(1, 1.0), "gatherer": gatherer, "gatherer.wait": gatherer.wait,
        "test": operation.test, "wait": operation.wait, "abandon": operation.abandon, "group.wait": group.wait,
        "group.abandon": group.abandon, "reopen": group.reopen, "cancel": group.cancel, "info": group.info,
        "last_report": group.last_report, "dump": group.dump, "stats": group.stats, "call_log": group.call_log,
        "two levels": lambda: convoy.reduce_two_level(group, group, [4]),
    }


def _expect_closed(uses: Dict[str, Callable[[], Any]]) -> None:
    for name, use in uses.items():
        if name == "two levels":
            continue  # refused before the group is looked at
        try:
            use()
        except convoy.Closed:
            continue
        raise AssertionError("%s: Closed was not raised" % name)


def test_after_close_everything_is_closed() -> None:
    for how in ("group", "context", "plugin"):
        plugin = convoy.load(crew.LIBRARY)
        context = plugin.context()
        group = context.group("one", 1, 0, schema="sglang-8")
        uses = _uses(group)
        {"group": group, "context": context, "plugin": plugin}[how].close()
        _expect_closed(uses)
        assert "closed" in repr(group), repr(group)
        for thing in (group, context, plugin):
            thing.close()
            thing.close()
        _expect_closed(uses)
        for use in (context.config, context.net, context.stats, context.prometheus, lambda: context.group("two", 1, 0)):
            expect_raises(convoy.Closed, use)


def test_context_managers_close_also_when_the_body_raises() -> None:
    class Own(Exception):
        pass

    def body() -> None:
        with convoy.load(crew.LIBRARY) as plugin, plugin.context() as context, context.group("one", 1, 0) as group:
            seen.extend((context, group))
            raise Own()

    seen: List[Any] = []
    expect_raises(Own, body)
    assert seen[0].closed
    expect_raises(convoy.Closed, seen[1].info)


def test_a_leaked_context_warns_and_a_group_keeps_it() -> None:
    plugin = convoy.load(crew.LIBRARY)
    group = plugin.context().group("one", 1, 0)
    plugin._contexts.clear()
    gc.collect()
    expect_equal(group.reduce([3]), [3], "with the context out of sight")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del group
        gc.collect()
    expect_equal([w.category for w in caught], [ResourceWarning], "warnings")


def test_objects_go_in_any_order() -> None:
    draw = random.Random(4)
    for _ in range(runner.scaled(20, 500)):
        plugin = convoy.load(crew.LIBRARY)
        context = plugin.context()
        group = context.group("one", 1, 0, schema="sglang-8")
        things: List[Any] = [plugin, context, group, group.reducer(3), group.gatherer(), group.poll_start([PollList([4])])]
        del plugin, context, group
        draw.shuffle(things)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            while things:
                things.pop()
                if draw.random() < 0.3:
                    gc.collect()


def _wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + _LATE_S
    while not true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.001)


def _first_loss(group: Any) -> Any:
    """What the other member left complete still counts; the round after it does not."""
    for _ in range(2):
        try:
            group.reduce([4])
        except convoy.PeerLost as failure:
            assert failure.report is not None
            return [(m.rank, m.condition) for m in failure.report.members if m.rank == 0]
        except convoy.Diverged:
            pass
    return "nothing was lost"


def _closed_under_a_wait(member: Member, how: str) -> Any:
    group = member.group(schema="sglang-8", timeout=_LATE_S)
    if member.rank == 1:
        member.meet()
        return _first_loss(group)
    seen: List[Any] = []
    calls = {"reduce": lambda: group.reduce([4]), "gather": lambda: group.gather(_ROW),
             "wait": lambda: group.poll_start([PollList([4])]).wait()}

    def work() -> None:
        try:
            seen.append(calls[how.split()[0]]())
        except convoy.ConvoyError as failure:
            seen.append(type(failure).__name__)

    thread = threading.Thread(target=work)
    thread.start()
    _wait_until(lambda: group.info().operation != 0)
    began = time.monotonic()
    (group if how.endswith("group") else member.context).close()
    thread.join(_SOON_S)
    assert not thread.is_alive() and time.monotonic() - began < _SOON_S
    member.meet()
    return seen


def test_a_close_ends_a_wait_in_another_thread() -> None:
    for call in ("reduce", "gather", "wait"):
        for what in ("group", "context"):
            expect_equal(crew.run(2, _closed_under_a_wait, call + " of a " + what), [["Closed"], [(0, "closed")]], what)


def _opening(member: Member) -> Any:
    seen: List[Any] = []
    context = member.open()

    def work() -> None:
        try:
            context.group("alone", 2, 0, member.endpoint, open_timeout=_LATE_S)
        except convoy.ConvoyError as failure:
            seen.append(type(failure).__name__)

    thread = threading.Thread(target=work)
    thread.start()
    _wait_until(lambda: bool(context._life._inside))
    context.close()
    thread.join(_SOON_S)
    assert not thread.is_alive()
    return seen


def test_a_close_ends_an_open_in_another_thread() -> None:
    expect_equal(crew.run(1, _opening), [["Closed"]], "values")


def test_a_context_is_not_freed_under_a_call() -> None:
    """What is inside holds the close up, be it in a round, in a look, or about to pass a handle that it has read."""
    for kind in ("round", "hot path", "look"):
        context = crew.plugin().context()
        group = context.group("one", 1, 0)
        reducer = group.reducer(1)
        is_in, may_go, results = threading.Event(), threading.Event(), []

        def stay(*arguments: Any) -> int:
            is_in.set()
            may_go.wait(_LATE_S)
            return 4 if kind == "round" else real_reduce(*arguments) if kind == "hot path" else real(*arguments)

        real, real_reduce = group._build.core.group_info, reducer._ready
        calls = {"round": lambda: group.poll([PollList(read=stay, count=1)]), "hot path": lambda: reducer(1), "look": group.info}

        def work() -> None:
            try:
                results.append(calls[kind]())
            except convoy.Closed:
                pass

        thread = threading.Thread(target=work)
        try:
            if kind == "look":
                group._build.core.group_info = stay
            if kind == "hot path":
                reducer._ready = stay
            thread.start()
            assert is_in.wait(_LATE_S)
            expect_raises(convoy.DrainTimeout, lambda: context.close(0.3))
            expect_raises(convoy.Closed, lambda: context.group("two", 1, 0))
        finally:
            group._build.core.group_info = real
            may_go.set()
            thread.join(_LATE_S)
        context.close()
        assert context.closed


def test_no_member_has_a_handle_when_its_context_is_freed() -> None:
    context = crew.plugin().context()
    groups = [context.group("g%d" % i, 1, 0) for i in range(2)]
    handles: List[Any] = []
    core, real = context._build.core, context._build.core.context_close

    def close(*arguments: Any) -> int:
        handles.extend(group._inner for group in groups)
        status: int = real(*arguments)
        return status

    core.context_close = close
    try:
        context.close()
    finally:
        core.context_close = real
    expect_equal(handles, [None, None], "handles that a call could pass")


def test_closing_races_with_calls() -> None:
    for turn in range(runner.scaled(40, 2000)):
        context = crew.plugin().context()
        groups = [context.group("g%d" % i, 1, 0, schema="sglang-8") for i in range(3)]
        gatherer, wrong = groups[1].gatherer(), []
        calls = [lambda: groups[0].reduce([4, 2]), gatherer, lambda: groups[2].info() and context.stats()]
        started = threading.Barrier(len(calls) + 2)

        def work(call: Callable[[], Any]) -> None:
            started.wait(_LATE_S)
            try:
                while True:
                    call()
            except convoy.Closed:
                pass
            except BaseException as failure:
                wrong.append(failure)

        def close(thing: Any) -> None:
            started.wait(_LATE_S)
            try:
                thing.close()
            except convoy.Closed:
                pass
            except BaseException as failure:
                wrong.append(failure)

        threads = [threading.Thread(target=work, args=(call,)) for call in calls]
        threads.append(threading.Thread(target=close, args=(groups[turn % 3],)))
        for thread in threads:
            thread.start()
        close(context)
        for thread in threads:
            thread.join(_LATE_S)
        assert not wrong and context.closed and not any(thread.is_alive() for thread in threads), wrong


def _second_thread(member: Member) -> Any:
    group = member.group(timeout=_LATE_S)
    if member.rank == 1:
        member.meet()
        return group.reduce([2])
    result: List[Any] = []
    counted, other = 0, threading.Thread(target=lambda: result.append(group.reduce([4])))
    other.start()
    _wait_until(lambda: group.info().operation != 0)
    for call in (lambda: group.reduce([0]), lambda: group.poll([PollList([0])]), group.abandon, group.reopen):
        expect_raises(convoy.Busy, call)
    assert group.owner is not None, "who was refused has let the other's turn go"
    end = time.monotonic() + 0.3
    while time.monotonic() < end:  # the interpreter is free while the other thread waits
        counted += 1
    member.meet()
    other.join(_LATE_S)
    return counted > 1000, result


def test_a_second_thread_is_busy_and_others_run_while_one_waits() -> None:
    expect_equal(crew.run(2, _second_thread), [(True, [[2]]), [2]], "values")


def _callbacks(member: Member) -> Any:
    class Own(Exception):
        pass

    def raises(mine: bytes) -> List[bytes]:
        raise Own()

    class Lies:
        def __init__(self, size: int) -> None:
            self._size = size

        def __len__(self) -> int:
            return self._size

    context = member.open()
    expect_raises(Own, lambda: context.group("a", 2, 0, allgather=raises))
    wrong = [lambda mine: [mine], lambda mine: [mine[:-1], mine], lambda mine: [Lies(len(mine))] * 2, lambda mine: None,
             lambda mine: [len(mine)] * 2, lambda mine: ["x" * len(mine)] * 2]
    for gather in wrong:
        expect_raises((convoy.InvalidArgument, TypeError), lambda: context.group("a", 2, 0, allgather=gather))
    expect_raises(convoy.Busy, lambda: context.group("a", 2, 0, allgather=lambda mine: context.close()))
    expect_raises(convoy.Busy, lambda: context.group("a", 2, 0, allgather=lambda mine: context.group("b", 1, 0)))
    return context.group("b", 1, 0).reduce([1])


def test_what_an_allgather_raises_comes_out_of_the_open() -> None:
    expect_equal(crew.run(1, _callbacks), [[1]], "values")


def _logged(failure: BaseException) -> Any:
    """How often the log function was called, what came out of the calls, and what Python reported."""
    lines: List[str] = []
    reported: List[Any] = []
    came: List[Any] = []

    def log(level: int, text: str) -> None:
        lines.append(text)
        raise failure

    hook, sys.unraisablehook = sys.unraisablehook, lambda what: reported.append(what.exc_type)
    os.environ["CONVOY_NO_SUCH_SETTING"] = "1"  # opening a context then logs a line
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            context = crew.plugin().context(log=log, log_level="trace")
            context.close()
    except BaseException as what:
        came.append(type(what))
    finally:
        del os.environ["CONVOY_NO_SUCH_SETTING"]
        sys.unraisablehook = hook
    return len(lines) > 0, came, sorted(set(reported), key=str)


def test_a_log_function_that_raises_harms_nothing_and_keeps_ctrl_c() -> None:
    expect_equal(_logged(ValueError("no")), (True, [], [ValueError]), "an error")
    expect_equal(_logged(KeyboardInterrupt()), (True, [KeyboardInterrupt], []), "Ctrl-C")
    convoy._callbacks.interrupted.clear()  # of the lines that closing it logged


def test_times_that_are_none() -> None:
    with crew.plugin().context() as context:
        group = context.group("one", 1, 0)
        for wrong in (0, -1, float("inf"), float("nan"), 1e300, 2**64, 10**400, "1", b"1", [], object()):
            expect_raises(convoy.InvalidArgument, lambda: group.reduce([1], wrong))
            expect_raises(convoy.InvalidArgument, lambda: context.group("two", 1, 0, open_timeout=wrong))
            expect_raises(convoy.InvalidArgument, lambda: context.close(wrong))
        for right in (1e-12, 5, True, 8e9):
            expect_equal(group.reduce([1], right), [1], "with %r" % right)


def test_wrong_options_are_refused() -> None:
    with crew.plugin().context() as context:
        for name, values in {"members": (0, -1, 1025, [], [0.5], ["0"], [2**31], [-1], None, "0"), "rank": (1, -1, None, "0"),
                             "listener": (1, "0"), "epoch": (-1, 2**64), "blob_bytes_max": (-1, 2**32, 1.5),
                             "call_log_entries": (-1, 2**32), "sync_inner": (-1, 2**32), "sync_slots": (-1, 2**32),
                             "name": (b"x", None, 3, "", "\ud800", "x" * 128),
                             "schema": ("sglang-9", [], [convoy.Column("a", 2**63)], [convoy.Column("a", reduction="avg")])
                             }.items():
            for value in values:
                options: Dict[str, Any] = {"name": "one", "members": 1, "rank": 0, name: value}
                expect_raises(convoy.InvalidArgument, lambda: context.group(**options))
        expect_equal(context.group("one", 1, 0).reduce([2]), [2], "afterwards")
    plugin = crew.plugin()
    for name, values in {"secret": (5, None, [1], "\ud800", b"x" * 1025), "settings": ({"no": 1}, {"timeout_ms": object()}, 3),
                         "log_level": ("loud", None, []), "log": (5,)}.items():
        for value in values:
            expect_raises(convoy.InvalidArgument, lambda: plugin.context(**{name: value}))


def test_counts_that_a_reducer_has_no_room_for() -> None:
    with crew.plugin().context() as context:
        group = context.group("one", 1, 0)
        reducer = group.reducer(4)
        for wrong in (-1, 5, 2**63, -(2**63), 2**70):
            expect_raises(convoy.InvalidArgument, lambda: reducer(wrong))
            expect_raises(convoy.InvalidArgument, lambda: reducer(wrong, 1.0))
        for wrong in (-1, 2**40, None, "4", 1.0):
            expect_raises(convoy.InvalidArgument, lambda: group.reducer(wrong))
            expect_raises(convoy.InvalidArgument, lambda: group.poll([PollList(read=lambda n, e: 4, count=wrong or -1)]))
        for name in ("tag", "digest"):
            for wrong in (-1, 2**64, 1.0):
                expect_raises(convoy.InvalidArgument, lambda: setattr(reducer, name, wrong))
                expect_raises(convoy.InvalidArgument, lambda: group.reduce([1], **{name: wrong}))
        for wrong in (None, "ab", [300], [-1], [1.5], 5, [2**70], [[1]], b"\7", [None], {4: 1, 9: 2}, 4.0):
            expect_raises(convoy.InvalidArgument, lambda: group.reduce(wrong))
        expect_equal([group.reduce(states) for states in ([4, True], bytearray(b"\4\1"), (4, 1), range(3))],
                     [[4, 1], [4, 1], [4, 1], [0, 1, 2]], "what is right")


def test_arrays_of_numpy_and_torch_in_every_layout() -> None:
    try:
        import numpy
        import torch
    except ImportError as reason:
        raise runner.Skip(str(reason)) from None

    with crew.plugin().context() as context:
        group = context.group("one", 1, 0, schema="sglang-8")
        for kind in (numpy.int8, numpy.uint8, numpy.int32, numpy.int64, numpy.bool_):
            line = numpy.array([1, 0, 1, 1], kind)
            for array in (line, line[::-1], line[::2], numpy.broadcast_to(line[:1], 5), line[:0]):
                expected = [int(value) for value in array]
                expect_equal(group.reduce(array), expected, "%r" % array)
                expect_equal(group.poll([PollList(array)]).lists[0].states, expected, "%r" % array)
        for dtype in (torch.int8, torch.uint8, torch.int32, torch.int64):
            tensor = torch.tensor([1, 0, 4, 3], dtype=dtype)
            for value in (tensor, tensor[::2], tensor[:1].expand(5), tensor[:0]):
                expect_equal(group.reduce(value), value.tolist(), "%r" % value)
                expect_equal(group.poll([PollList(value)]).lists[0].states, value.tolist(), "%r" % value)
        row = group.gather(torch.tensor([7]).expand(8)).table[0][0]
        expect_equal(row, [7] * 8, "one value seen eight times")
        for wrong in (numpy.zeros((2, 2), numpy.int64), numpy.zeros(2), torch.zeros(2), torch.zeros((2, 2), dtype=torch.int64)):
            expect_raises(convoy.InvalidArgument, lambda: group.poll([PollList(wrong)]))


def test_memory_that_is_read_is_kept() -> None:
    with crew.plugin().context() as context:
        group = context.group("one", 1, 0, schema="sglang-8")
        states, row = bytearray([4, 3, 2]), bytearray(64)
        operation = group.poll_start([PollList(states)])
        states.extend(b"more")  # the capture has let go of it
        expect_equal(operation.wait().lists[0].states, [4, 3, 2], "states")
        group.gather(memoryview(row).cast("q"))
        row.clear()

        def resize(number: int, entry: int) -> int:
            expect_raises(BufferError, lambda: keys.append(1))
            return 4

        import array
        keys = array.array("Q", [1, 2])
        expect_equal(group.poll([PollList(read=resize, keys=keys, keyed=True)]).lists[0].states, [4, 4], "keys in use")


def test_another_build_can_be_put_behind_a_group() -> None:
    """What a host holds, prepared calls included, works on with the tables and the pointer of another build."""
    plugin, second = crew.plugin(), crew.plugin()
    with plugin.context() as old, second.context() as new:
        group, other = old.group("one", 1, 0, schema="sglang-8"), new.group("one", 1, 0, schema="sglang-8")
        reducer, gatherer = group.reducer(2), group.gatherer()
        reducer(1), gatherer()
        before = group._inner
        rounds = other.info().round
        try:
            group.rebind(second._build, other._inner)
            reducer.states[:2] = b"\4\3"
            reducer(2)
            gatherer()
            expect_equal((bytes(reducer.result), group.reduce([4, 1])), (b"\4\3", [4, 1]), "results")
            expect_equal(other.info().round - rounds >= 2, True, "rounds of the other build's group")
        finally:
            group.rebind(plugin._build, before)
        expect_equal(group.reduce([2]), [2], "and back")


if __name__ == "__main__":
    runner.main(globals())
