#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The comparison of a hooked host with the host alone tells what it must: a pretender that does all right passes,
and each of its faults is found, with the part that names it."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

from lib import convoy_side, gang, gather_check, poll_check, runner  # noqa: E402
from lib.report import Report  # noqa: E402

# Each fault, and what the first difference says.
_POLL_FAULTS = {
    "": "",
    "rounds": "",
    "twice": "log of group-",
    "unlogged": "shows in the call logs of []",
    "swap": "log of group-",
    "polls": ".calls",
    "draws": ".next_draw is",
    "tuple": "is (2,)",
    "torch": "torch still reduces",
}
_GATHER_FAULTS = {
    "": "",
    "rounds": "",
    "zeros": "hooked: ",
    "mask": "hooked: mask",
    "last": "hooked: ",
    "type": "['is_extend_in_batch'] is 'int'",
}
_TITLES = {"": "nothing_of_what_is_right", "rounds": "nothing_of_real_rounds"}
_SEED, _COUNT = 22, 30


def _check_all(member: gang.Member, module: str, faults: list[str]) -> dict[str, Report]:
    os.environ[convoy_side.HOOKS] = "standin.pretender"
    reports = {}
    for fault in faults:
        os.environ["PRETENDER_FAULT"] = fault
        sys.modules.pop("standin.pretender", None)
        check = {"poll": poll_check.check, "gather": gather_check.check}[module]
        reports[fault] = check(member, "today", _SEED, _COUNT)
    return reports


@functools.lru_cache(maxsize=None)
def _reports(module: str, size: int, faults: tuple[str, ...]) -> list[dict[str, Report]]:
    groups = {**gang.grid_groups(size, 1, size), **gang.grid_groups(size, size, 1)}
    if size == 4:
        groups.update(gang.grid_groups(size, 2, 2))
    return gang.run(size, _check_all, (module, list(faults)), groups)


def _found(module: str, size: int, faults: dict[str, str], fault: str) -> None:
    if not os.path.exists(convoy_side.library()):
        raise runner.Skip(f"{convoy_side.library()} has not been built")
    reports = [by_fault[fault] for by_fault in _reports(module, size, tuple(faults))]
    runner.expect_equal([report.host_differences for report in reports], [[]] * size, "differences of the host")
    texts = "\n".join(text for report in reports for text in report.convoy_differences)
    if faults[fault] == "":
        runner.expect_equal(texts, "", "differences")
        runner.expect_equal([report.convoy_ran for report in reports], [report.host_ran for report in reports], "ran")
    else:
        assert faults[fault] in texts, f"fault {fault!r}: {texts or 'no difference'}"


def _tests() -> dict[str, object]:
    tests: dict[str, object] = {}
    for module, size, faults in (("poll", 2, _POLL_FAULTS), ("gather", 4, _GATHER_FAULTS)):
        for fault in faults:
            test = functools.partial(_found, module, size, faults, fault)
            tests[f"test_comparison_of_{module}s_tells_{_TITLES.get(fault, fault)}"] = test
    return tests


if __name__ == "__main__":
    runner.need("torch")
    runner.main(_tests())
