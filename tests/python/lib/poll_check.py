# SPDX-License-Identifier: Apache-2.0
"""One rank of the equivalence of poll reduces: the host alone against the reference, then convoy against the host."""

from __future__ import annotations

import importlib
import random
import traceback
from dataclasses import dataclass
from typing import Any, Iterable, Sequence

import standin
from lib import convoy_side, host_objects, poll_calls, recorder, reference_polls, scenarios
from lib.gang import Member
from lib.recorder import Record
from lib.report import Report, note
from lib.scenarios import Scenario

_BATCH = 24  # scenarios between two looks at logs that keep 64 calls


@dataclass(frozen=True)
class Seen:
    outcome: poll_calls.Outcome
    records: tuple[Record, ...]


def selection(size: int, seed: int, count: int) -> list[Scenario]:
    """The thirty where there are four ranks, and `count` random ones."""
    known = scenarios.thirty() if size == 4 else []
    return known + [scenarios.random_scenario(seed, index, size) for index in range(count)]


def _run_host(utils: Any, shape: str, chosen: Iterable[Scenario], member: Member) -> list[Seen]:
    seen = []
    with recorder.Recorder(member.groups).recording() as log:
        for scenario in chosen:
            outcome = poll_calls.call(utils, shape, scenario, member)
            seen.append(Seen(outcome, tuple(log.take())))
    return seen


def _next_draw(scenario: Scenario, draws: int) -> float:
    draw = random.Random(scenario.draw_seed)
    for _ in range(draws):
        draw.random()
    return draw.random()


def _expected(scenario: Scenario, rank: int) -> Seen:
    expected = reference_polls.expect(scenario, rank)
    names = poll_calls.group_names(scenario)
    records = tuple(Record(names[one.group], recorder.MIN, one.given, one.taken) for one in expected.reductions)
    types = frozenset({"list", "int"} if expected.result else {"list"})
    next_draw = _next_draw(scenario, expected.draws)
    return Seen(poll_calls.Outcome(expected.result, types, expected.calls, next_draw), records)


def _host_half(utils: Any, shape: str, chosen: Sequence[Scenario], member: Member, report: Report) -> list[Seen]:
    seen = _run_host(utils, shape, chosen, member)
    for scenario, one in zip(chosen, seen):
        note(report.host_differences, scenario.name, one, _expected(scenario, member.rank))
    report.host_ran = len(seen)
    report.reductions = sum(len(one.records) for one in seen)
    return seen


class _ConvoyHalf:
    """The same scenarios through the hooked names."""

    def __init__(self, utils: Any, shape: str, member: Member, report: Report) -> None:
        self.utils, self.shape, self.member, self.report = utils, shape, member, report
        self.names = convoy_side.GroupNames()
        self.tail = recorder.CallLogTail()
        self.host_log = recorder.Recorder(member.groups)

    def learn_groups(self) -> None:
        poll_calls.fail_with(0)
        for name in sorted(self.member.groups):
            if name == "world":
                continue
            objects = host_objects.build([host_objects.Entry(state=2)], "mooncake")
            result = self.utils.poll_and_all_reduce(objects.pollers, self.member.groups[name])
            note(self.report.convoy_differences, f"a first reduction over {name}", result, [2])
            self.names.learn(name, is_alone=len(self.member.ranks[name]) == 1)
        self._new_calls()

    def _new_calls(self) -> dict[str, list[Record]]:
        logs = convoy_side.call_logs()
        return {name: recorder.from_call_log(name, self.tail.take(name, calls)) for name, calls in logs.items()}

    def _by_convoy_group(self, batch: Sequence[Seen]) -> dict[str, list[Record]]:
        """What convoy must have logged for what the host asked torch for."""
        wanted: dict[str, list[Record]] = {}
        for record in (record for one in batch for record in one.records):
            name = self.names.of_host[record.group]
            if name is not None:
                wanted.setdefault(name, []).append(Record(name, record.operation, record.given, record.taken))
        return wanted

    def run(self, chosen: Sequence[Scenario], host: Sequence[Seen]) -> None:
        for start in range(0, len(chosen), _BATCH):
            batch = chosen[start : start + _BATCH]
            for scenario, before in zip(batch, host[start:]):
                outcome = poll_calls.call(self.utils, self.shape, scenario, self.member)
                note(self.report.convoy_differences, f"hooked: {scenario.name}", outcome, before.outcome)
            self._compare_logs(f"scenarios from {batch[0].name}", host[start : start + _BATCH])
            self.report.convoy_ran = start + len(batch)

    def _compare_logs(self, what: str, batch: Sequence[Seen]) -> None:
        wanted = self._by_convoy_group(batch)
        logged = {name: records for name, records in self._new_calls().items() if records}
        note(self.report.convoy_differences, f"groups with reductions, {what}", sorted(logged), sorted(wanted))
        for name in sorted(set(logged) & set(wanted)):
            note(self.report.convoy_differences, f"log of {name}, {what}", logged[name], wanted[name])
        note(self.report.convoy_differences, f"torch still reduces, {what}", self.host_log.take(), [])


def _hooked(utils: Any, shape: str, chosen: Sequence[Scenario], member: Member, host: Sequence[Seen], report: Report) -> None:
    half = _ConvoyHalf(utils, shape, member, report)
    report.convoy_ran = 0
    half.learn_groups()
    with half.host_log.recording():
        half.run(chosen, host)


def _left_alone(utils: Any, chosen: Sequence[Scenario], member: Member, host: Sequence[Seen], report: Report) -> None:
    """A host of signatures that nobody knows does what it did, by itself."""
    for scenario, before, after in zip(chosen, host, _run_host(utils, "future", chosen, member)):
        note(report.convoy_differences, f"left alone: {scenario.name}", after, before)
    report.convoy_ran = len(host)


def check(member: Member, shape: str, seed: int, count: int) -> Report:
    """For gang.run. Exceptions of the convoy half are differences, so that the host half is still reported."""
    standin.use(shape)
    utils = importlib.import_module("sglang.srt.disaggregation.utils")
    chosen = selection(member.size, seed, count)
    report = Report()
    host = _host_half(utils, shape, chosen, member, report)
    if convoy_side.why_absent() is not None:
        return report
    try:
        before = {name: value for name, value in vars(utils).items() if callable(value)}
        convoy_side.install()
        if shape == "future":
            after = {name: value for name, value in vars(utils).items() if callable(value)}
            note(report.convoy_differences, "functions of the module", after, before)
            _left_alone(utils, chosen, member, host, report)
        else:
            _hooked(utils, shape, chosen, member, host, report)
    except Exception:
        report.convoy_differences.append(traceback.format_exc())
    return report
