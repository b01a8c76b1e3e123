# SPDX-License-Identifier: Apache-2.0
"""For the pretender: real rounds of convoy behind process groups of torch, as plainly as they can be had."""

from __future__ import annotations

from typing import Any

import convoy
import torch.distributed

dist: Any = torch.distributed


class Rounds:
    """Opens a group of convoy when a process group is first seen, and for rows one for each inner size."""

    def __init__(self, library: str) -> None:
        self._context = convoy.load(library).context(secret=b"pretender")
        self._groups: dict[tuple[int, int], Any] = {}
        self._version = 0

    def _group(self, process_group: Any, inner: int = 0) -> Any:
        key = (id(process_group), inner)
        if key not in self._groups:
            size = dist.get_world_size(process_group)

            def allgather(mine: bytes) -> list[bytes]:
                everyone: list[Any] = [None] * size
                dist.all_gather_object(everyone, mine, group=process_group)
                return everyone

            options: dict[str, Any] = {"schema": "sglang-8", "sync_inner": inner} if inner else {}
            name, rank = f"group-{len(self._groups)}", dist.get_rank(process_group)
            self._groups[key] = self._context.group(name, members=size, rank=rank, allgather=allgather, **options)
        return self._groups[key]

    def reduce(self, polls: list[int], process_group: Any) -> list[int]:
        return list(self._group(process_group).reduce(polls))

    def gather(self, row: list[int], mask: list[int], inner: int, process_group: Any) -> list[list[int]]:
        """The rows of all members, those of inactive ones filled up."""
        self._version += 1
        group = self._group(process_group, inner)
        result = group.gather(row, active=mask, mask_version=self._version, exchange=True)
        return [list(row) for rows in result.table for row in rows]

    def call_logs(self) -> dict[str, list[dict[str, Any]]]:
        return {group.name: group.call_log() for group in self._groups.values()}
