# SPDX-License-Identifier: Apache-2.0
"""The poll reduce before there was a helper: each caller makes its tensor and reduces it by itself."""

from __future__ import annotations

from typing import Any, Sequence

import torch
import torch.distributed as dist
from standin_parts.local_states import hold_until_landed, pipeline_states, poll_each, staged_states

_PROBABILITY = "DISAGGREGATION_TEST_FAILURE_PROB"

poll_and_all_reduce_pp = pipeline_states


def poll_and_all_reduce(
    pollers: Sequence[Any],
    gloo_group: Any,
    decode_reqs: Any = None,
    metadata_buffers: Any = None,
    server_args: Any = None,
) -> list[int]:
    states = poll_each(pollers, _PROBABILITY)
    hold_until_landed(states, decode_reqs, metadata_buffers, server_args)
    reduced = torch.tensor(states, dtype=torch.uint8, device="cpu")
    dist.all_reduce(reduced, op=dist.ReduceOp.MIN, group=gloo_group)
    return reduced.tolist()  # type: ignore[no-any-return]


def poll_and_all_reduce_attn_cp_tp_group(
    pollers: Sequence[Any], attn_cp_cpu_group: Any, attn_tp_cpu_group: Any
) -> list[int]:
    states = poll_and_all_reduce(pollers, attn_tp_cpu_group)
    reduced = torch.tensor(states, dtype=torch.uint8, device="cpu")
    dist.all_reduce(reduced, op=dist.ReduceOp.MIN, group=attn_cp_cpu_group)
    return reduced.tolist()  # type: ignore[no-any-return]


def poll_and_all_reduce_with_staging(
    decode_reqs: Sequence[Any],
    staging_handler: Any,
    gloo_group: Any,
    metadata_buffers: Any = None,
    server_args: Any = None,
) -> list[int]:
    states = staged_states(decode_reqs, staging_handler, _PROBABILITY)
    hold_until_landed(states, decode_reqs, metadata_buffers, server_args)
    reduced = torch.tensor(states, dtype=torch.uint8, device="cpu")
    dist.all_reduce(reduced, op=dist.ReduceOp.MIN, group=gloo_group)
    return reduced.tolist()  # type: ignore[no-any-return]
