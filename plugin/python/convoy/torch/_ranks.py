# SPDX-License-Identifier: Apache-2.0
"""What is to be known of a process group, over the versions of torch."""

from __future__ import annotations

import zlib
from typing import Any, List

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from convoy import errors


def resolve(process_group: Any) -> Any:
    """The process group itself; None stands for the whole world. Raises InvalidArgument: this rank is not in it."""
    if not dist.is_available() or not dist.is_initialized():
        raise errors.InvalidArgument("torch.distributed has no process group yet; call init_process_group first")
    group = dist.group.WORLD if process_group is None else process_group
    if dist.get_rank(group) < 0:
        raise errors.InvalidArgument("process_group is one that this rank is not in")
    return group


def ranks_of(process_group: Any) -> List[int]:
    """Global ranks in the order of the process group. Older releases have them in a table only."""
    public = getattr(dist, "get_process_group_ranks", None)
    if public is not None:
        return [int(rank) for rank in public(process_group)]
    table = getattr(distributed_c10d, "_pg_group_ranks")[process_group]
    return [int(rank) for rank in sorted(table, key=table.__getitem__)]


def device_of(process_group: Any) -> torch.device:
    """Where tensors must lie to be gathered: on the CPU, unless NCCL is all there is."""
    backend = str(dist.get_backend(process_group)).lower()
    if "nccl" in backend and "cpu:" not in backend and "gloo" not in backend:
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def ranks_text(ranks: List[int], longest: int = 96) -> str:
    """"0-3,8"; a long list is cut to its ends, its count and a checksum."""
    parts: List[List[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    text = ",".join("%d" % first if first == last else "%d-%d" % (first, last) for first, last in parts)
    if len(text) <= longest:
        return text
    return "%d..%d/%d/%08x" % (ranks[0], ranks[-1], len(ranks), zlib.crc32(text.encode()))
