#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Exceptions keep all that they carry when they are copied, or go to another process."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path
from typing import Any, Iterator, Type

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

import convoy  # noqa: E402
from convoy.reports import MemberReport, Report  # noqa: E402
from lib import runner  # noqa: E402
from lib.runner import expect_equal  # noqa: E402

CARRIED = ("text", "status", "rank", "round", "errno", "ucx_status", "report", "retry_after_ms", "args", "note")
MEMBER = MemberReport(1, 1, 0, "lost", "process", -1, 0, "poll", 7, 0, 0.5, 1, 1, 2, 0, 0, 0)


def classes(kind: Type[convoy.ConvoyError]) -> Iterator[Type[convoy.ConvoyError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from classes(below)


def test_copies_and_pickles_keep_everything() -> None:
    for kind in classes(convoy.ConvoyError):
        failure: Any = kind("some text", -777, 3, 9, 12, -4, Report(0, 9, 0.5, "tag", 3, (MEMBER,)))
        failure.retry_after_ms, failure.note = 17, "the host's"
        for made in (pickle.loads(pickle.dumps(failure)), pickle.loads(pickle.dumps(failure, 0)), copy.copy(failure),
                     copy.deepcopy(failure)):
            expect_equal((type(made), str(made)), (kind, "some text"), kind.__name__)
            for name in CARRIED:
                expect_equal(getattr(made, name), getattr(failure, name), "%s.%s" % (kind.__name__, name))


if __name__ == "__main__":
    runner.main(globals())
