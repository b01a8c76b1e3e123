# SPDX-License-Identifier: Apache-2.0
"""A DP sync gather that nobody has seen yet: ten columns, and a gather that is told its layout and returns a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence

import torch
from standin_parts import row_tables

row_tables.provide_all_gather_into_tensor()

_FALLBACK = (0, 0, 1, 0, 1, row_tables.IDLE, 0, 0, -1, -1)


@dataclass
class Layout:
    dp: int
    inner: int


@dataclass
class MLPSyncBatchInfo:
    """columns: ten values."""

    columns: Sequence[int]

    def _get_local_tensor(self, *, layout: Layout) -> torch.Tensor:
        return torch.tensor(list(self.columns), dtype=torch.int64)

    def all_gather(self, layout: Layout, *, over: Any) -> torch.Tensor:
        fallback = torch.tensor(_FALLBACK, dtype=torch.int64)
        table = row_tables.filled(fallback, layout.dp, layout.inner)
        torch.distributed.all_gather_into_tensor(table.flatten(), self._get_local_tensor(layout=layout), group=over)
        row_tables.refill_inactive(table, fallback, "cpu")
        return table[:, 0, :]
