#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Priorities of requests and what may be under way at a time, and what is left of both on a plugin before transfer 1.1."""

from __future__ import annotations

import ctypes
import sys
import time
from pathlib import Path
from typing import Any, Callable, List

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

import convoy  # noqa: E402
from convoy import _abi, _build  # noqa: E402
from convoy._requests import admission_of  # noqa: E402
from lib import runner  # noqa: E402
from lib.pair import WAIT_S, engine_of  # noqa: E402
from lib.runner import expect_equal, expect_raises  # noqa: E402

LIMITS = ("under_way_max", "under_way_bytes", "peer_under_way_max", "peer_under_way_bytes", "waiting_max")
ONE = {"a": b"12345678"}


def eventually(check: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not check():
        if time.monotonic() > end:
            raise AssertionError(what)
        time.sleep(0.001)


def test_a_priority_travels_with_its_request() -> None:
    with engine_of() as here, engine_of() as other:
        peer = here.connect(other.session)
        other.connect(here.session)
        for priority in (0, 7, -7, 2**31 - 1, -(2**31)):
            with here.stage("one", ONE, priority=priority) as staged:
                expect_equal(staged.priority, priority, "where it was staged")
                for form in ("binary", "json"):
                    with other.load(staged.descriptor(form)) as loaded:
                        expect_equal(loaded.priority, priority, form)
                with here.send_start(peer, staged, priority=3 if priority else 0) as sent, other.accept() as loaded:
                    expect_equal(loaded.priority, priority, "sent with a priority of its own")
                    sent.wait(WAIT_S)
            with here.send_start(peer, request="two", tensors=ONE, priority=priority) as sent, other.accept() as loaded:
                expect_equal(loaded.priority, priority, "staged by its send")
                sent.wait(WAIT_S)


def test_what_is_no_priority_is_refused_by_name() -> None:
    with engine_of() as here, engine_of() as other:
        peer = here.connect(other.session)
        with here.stage("one", ONE) as staged:
            for wrong in (2**31, -(2**31) - 1, 1.0, "1", None):
                for call in (lambda: here.stage("two", ONE, priority=wrong),  # type: ignore[arg-type]
                             lambda: here.send_start(peer, staged, priority=wrong),  # type: ignore[arg-type]
                             lambda: here.send_start(peer, request="two", tensors=ONE, priority=wrong)):  # type: ignore[arg-type]
                    failure = expect_raises(convoy.InvalidArgument, call)
                    assert "priority" in str(failure), failure


def test_limits_are_checked_and_laid_out_by_their_names() -> None:
    for place, name in enumerate(LIMITS):
        values: List[Any] = [0] * len(LIMITS)
        values[place] = 5
        filled = admission_of(*values, age=None)
        for other in LIMITS:
            expect_equal(getattr(filled, other), 5 if other == name else 0, "%s of %s" % (other, name))
    expect_equal(admission_of(0, 0, 0, 0, 0, 0.25).age_ns, 250_000_000, "age")
    with engine_of() as engine:
        for name in LIMITS:
            above = 2**64 if name.endswith("bytes") else 2**32
            for wrong in (-1, above, 1.0, None):
                arguments: Any = {name: wrong}
                failure = expect_raises(convoy.InvalidArgument, lambda: engine.set_admission(**arguments))
                assert name in str(failure), failure
        for age in (0, -1.0, "1"):
            expect_raises(convoy.InvalidArgument, lambda: engine.set_admission(age=age))  # type: ignore[arg-type]


def figures(engine: convoy.Engine) -> Any:
    info = engine.info()
    return info.admitted, info.waiting, info.admitted_bytes > 0, info.waiting_bytes > 0, info.overloaded


def test_what_waits_goes_by_priority_and_too_much_is_refused() -> None:
    with engine_of() as here, engine_of() as other:
        peer = here.connect(other.session)
        expect_equal(figures(here), (0, 0, False, False, 0), "before all")
        here.set_admission(under_way_max=1, waiting_max=3)
        sent = []
        for name, priority in (("first", 0), ("low", -1), ("usual", 0), ("high", 1)):
            sent.append(here.send_start(peer, request=name, tensors=ONE, priority=priority))
            eventually(lambda: sum(figures(here)[:2]) == len(sent), "%s is under way or waits" % name)
        expect_equal(figures(here), (1, 3, True, True, 0), "one may be under way")
        failure = expect_raises(convoy.Overloaded, lambda: here.send_start(peer, request="fifth", tensors=ONE))
        assert isinstance(failure, convoy.ResourceError) and failure.status == _abi.OVERLOADED and "3" in str(failure), failure
        expect_equal(figures(here)[-1], 1, "refused")
        order = []
        for _ in sent:
            with other.accept(timeout=WAIT_S) as loaded:
                order.append(loaded.request)
        expect_equal(order, ["first", "high", "usual", "low"], "the order they came in")
        for one in sent:
            one.wait(WAIT_S)
            one.release()
        eventually(lambda: figures(here) == (0, 0, False, False, 1), "nothing is under way")


def test_without_limits_again_all_that_waits_goes() -> None:
    with engine_of() as here, engine_of() as other:
        peer = here.connect(other.session)
        here.set_admission(peer_under_way_max=1)
        sent = [here.send_start(peer, request="r%d" % number, tensors=ONE) for number in range(4)]
        eventually(lambda: figures(here)[:2] == (1, 3), "three wait")
        here.set_admission()
        eventually(lambda: figures(here)[:2] == (4, 0), "all are under way")
        for _ in sent:
            other.accept(timeout=WAIT_S).release()
        for one in sent:
            one.wait(WAIT_S)
            one.release()


def test_a_closed_engine_takes_no_limits() -> None:
    with engine_of() as engine:
        engine.close()
        expect_raises(convoy.Closed, lambda: engine.set_admission(under_way_max=1))


def test_a_table_of_1_0_has_no_admission() -> None:
    """The same build's table, as long as that of transfer 1.0."""
    offset = next(row[1] for row in _abi.TransferTable.SLOTS if row[0] == "admission_set")
    with engine_of() as engine:
        build = engine._build
        answer, whole = build.answers["transfer"], build.transfer
        short = ctypes.create_string_buffer(ctypes.string_at(answer.table, offset), offset)
        _abi.TableHeader.from_buffer(short).table_size = offset
        older = _abi.FamilyAnswer(table=ctypes.addressof(short), status=_abi.OK, major=1, minor=0)
        build.transfer = _build._bind(_abi.TransferTable(), older, _abi.TransferTable.SLOTS)
        try:
            failure = expect_raises(convoy.Unsupported, lambda: engine.set_admission(under_way_max=1))
            assert "admission_set" in str(failure) and "older" in str(failure), failure
            engine.stage("r", ONE).release()
            expect_equal(engine.info().admitted, 0, "what it lacks is 0")
        finally:
            build.transfer = whole


if __name__ == "__main__":
    runner.main(globals())
