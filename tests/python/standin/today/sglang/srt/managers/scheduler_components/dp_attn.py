# SPDX-License-Identifier: Apache-2.0
"""The DP sync gather of today: rows of eight columns, by an all-gather or, with use_all_reduce, by a sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from standin_parts import row_tables

row_tables.provide_all_gather_into_tensor()


@dataclass
class MLPSyncBatchInfo:
    """What one rank says of its batch. The fields from can_run_decode_cuda_graph on are votes, and after all_gather
    those that a result belongs to hold what all ranks agreed on."""

    dp_size: int
    tp_size: int
    cp_size: int
    num_tokens: int
    num_tokens_for_logprob: int
    can_run_decode_cuda_graph: bool
    is_extend_in_batch: bool
    local_can_run_tbo: bool
    local_forward_mode: int
    can_run_prefill_cuda_graph: bool
    prefill_cuda_graph_max_prefix_len: int
    tp0_info_cpu: torch.Tensor | None = None
    global_num_tokens: list[int] | None = None
    global_num_tokens_for_logprob: list[int] | None = None

    def _get_local_tensor(self, device: Any, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        row = [
            self.num_tokens,
            self.num_tokens_for_logprob,
            int(self.can_run_decode_cuda_graph),
            int(self.is_extend_in_batch),
            int(self.local_can_run_tbo),
            self.local_forward_mode,
            int(self.can_run_prefill_cuda_graph),
            self.prefill_cuda_graph_max_prefix_len,
        ]
        return torch.tensor(row, dtype=dtype, device=device)

    def _get_fallback_tensor(self, device: Any, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.tensor([0, 0, 1, 0, 1, row_tables.IDLE, 0, 0], dtype=dtype, device=device)

    def all_gather(self, device: Any, group: Any, use_all_reduce: bool = False) -> None:
        local, fallback = self._get_local_tensor(device), self._get_fallback_tensor(device)
        table = row_tables.filled(fallback, self.dp_size, self.tp_size * self.cp_size)
        if use_all_reduce:
            table.zero_()
            rows = table.view(-1, table.shape[-1])
            rank = torch.distributed.get_rank(group=group)
            if 0 <= rank < rows.shape[0]:
                rows[rank] = local
            torch.distributed.all_reduce(table, op=torch.distributed.ReduceOp.SUM, group=group)
            row_tables.refill_empty(table, fallback)
        else:
            torch.distributed.all_gather_into_tensor(table.flatten(), local, group=group)
        row_tables.refill_inactive(table, fallback, device)
        self._read(table[:, 0, :].cpu())

    def _read(self, first: torch.Tensor) -> None:
        self.tp0_info_cpu = first
        self.global_num_tokens = first[:, 0].tolist()
        self.global_num_tokens_for_logprob = first[:, 1].tolist()
        self.can_run_decode_cuda_graph = bool(first[:, 2].min().item())
        self.is_extend_in_batch = bool(first[:, 3].max().item())
        self.can_run_prefill_cuda_graph = bool(first[:, 6].min().item())
        self.prefill_cuda_graph_max_prefix_len = int(first[:, 7].max().item())
