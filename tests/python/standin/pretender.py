# SPDX-License-Identifier: Apache-2.0
"""Pretends to be convoy's hooks: torch does the work, and the logs look like convoy's. With a fault in PRETENDER_FAULT
it does something that a host could tell, so that a test can show that the comparison tells it as well. "rounds" is no
fault: the work is done by groups of convoy that were opened by hand, and their logs are the real ones."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import torch
import torch.distributed

dist: Any = torch.distributed
_all_reduce, _all_gather = dist.all_reduce, dist.all_gather
_fault = os.environ.get("PRETENDER_FAULT", "")
_rounds: Any = None
_logs: dict[str, list[dict[str, Any]]] = {}
_names: dict[int, str] = {}
_KEPT = 64


def call_logs() -> dict[str, list[dict[str, Any]]]:
    if _rounds is not None:
        return _rounds.call_logs()  # type: ignore[no-any-return]
    return {name: list(calls[-_KEPT:]) for name, calls in _logs.items()}


def _log(group: Any, operation: str, given: list[Any], taken: list[Any]) -> None:
    name = _names.setdefault(id(group), f"group-{len(_names)}")
    calls = _logs.setdefault(name, [])
    one = {"name": "", "count": len(given), "input": given, "output": taken}
    call = {"operation": operation, "round": len(calls) + 1, "status": "OK", "cut": False, "lists": [one]}
    calls.append(dict(call, duration_ns=time.monotonic_ns(), input_bytes=0, output_bytes=0))


def _reduce(polls: list[int], group: Any) -> Any:
    if _rounds is not None:
        return _rounds.reduce(polls, group)
    states = torch.tensor(polls, dtype=torch.uint8)
    _all_reduce(states, op=dist.ReduceOp.MIN, group=group)
    result = states.tolist()
    if _fault != "unlogged":
        _log(group, "poll", list(polls), result)
    if _fault == "twice":
        _log(group, "poll", result, result)
    if _fault == "draws":
        random.random()
    return tuple(result) if _fault == "tuple" else result


def _swapped(pollers: Any, attn_cp_cpu_group: Any, attn_tp_cpu_group: Any) -> list[int]:
    from sglang.srt.disaggregation import utils

    states = utils.poll_and_all_reduce(pollers, attn_cp_cpu_group)
    return _reduce(states, attn_tp_cpu_group)  # type: ignore[no-any-return]


def _poll_twice(pollers: Any, *args: Any, **kwargs: Any) -> None:
    for poller in pollers:
        poller.poll()


def _torch_too(result: Any, polls: list[int], group: Any) -> None:
    dist.all_reduce(torch.tensor(polls, dtype=torch.uint8), op=dist.ReduceOp.MIN, group=group)


def _gather_rows(info: Any, group: Any) -> tuple[list[int], torch.Tensor]:
    local = info._get_local_tensor("cpu")
    rows = [torch.empty_like(local) for _ in range(dist.get_world_size(group))]
    _all_gather(rows, local, group=group)
    return local.tolist(), torch.stack(rows)


def _gather(original: Any, info: Any, device: Any, group: Any, use_all_reduce: bool = False) -> None:
    from sglang.srt.distributed.parallel_state import get_tp_group

    if info.dp_size * info.tp_size * info.cp_size != dist.get_world_size(group):
        return original(info, device, group, use_all_reduce)  # type: ignore[no-any-return]
    mask = get_tp_group().active_ranks_cpu
    if _rounds is not None:
        given = info._get_local_tensor("cpu").tolist()
        table = _rounds.gather(given, mask.tolist()[: dist.get_world_size(group)], info.tp_size * info.cp_size, group)
        rows = torch.tensor(table, dtype=torch.int64)
        if use_all_reduce:
            rows[(rows == 0).all(dim=-1)] = info._get_fallback_tensor("cpu")
        info._read(rows.view(info.dp_size, -1, rows.shape[-1])[:, 0, :])
        return None
    local, rows = _gather_rows(info, group)
    fallback = info._get_fallback_tensor("cpu")
    if use_all_reduce or _fault == "zeros":
        rows[(rows == 0).all(dim=-1)] = fallback
    if mask.numel() >= len(rows) and _fault != "mask":
        rows[mask[: len(rows)] == 0] = fallback
    _log(group, "sync", [local], rows.tolist())
    first = rows.view(info.dp_size, -1, len(local))[:, -1 if _fault == "last" else 0, :]
    info._read(first)
    if _fault == "type":
        info.is_extend_in_batch = int(info.is_extend_in_batch)
    return None


def register() -> None:
    global _rounds
    if _fault == "rounds":
        from standin.rounds import Rounds

        _rounds = Rounds(os.environ["CONVOY_LIBRARY"])
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    utils = "sglang.srt.disaggregation.utils"
    if _fault == "swap":
        HookRegistry.register(f"{utils}.poll_and_all_reduce_attn_cp_tp_group", _swapped, HookType.REPLACE)
    if _fault == "polls":
        HookRegistry.register(f"{utils}.poll_and_all_reduce", _poll_twice, HookType.BEFORE)
    if _fault == "torch":
        HookRegistry.register(f"{utils}._all_reduce_polls", _torch_too, HookType.AFTER)
    HookRegistry.register(f"{utils}._all_reduce_polls", _reduce, HookType.REPLACE)
    dp_attn = "sglang.srt.managers.scheduler_components.dp_attn"
    HookRegistry.register(f"{dp_attn}.MLPSyncBatchInfo.all_gather", _gather, HookType.AROUND)
