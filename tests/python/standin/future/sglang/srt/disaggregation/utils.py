# SPDX-License-Identifier: Apache-2.0
"""A poll reduce that nobody has seen yet: keyword-only options, and a handle instead of a list on request."""

from __future__ import annotations

from typing import Any, Sequence

import torch
import torch.distributed as dist
from standin_parts.local_states import hold_until_landed, pipeline_states, poll_each, staged_states

_PROBABILITY = "SGLANG_TEST_DISAGG_FAILURE_PROB"

poll_and_all_reduce_pp = pipeline_states


def _all_reduce_polls(polls: list[int], *, over: Any, priority: int, is_async: bool = False) -> Any:
    """The reduced states, or with is_async (work, tensor)."""
    states = torch.tensor(polls, dtype=torch.uint8, device="cpu")
    work = dist.all_reduce(states, op=dist.ReduceOp.MIN, group=over, async_op=is_async)
    return (work, states) if is_async else states.tolist()


def _result(pending: Any) -> list[int]:
    work, states = pending
    work.wait()
    return states.tolist()  # type: ignore[no-any-return]


def poll_and_all_reduce(
    pollers: Sequence[Any], gloo_group: Any, *, gate: Any = None, priority: int = 0
) -> list[int]:
    """gate: (decode requests, metadata buffers, server args), or None."""
    states = poll_each(pollers, _PROBABILITY)
    hold_until_landed(states, *(gate or (None, None, None)))
    return _result(_all_reduce_polls(states, over=gloo_group, priority=priority, is_async=True))


def poll_and_all_reduce_attn_cp_tp_group(pollers: Sequence[Any], *, groups: Sequence[Any]) -> list[int]:
    """groups: of attention TP, then of attention CP."""
    states = poll_each(pollers, _PROBABILITY)
    for group in groups:
        states = _all_reduce_polls(states, over=group, priority=0)
    return states


def poll_and_all_reduce_with_staging(
    decode_reqs: Sequence[Any], staging_handler: Any, *, gloo_group: Any, gate: Any = None
) -> list[int]:
    states = staged_states(decode_reqs, staging_handler, _PROBABILITY)
    hold_until_landed(states, *(gate or (None, None, None)))
    return _result(_all_reduce_polls(states, over=gloo_group, priority=1, is_async=True))
