# SPDX-License-Identifier: Apache-2.0
"""The DP sync gather of an older release: rows of seven columns, no context parallelism, always an all-gather."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from standin_parts import row_tables

row_tables.provide_all_gather_into_tensor()


@dataclass
class MLPSyncBatchInfo:
    """What one rank says of its batch; all_gather puts what all agreed on in place of its own votes."""

    dp_size: int
    tp_size: int
    num_tokens: int
    num_tokens_for_logprob: int
    can_cuda_graph: bool
    is_extend_in_batch: bool
    local_can_run_tbo: bool
    local_forward_mode: int
    can_run_breakable_cuda_graph: bool
    tp0_info: torch.Tensor | None = None
    global_num_tokens: list[int] | None = None
    global_num_tokens_for_logprob: list[int] | None = None

    def _get_local_tensor(self, device: Any, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        row = [
            self.num_tokens,
            self.num_tokens_for_logprob,
            int(self.can_cuda_graph),
            int(self.is_extend_in_batch),
            int(self.local_can_run_tbo),
            self.local_forward_mode,
            int(self.can_run_breakable_cuda_graph),
        ]
        return torch.tensor(row, dtype=dtype, device=device)

    def _get_fallback_tensor(self, device: Any, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.tensor([0, 0, 1, 0, 1, row_tables.IDLE, 0], dtype=dtype, device=device)

    def all_gather(self, device: Any, group: Any) -> None:
        local, fallback = self._get_local_tensor(device), self._get_fallback_tensor(device)
        table = row_tables.filled(fallback, self.dp_size, self.tp_size)
        torch.distributed.all_gather_into_tensor(table.flatten(), local, group=group)
        row_tables.refill_inactive(table, fallback, device)
        first = table[:, 0, :]
        self.tp0_info = first
        self.global_num_tokens = first[:, 0].tolist()
        self.global_num_tokens_for_logprob = first[:, 1].tolist()
        self.can_cuda_graph = bool(first[:, 2].min().item())
        self.is_extend_in_batch = bool(first[:, 3].max().item())
        self.can_run_breakable_cuda_graph = bool(first[:, 6].min().item())
