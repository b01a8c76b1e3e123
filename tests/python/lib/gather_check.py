# SPDX-License-Identifier: Apache-2.0
"""One rank of the equivalence of gathers: the host alone against the reference, then convoy against the host."""

from __future__ import annotations

import dataclasses
import importlib
import traceback
from collections import Counter
from dataclasses import dataclass
from typing import Iterable, Sequence

import standin
from lib import convoy_side, gather_calls, recorder, reference_gather
from lib.gang import Member
from lib.gather_scenarios import WIDTHS, Gather, every_mask, random_gather
from lib.recorder import GATHER, SUM, Record
from lib.report import Report, note

_BATCH = 24  # scenarios between two looks at logs that keep 64 calls


@dataclass(frozen=True)
class Seen:
    fields: gather_calls.Fields
    records: tuple[Record, ...]


def selection(shape: str, size: int, seed: int, count: int) -> list[Gather]:
    """All masks where there are four ranks, and `count` random ones; sums only where the shape has them."""
    width = WIDTHS[shape]
    masks = every_mask(size, width) if size == 4 else []
    chosen = masks + [random_gather(seed, index, size, width) for index in range(count)]
    return chosen if shape == "today" else [gather for gather in chosen if not gather.by_sum]


def _run_host(shape: str, chosen: Iterable[Gather], member: Member) -> list[Seen]:
    seen = []
    with recorder.Recorder(member.groups).recording() as log:
        for gather in chosen:
            fields = gather_calls.call(shape, gather, member)
            seen.append(Seen(fields, tuple(log.take())))
    return seen


def _expected(shape: str, gather: Gather, rank: int) -> Seen:
    expected = reference_gather.expect(gather, rank)
    record = Record("world", SUM if gather.by_sum else GATHER, expected.given, expected.taken)
    return Seen(gather_calls.expected_fields(shape, gather, rank, expected.first), (record,))


def _host_half(shape: str, chosen: Sequence[Gather], member: Member, report: Report) -> list[Seen]:
    seen = _run_host(shape, chosen, member)
    for gather, one in zip(chosen, seen):
        note(report.host_differences, gather.name, one, _expected(shape, gather, member.rank))
    report.host_ran = len(seen)
    report.reductions = sum(len(one.records) for one in seen)
    return seen


def _refilled(records: Iterable[Record]) -> list[Record]:
    """With the fallback in place of rows of zeros: in a sum the host takes these for empty, before or after the round."""
    made = []
    for record in records:
        width = len(record.given)
        rows = [record.taken[at : at + width] for at in range(0, len(record.taken), width)]
        filled = [row if any(row) else reference_gather.FALLBACK[:width] for row in rows]
        made.append(dataclasses.replace(record, taken=tuple(value for row in filled for value in row)))
    return made


def _is_part(part: Sequence[Record], whole: Sequence[Record]) -> bool:
    """Whether part is in whole in this order, with others between."""
    rest = iter(whole)
    return all(any(one == other for other in rest) for one in part)


class _ConvoyHalf:
    """The same gathers through the hooked names. convoy may keep a group for each layout: its logs are looked at
    together, and the order of calls in each of them."""

    def __init__(self, shape: str, member: Member, report: Report) -> None:
        self.shape, self.member, self.report = shape, member, report
        self.tail = recorder.CallLogTail()
        self.host_log = recorder.Recorder(member.groups)

    def open_groups(self, gather: Gather) -> None:
        """Opening a group goes through torch; this is not judged."""
        gather_calls.call(self.shape, gather, self.member)
        self._new_calls()

    def _new_calls(self) -> list[list[Record]]:
        logs = {name: self.tail.take(name, calls) for name, calls in convoy_side.call_logs().items()}
        return [_refilled(recorder.from_call_log("", calls)) for calls in logs.values()]

    def _wanted(self, batch: Sequence[Gather], is_masked: bool) -> list[Record]:
        """One row in and the table out for each gather that convoy must do. The mask is applied in the round, or by the
        host's own code after it."""
        rank, wanted = self.member.rank, []
        for gather in batch:
            if gather.fits and self.member.size > 1:  # alone there is nobody to exchange with
                table = reference_gather.expect(gather, rank).table if is_masked else gather.rows
                wanted.append(Record("", GATHER, gather.rows[rank], tuple(value for row in table for value in row)))
        return _refilled(wanted)

    def _compare_logs(self, what: str, batch: Sequence[Gather]) -> None:
        by_group = self._new_calls()
        if self.member.size > 1 and all(gather.fits for gather in batch):
            logged = Counter(record for records in by_group for record in records)
            wanted = self._wanted(batch, is_masked=True)
            if Counter(wanted) != logged:
                wanted = self._wanted(batch, is_masked=False)
            note(self.report.convoy_differences, f"logs, {what}", logged, Counter(wanted))
            order = [_is_part(records, wanted) for records in by_group]
            note(self.report.convoy_differences, f"order in the logs, {what}", order, [True] * len(order))

    def run(self, chosen: Sequence[Gather], host: Sequence[Seen]) -> None:
        for start in range(0, len(chosen), _BATCH):
            batch = chosen[start : start + _BATCH]
            for gather, before in zip(batch, host[start:]):
                fields = gather_calls.call(self.shape, gather, self.member)
                note(self.report.convoy_differences, f"hooked: {gather.name}", fields, before.fields)
                torch_did = self.host_log.take()
                if gather.fits:  # a sum over more or fewer slots than ranks may be left to the host
                    note(self.report.convoy_differences, f"torch still gathers: {gather.name}", torch_did, [])
            self._compare_logs(f"scenarios from {batch[0].name}", batch)
        self.report.convoy_ran = len(chosen)


def _hooked(shape: str, chosen: Sequence[Gather], member: Member, host: Sequence[Seen], report: Report) -> None:
    half = _ConvoyHalf(shape, member, report)
    pairs = sorted(zip(chosen, host), key=lambda pair: not pair[0].fits)  # so that most batches are judged by logs
    half.open_groups(pairs[0][0])
    with half.host_log.recording():
        half.run([gather for gather, _ in pairs], [seen for _, seen in pairs])


def check(member: Member, shape: str, seed: int, count: int) -> Report:
    """For gang.run. Exceptions of the convoy half are differences, so that the host half is still reported."""
    standin.use(shape)
    kind = importlib.import_module(gather_calls.MODULES[shape]).MLPSyncBatchInfo  # it may add to torch, so before any log
    chosen = selection(shape, member.size, seed, count)
    report = Report()
    host = _host_half(shape, chosen, member, report)
    if convoy_side.why_absent() is not None:
        return report
    try:
        before = dict(vars(kind))
        convoy_side.install()
        if shape == "future":
            note(report.convoy_differences, "the class", dict(vars(kind)), before)
            for gather, one, again in zip(chosen, host, _run_host(shape, chosen, member)):
                note(report.convoy_differences, f"left alone: {gather.name}", again, one)
            report.convoy_ran = len(chosen)
        else:
            _hooked(shape, chosen, member, host, report)
    except Exception:
        report.convoy_differences.append(traceback.format_exc())
    return report
