#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The scenarios that hosts are compared by: made the same each time, and none of the cases that matter is missing."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any, Callable, Iterable

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

from lib import gather_scenarios, reference_gather, reference_polls, runner, scenarios  # noqa: E402
from lib.host_objects import Entry, Landing  # noqa: E402
from lib.runner import expect_equal  # noqa: E402

Case = Callable[..., Any]  # of a scenario: whether it holds there
_SEED, _COUNT = 20, 60  # of each size; less than `make test` runs


def _randoms() -> list[scenarios.Scenario]:
    return [scenarios.random_scenario(_SEED, index, size) for size in (1, 2, 4, 8) for index in range(_COUNT)]


def _lands(landing: str, entry: Entry) -> bool:
    return entry.landing == landing and entry.state == 4


def _expect_all(cases: dict[str, Case], over: Iterable[tuple[object, ...]]) -> None:
    left = dict(cases)
    for one in over:
        left = {name: case for name, case in left.items() if not case(*one)}
    expect_equal(list(left), [], "cases that are missing")


def test_scenarios_of_the_refactoring_are_thirty_and_rotate() -> None:
    thirty = scenarios.thirty()
    expect_equal(len({scenario.name for scenario in thirty}), 30, "scenarios")
    expect_equal(sum(scenario.form == scenarios.TWO_LEVEL for scenario in thirty), 5, "two-level ones")
    expect_equal(sum(scenario.is_staged for scenario in thirty), 20, "staged ones")
    states = [[entry.state for entry in entries] for entries in thirty[6].entries]
    expect_equal(states, [[0, 1, 2, 3, 4], [1, 2, 3, 4, 0], [2, 3, 4, 0, 1], [3, 4, 0, 1, 2]], "states by rank")


def test_scenarios_of_one_number_are_always_the_same() -> None:
    expect_equal(_randoms(), _randoms(), "random scenarios")
    expect_equal(len(set(_randoms())), 4 * _COUNT, "different scenarios")
    make = gather_scenarios.random_gather
    expect_equal(make(1, 3, 4, 8), make(1, 3, 4, 8), "a gather")
    assert make(1, 3, 4, 8) != make(2, 3, 4, 8)


def test_scenarios_of_polls_have_every_case() -> None:
    def some(holds: Callable[[Entry], bool]) -> Callable[[scenarios.Scenario], bool]:
        return lambda scenario: any(holds(entry) for entries in scenario.entries for entry in entries)

    cases: dict[str, Case] = {form: lambda one, form=form: one.form == form for form in scenarios.FORMS}
    for landing in (Landing.PENDING, Landing.FINISHES, Landing.DONE, Landing.LATE):
        cases[landing] = some(functools.partial(_lands, landing))
    for count in (0, 1, 64):
        cases[f"{count} requests"] = lambda one, count=count: len(one.entries[0]) == count
    cases["stamp 0"] = lambda one: one.is_gated and some(lambda entry: entry.state == 4 and entry.stamp == 0)(one)
    cases["wrong stamp"] = lambda one: one.is_gated and some(lambda e: e.state == 4 and e.stamp not in (0, e.room))(one)
    cases["fake by host"] = lambda one: one.is_gated and some(lambda e: e.host == "2.2.2.2" and e.stamp == 0)(one)
    for backend in ("fake", "mooncake"):
        cases[f"no host, {backend}"] = lambda one, backend=backend: (
            one.is_gated and one.backend == backend and some(lambda e: e.host is None and e.state == 4 and e.stamp == 0)(one)
        )
    cases["failures"] = lambda one: 0 < one.probability < 1 and len(one.entries[0]) > 8
    cases["all fail"] = lambda one: one.probability == 1
    cases["grid"] = lambda one: one.tp > 1 and one.cp > 1
    _expect_all(cases, ((one,) for one in _randoms()))


def test_scenarios_of_polls_lead_to_reductions_that_matter() -> None:
    def seen() -> Iterable[tuple[object, ...]]:
        for scenario in _randoms():
            if len(scenario.entries) > 1:
                yield scenario, reference_polls.expect(scenario, 0)

    def changes(expected: reference_polls.Expected, level: int) -> bool:
        one = expected.reductions[level]
        return one.given != one.taken

    _expect_all(
        {
            "the first reduction changes something": lambda scenario, expected: changes(expected, 0),
            "the second does": lambda scenario, expected: len(expected.reductions) > 1 and changes(expected, 1),
            "both do": lambda scenario, expected: (
                len(expected.reductions) > 1 and changes(expected, 0) and changes(expected, 1)
            ),
            "a request is agreed to be Success": lambda scenario, expected: 4 in expected.result,
        },
        seen(),
    )


def test_scenarios_of_gathers_have_every_case() -> None:
    made = [gather_scenarios.random_gather(_SEED, index, 4, 8) for index in range(_COUNT)]
    made += gather_scenarios.every_mask(4, 8)
    expect_equal(len({gather.mask for gather in made if len(gather.mask) == 4}), 16, "masks of four ranks")
    expect_equal(len({(gather.dp, gather.tp, gather.cp) for gather in made if gather.fits}), 6, "shapes")
    fallback = (0, 0, 1, 0, 1, 4, 0, 0)
    cases: dict[str, Case] = {
        "a short mask": lambda gather: len(gather.mask) < gather.slots,
        "no mask": lambda gather: gather.mask == (),
        "a long mask": lambda gather: len(gather.mask) > gather.slots,
        "more slots": lambda gather: gather.slots > len(gather.rows),
        "fewer slots": lambda gather: gather.slots < len(gather.rows),
        "largest": lambda gather: any(2**63 - 1 in row for row in gather.rows),
        "smallest": lambda gather: any(-(2**63) in row for row in gather.rows),
        "zeros stay": lambda gather: (0,) * 8 in reference_gather.expect(gather, 0).first,
        "zeros do not": lambda gather: (
            gather.by_sum and (0,) * 8 in gather.rows and fallback in reference_gather.expect(gather, 0).first
        ),
    }
    _expect_all(cases, ((gather,) for gather in made))


if __name__ == "__main__":
    runner.main(globals())
