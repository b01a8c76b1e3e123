# SPDX-License-Identifier: Apache-2.0
"""What one rank hands back of an equivalence, and how it is judged."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Callable, Sequence

from lib import convoy_side, runner

_SHOWN = 3  # differences that are reported
_TEXT_MAX = 6000  # of one of them


@dataclass
class Report:
    """Of one rank. convoy_ran: scenarios run with hooks; None when they could not be installed."""

    host_ran: int = 0
    reductions: int = 0
    convoy_ran: int | None = None
    host_differences: list[str] = field(default_factory=list)
    convoy_differences: list[str] = field(default_factory=list)


def _narrowed(path: str, actual: Any, expected: Any) -> tuple[str, Any, Any]:
    """The first part in which two values of one form differ, and where it is."""
    if dataclasses.is_dataclass(actual) and type(actual) is type(expected):
        pairs = [(f".{one.name}", getattr(actual, one.name), getattr(expected, one.name)) for one in dataclasses.fields(actual)]
    elif isinstance(actual, dict) and isinstance(expected, dict) and actual.keys() == expected.keys():
        pairs = [(f"[{key!r}]", actual[key], expected[key]) for key in actual]
    elif isinstance(actual, (list, tuple)) and type(actual) is type(expected) and len(actual) == len(expected):
        pairs = [(f"[{place}]", *both) for place, both in enumerate(zip(actual, expected))]
    else:
        pairs = []
    for where, one, other in pairs:
        if one != other:
            return _narrowed(path + where, one, other)
    return path, actual, expected


def note(differences: list[str], what: str, actual: object, expected: object) -> None:
    """Adds the first part that differs, if one does."""
    if actual != expected and len(differences) < _SHOWN:
        path, one, other = _narrowed("", actual, expected)
        differences.append(f"{what}\n  {path} is {one!r}\n  must be {other!r}; of\n  {actual}\n  {expected}"[:_TEXT_MAX])


def _show(differences: Sequence[tuple[int, str]]) -> None:
    if differences:
        raise AssertionError("\n".join(f"rank {rank}: {text}" for rank, text in differences[:_SHOWN]))


def judge_host(reports: Sequence[Report], count: int) -> None:
    """All ranks ran `count` scenarios, each with a reduction at least, as the reference says."""
    _show([(rank, text) for rank, report in enumerate(reports) for text in report.host_differences])
    runner.expect_equal([report.host_ran for report in reports], [count] * len(reports), "scenarios by rank")
    assert all(report.reductions >= count for report in reports), reports


def judge_convoy(get_reports: Callable[[], Sequence[Report]]) -> None:
    """With hooks all ranks ran what they had run alone, and saw the same. Skip: no hooks here."""
    reason = convoy_side.why_absent()
    if reason is not None:
        raise runner.Skip(reason)
    reports = get_reports()
    _show([(rank, text) for rank, report in enumerate(reports) for text in report.convoy_differences])
    runner.expect_equal([report.convoy_ran for report in reports], [report.host_ran for report in reports], "scenarios")
