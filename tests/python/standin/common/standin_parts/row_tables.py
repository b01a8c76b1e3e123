# SPDX-License-Identifier: Apache-2.0
"""Tables of rows of the DP sync gather [dp, inner, width], where the releases of the host do the same with them."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from sglang.srt.distributed.parallel_state import get_tp_group

IDLE = 4


def filled(fallback: torch.Tensor, dp: int, inner: int) -> torch.Tensor:
    """Its own storage, at any size."""
    return fallback.repeat(dp, inner, 1)


def refill_empty(table: torch.Tensor, fallback: torch.Tensor) -> None:
    """In place: rows that nobody wrote become the fallback."""
    table[(table == 0).all(dim=-1)] = fallback


def refill_inactive(table: torch.Tensor, fallback: torch.Tensor, device: Any) -> None:
    """In place: rows of inactive ranks become the fallback; a mask for fewer ranks than rows does not count."""
    group = get_tp_group()
    mask = group.active_ranks_cpu if str(device) == "cpu" else group.active_ranks
    rows = table.shape[0] * table.shape[1]
    if mask.numel() < rows:
        mask = torch.ones(rows, dtype=torch.int64, device=device)
    table.view(rows, -1)[mask[:rows] == 0] = fallback


def provide_all_gather_into_tensor() -> None:
    """Where gloo is too old for torch.distributed.all_gather_into_tensor, the call gathers into views instead."""
    original = dist.all_gather_into_tensor
    if hasattr(original, "gathers_into_views"):
        return

    def all_gather_into_tensor(output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False) -> Any:
        try:
            return original(output_tensor, input_tensor, group=group, async_op=async_op)
        except RuntimeError as error:
            if "no support" not in str(error):
                raise
        views = list(output_tensor.view(dist.get_world_size(group), *input_tensor.shape).unbind(0))
        return dist.all_gather(views, input_tensor, group=group, async_op=async_op)

    all_gather_into_tensor.gathers_into_views = True  # type: ignore[attr-defined]
    dist.all_gather_into_tensor = all_gather_into_tensor
