# SPDX-License-Identifier: Apache-2.0
"""Runs one gather through a host's MLPSyncBatchInfo and notes every field that it sets."""

from __future__ import annotations

import importlib
from typing import Any, Callable

from lib.gang import Member
from lib.gather_scenarios import Gather

MODULES = {
    "today": "sglang.srt.managers.scheduler_components.dp_attn",
    "before": "sglang.srt.managers.scheduler_dp_attn_mixin",
    "future": "sglang.srt.managers.scheduler_components.dp_attn",
}
# What a row's columns are called; the later ones come back under the same names.
_FIELDS = {
    "today": (
        "num_tokens",
        "num_tokens_for_logprob",
        "can_run_decode_cuda_graph",
        "is_extend_in_batch",
        "local_can_run_tbo",
        "local_forward_mode",
        "can_run_prefill_cuda_graph",
        "prefill_cuda_graph_max_prefix_len",
    ),
    "before": (
        "num_tokens",
        "num_tokens_for_logprob",
        "can_cuda_graph",
        "is_extend_in_batch",
        "local_can_run_tbo",
        "local_forward_mode",
        "can_run_breakable_cuda_graph",
    ),
}
_REDUCED: dict[int, Callable[[Any], bool]] = {
    2: lambda values: bool(min(values)),
    3: lambda values: bool(max(values)),
    6: lambda values: bool(min(values)),
}
_FIRST = {"today": "tp0_info_cpu", "before": "tp0_info"}

Fields = dict[str, object]


def set_active(mask: tuple[int, ...]) -> None:
    """What the host's tensor-parallel group says from now on. The mask for other devices is not for these tests."""
    import torch

    state = importlib.import_module("sglang.srt.distributed.parallel_state")
    on_cpu = torch.tensor(mask, dtype=torch.int64)
    state.set_tp_group(state.GroupCoordinator(active_ranks=torch.zeros(64), active_ranks_cpu=on_cpu))


def _tensor_fields(name: str, tensor: Any) -> Fields:
    return {name: tensor.tolist(), f"{name} is": f"{tensor.dtype} {list(tensor.shape)} {tensor.device}"}


def _with_types(fields: Fields) -> Fields:
    """True equals 1, but a host may look at the type."""
    types = {}
    for name, value in fields.items():
        parts = value if isinstance(value, list) else []
        types[name] = " of ".join([type(value).__name__, *sorted({type(part).__name__ for part in parts})])
    return {**fields, "types": types}


def call(shape: str, gather: Gather, member: Member) -> Fields:
    """The fields afterwards. Their tensor is overwritten then, so that one that shares storage spoils what follows."""
    import torch

    module = importlib.import_module(MODULES[shape])
    set_active(gather.mask)
    own, world = gather.rows[member.rank], member.groups["world"]
    if shape == "future":
        layout = module.Layout(gather.dp, gather.tp * gather.cp)
        return _tensor_fields("table", module.MLPSyncBatchInfo(own).all_gather(layout, over=world))
    row = dict(zip(_FIELDS[shape], own))
    if shape == "today":
        info = module.MLPSyncBatchInfo(gather.dp, gather.tp, gather.cp, **row)
        device = "cpu" if gather.dp % 2 else torch.device("cpu")
        returned = info.all_gather(device=device, group=world, use_all_reduce=gather.by_sum)
    else:
        info = module.MLPSyncBatchInfo(gather.dp, gather.tp * gather.cp, **row)
        returned = info.all_gather("cpu", world)
    first = getattr(info, _FIRST[shape])
    fields = {name: value for name, value in vars(info).items() if name != _FIRST[shape]}
    fields.update(_tensor_fields(_FIRST[shape], first), returned=returned)
    first.fill_(-7)
    return _with_types(fields)


def expected_fields(shape: str, gather: Gather, rank: int, first: tuple[tuple[int, ...], ...]) -> Fields:
    """What `call` must give, by the first row of each data-parallel rank."""
    rows = [list(row) for row in first]
    described = f"torch.int64 {[len(rows), len(rows[0])]} cpu"
    if shape == "future":
        return {"table": rows, "table is": described}
    fields: Fields = dict(zip(_FIELDS[shape], gather.rows[rank]))
    fields.update(dp_size=gather.dp, tp_size=gather.tp)
    if shape == "today":
        fields.update(cp_size=gather.cp, prefill_cuda_graph_max_prefix_len=max(row[7] for row in rows))
    else:
        fields.update(tp_size=gather.tp * gather.cp)
    for column, reduce in _REDUCED.items():
        fields[_FIELDS[shape][column]] = reduce([row[column] for row in rows])
    name = _FIRST[shape]
    fields.update({name: rows, f"{name} is": described, "returned": None})
    fields.update(global_num_tokens=[row[0] for row in rows], global_num_tokens_for_logprob=[row[1] for row in rows])
    return _with_types(fields)
