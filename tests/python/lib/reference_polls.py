# SPDX-License-Identifier: Apache-2.0
"""What a poll scenario must give, computed from its entries alone: no stand-in, no torch, no objects that are called.

Each entry is decided by itself, in one expression of what holds for it, where the host goes over lists in passes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Sequence

from lib.host_objects import Entry, Landing
from lib.scenarios import TWO_LEVEL, Scenario

_FINISHED = {  # when the staging of a request is done: (as the handler is first asked, once all were polled)
    Landing.PENDING: (False, False),
    Landing.FINISHES: (False, True),
    Landing.DONE: (True, True),
    Landing.LATE: (False, None),  # once it was polled
}


@dataclass(frozen=True)
class Reduction:
    """One rank's part in one reduction. group: "tp" or "cp"."""

    group: str
    given: tuple[int, ...]
    taken: tuple[int, ...]


@dataclass(frozen=True)
class Expected:
    """Of one rank."""

    result: tuple[int, ...]
    reductions: tuple[Reduction, ...]
    calls: tuple[str, ...]
    draws: int  # random numbers taken


def _failures(scenario: Scenario) -> list[bool]:
    if scenario.probability <= 0:
        return [False] * len(scenario.entries[0])
    draw = random.Random(scenario.draw_seed)
    return [draw.random() < scenario.probability for _ in scenario.entries[0]]


def _is_done_at_the_end(entry: Entry, was_polled: bool) -> bool:
    done = _FINISHED[entry.landing][1]
    return was_polled if done is None else done


def _passes_gate(entry: Entry, backend: str) -> bool:
    is_fake = entry.host == "2.2.2.2" or (entry.host is None and backend == "fake")
    return is_fake or entry.stamp != 0


def _state(scenario: Scenario, entry: Entry, is_failed: bool) -> int:
    if is_failed:
        return 0
    if entry.state != 4:
        return entry.state
    is_held = scenario.is_staged and entry.is_staged and not _is_done_at_the_end(entry, was_polled=True)
    is_held = is_held or (scenario.is_gated and not _passes_gate(entry, scenario.backend))
    return 3 if is_held else 4


def _calls(scenario: Scenario, entries: Sequence[Entry], failed: Sequence[bool]) -> list[str]:
    calls = []
    staged = [place for place, entry in enumerate(entries) if scenario.is_staged and entry.is_staged]
    for place in staged:
        calls.append(f"is_done {place}")
        if not _FINISHED[entries[place].landing][0]:
            calls.append(f"advance {place}")
    calls.extend(f"poll {place}" for place in range(len(entries)) if not failed[place])
    calls.extend(f"is_done {place}" for place in staged if entries[place].state == 4 and not failed[place])
    return calls


def _least(vectors: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(min(states) for states in zip(*vectors))


def _peers(scenario: Scenario, rank: int) -> tuple[list[int], list[int]]:
    """Ranks of the TP and of the CP group of a rank, where rank = t x cp + c."""
    t, c = divmod(rank, scenario.cp)
    return [i * scenario.cp + c for i in range(scenario.tp)], [t * scenario.cp + i for i in range(scenario.cp)]


def expect(scenario: Scenario, rank: int) -> Expected:
    failed = _failures(scenario)
    inputs = [
        tuple(_state(scenario, entry, is_failed) for entry, is_failed in zip(entries, failed))
        for entries in scenario.entries
    ]
    firsts = [_least([inputs[peer] for peer in _peers(scenario, one)[0]]) for one in range(len(inputs))]
    reductions = [Reduction("tp", inputs[rank], firsts[rank])]
    result = firsts[rank]
    if scenario.form == TWO_LEVEL:
        result = _least([firsts[peer] for peer in _peers(scenario, rank)[1]])
        reductions.append(Reduction("cp", firsts[rank], result))
    draws = len(failed) if scenario.probability > 0 else 0
    return Expected(result, tuple(reductions), tuple(_calls(scenario, scenario.entries[rank], failed)), draws)
