# SPDX-License-Identifier: Apache-2.0
"""Runs one poll scenario through the functions of a host, by name in its module, as the host's own callers would."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from typing import Any

from lib import host_objects
from lib.gang import Member
from lib.scenarios import TWO_LEVEL, Scenario

VARIABLES = ("SGLANG_TEST_DISAGG_FAILURE_PROB", "DISAGGREGATION_TEST_FAILURE_PROB")


@dataclass(frozen=True)
class Outcome:
    """What one rank saw. next_draw: the random number after those that the call took."""

    result: tuple[int, ...]
    types: frozenset[str]
    calls: tuple[str, ...]
    next_draw: float


def group_names(scenario: Scenario) -> dict[str, str]:
    """Names in the gang of the scenario's "tp" and "cp"."""
    return {level: f"{level}{scenario.tp}x{scenario.cp}" for level in ("tp", "cp")}


def fail_with(probability: float) -> None:
    """From now on the host fails requests on purpose with this probability."""
    for variable in VARIABLES:
        os.environ[variable] = repr(probability)


def _call(utils: Any, shape: str, scenario: Scenario, objects: host_objects.HostObjects, tp: Any, cp: Any) -> Any:
    is_future = shape == "future"
    gate = objects.gate() if scenario.is_gated else ()
    options = {"gate": gate or None} if is_future else {}
    if scenario.form == TWO_LEVEL:
        function = utils.poll_and_all_reduce_attn_cp_tp_group
        return function(objects.pollers, groups=(tp, cp)) if is_future else function(objects.pollers, cp, tp)
    if scenario.is_staged:
        function, first = utils.poll_and_all_reduce_with_staging, (objects.decode_reqs, objects.staging_handler)
        return function(*first, gloo_group=tp, **options) if is_future else function(*first, tp, *gate[1:])
    if scenario.is_gated and not is_future:  # the host gives these by name
        names = ("decode_reqs", "metadata_buffers", "server_args")
        return utils.poll_and_all_reduce(objects.pollers, tp, **dict(zip(names, gate)))
    return utils.poll_and_all_reduce(objects.pollers, tp, **options)


def call(utils: Any, shape: str, scenario: Scenario, member: Member) -> Outcome:
    """utils: the host's module, its functions as they are at this moment. Objects are made afresh for each call."""
    names = group_names(scenario)
    objects = host_objects.build(scenario.entries[member.rank], scenario.backend)
    fail_with(scenario.probability)
    random.seed(scenario.draw_seed)
    result = _call(utils, shape, scenario, objects, member.groups[names["tp"]], member.groups[names["cp"]])
    next_draw = random.random()
    types = frozenset(type(value).__name__ for value in (result, *result))
    return Outcome(tuple(result), types, tuple(objects.trail.calls), next_draw)
