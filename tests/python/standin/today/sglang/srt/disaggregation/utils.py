# SPDX-License-Identifier: Apache-2.0
"""The poll reduce of today: one helper, three callers."""

from __future__ import annotations

from typing import Any, Sequence

import torch
import torch.distributed as dist
from standin_parts.local_states import hold_until_landed, pipeline_states, poll_each, staged_states

_PROBABILITY = "SGLANG_TEST_DISAGG_FAILURE_PROB"

poll_and_all_reduce_pp = pipeline_states


def _all_reduce_polls(polls: list[int], group: Any) -> list[int]:
    """The least advanced state of each entry over the group."""
    states = torch.tensor(polls, dtype=torch.uint8, device="cpu")
    dist.all_reduce(states, op=dist.ReduceOp.MIN, group=group)
    return states.tolist()  # type: ignore[no-any-return]


def poll_and_all_reduce(
    pollers: Sequence[Any],
    gloo_group: Any,
    decode_reqs: Any = None,
    metadata_buffers: Any = None,
    server_args: Any = None,
) -> list[int]:
    states = poll_each(pollers, _PROBABILITY)
    hold_until_landed(states, decode_reqs, metadata_buffers, server_args)
    return _all_reduce_polls(states, gloo_group)


def poll_and_all_reduce_attn_cp_tp_group(
    pollers: Sequence[Any], attn_cp_cpu_group: Any, attn_tp_cpu_group: Any
) -> list[int]:
    states = poll_and_all_reduce(pollers, attn_tp_cpu_group)
    return _all_reduce_polls(states, attn_cp_cpu_group)


def poll_and_all_reduce_with_staging(
    decode_reqs: Sequence[Any],
    staging_handler: Any,
    gloo_group: Any,
    metadata_buffers: Any = None,
    server_args: Any = None,
) -> list[int]:
    states = staged_states(decode_reqs, staging_handler, _PROBABILITY)
    hold_until_landed(states, decode_reqs, metadata_buffers, server_args)
    return _all_reduce_polls(states, gloo_group)
