# SPDX-License-Identifier: Apache-2.0
"""The hook on the DP sync gather: the host's own method runs, and its one collective is a gather of convoy.

So layout, columns, masks and result fields are those of the host's release, whatever they are. A collective is one of:
an all-gather of one row per rank, or SUM of a table that is zero but for this rank's own row, in the slot of its rank.
"""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Any, Callable, Dict, List, Mapping, Optional

from convoy import _abi, errors
from convoy._gatherer import Gatherer
from convoy._rounds import Operation
from convoy.group import Group
from convoy.sglang import _code, _copies, _lanes, _stand_ins
from convoy.sglang._around import around
from convoy.sync import Column

CLASS = "MLPSyncBatchInfo"
TARGETS = (
    "sglang.srt.managers.scheduler_components.dp_attn.%s.all_gather" % CLASS,
    "sglang.srt.managers.scheduler_dp_attn_mixin.%s.all_gather" % CLASS,
)
_INTO = ("all_gather_into_tensor", "_all_gather_base")
_COLLECTIVES = _INTO + ("all_gather", "all_reduce")
_OPERATIONS = (("all_reduce", "SUM"),)


class _Caller(threading.local):
    """The object whose all_gather this thread is in."""

    batch: Any = None


class Row:
    """What one rank brings. values: a tensor of int64 of one dimension, on any device. batch: whose method was called."""

    __slots__ = ("values", "batch", "refusal")

    def __init__(self, values: Any, batch: Any, refusal: str = "") -> None:
        self.values = values
        self.batch = batch
        self.refusal = refusal  # why this rank cannot bring a row


class GatherLane(_lanes.Lane):
    """Gathers of rows of one width: a Row in, a tensor [ranks, width] in host memory out, good until the next round."""

    WHAT = "sync gathers"
    _gatherer: Gatherer
    _row: Any
    _table: Any

    def _options(self, value: Row) -> Dict[str, Any]:
        fallback = value.batch._get_fallback_tensor("cpu").tolist()
        return {"schema": [Column("column %d" % i, fallback=int(f)) for i, f in enumerate(fallback)], "sync_inner": 1}

    def _opened(self, group: Group) -> None:
        torch = import_module("torch")
        self._gatherer = gatherer = group.gatherer()
        self._row = torch.frombuffer(gatherer.row, dtype=torch.int64)
        self._table = torch.frombuffer(gatherer.table, dtype=torch.int64).view(-1, gatherer.width)

    def _round(self, group: Group, value: Row) -> Any:
        if value.refusal:
            raise errors.InvalidArgument(value.refusal)
        self._row.copy_(value.values)
        self._gatherer()
        return self._table

    def _take(self, group: Group, timeout: Optional[float]) -> Any:
        self._gatherer.wait(timeout)
        return self._table

    def _error_row(self, group: Group, reason: int) -> Operation:
        return group.gather_start(None, error_row=reason)


def check(functions: Mapping[str, Any]) -> None:
    """Raises Unknown: not the method that is known, or its class lacks what the hook needs."""
    (target, value), = functions.items()
    function = _code.innermost(value)
    _code.check_parameters(function, ("self", "device", "group"), ("use_all_reduce",))
    _code.check_collectives(function, _COLLECTIVES, _OPERATIONS, once=True)
    module, _, _ = target.rpartition(".%s." % CLASS)
    owner = getattr(import_module(module), CLASS)
    for name in ("_get_local_tensor", "_get_fallback_tensor"):
        method = getattr(owner, name, None)
        if method is None:
            raise _code.Unknown("expected a method %s, found none" % name)
        _code.check_parameters(_code.innermost(method), ("self", "device"), ("dtype",))


def hooks(functions: Mapping[str, Any]) -> Dict[str, Any]:
    """{target: hook}."""
    (target, value), = functions.items()
    host = _code.innermost(value)
    caller = _Caller()
    copy = _copies.copy_of(host, _stand_ins.stand_ins(_Collectives(caller).named()))

    def all_gather(self: Any, *args: Any, **kwargs: Any) -> Any:
        before, caller.batch = caller.batch, self
        try:
            return copy(self, *args, **kwargs)
        finally:
            caller.batch = before

    return {target: around(target, host, all_gather)}


class _Collectives:
    """What the method finds as collectives of torch.distributed. What is not one row per rank of int64 stays torch's; all
    that is asked here is the same on all ranks, as they run the same code on tables of the same size."""

    def __init__(self, caller: _Caller) -> None:
        self._caller = caller
        self._torch, self._distributed = import_module("torch"), import_module("torch.distributed")

    def named(self) -> Dict[str, Callable[..., Any]]:
        return {"all_gather_into_tensor": self._into("all_gather_into_tensor"), "_all_gather_base":
                self._into("_all_gather_base"), "all_gather": self._all_gather, "all_reduce": self._all_reduce_of()}

    def _gather(self, row: Any, group: Any, refusal: str = "") -> Any:
        width = row.numel()
        lane = _lanes.lane(GatherLane, group, width)
        return lane.run(Row(row.reshape(-1), self._caller.batch, refusal))

    def _is_row(self, row: Any, outputs: int, group: Any, async_op: bool) -> bool:
        ranks = self._distributed.get_world_size(group)
        return (not async_op and row.dtype == self._torch.int64 and 0 < row.numel() <= _abi.SYNC_COLUMNS_MAX and
                outputs == ranks * row.numel())

    def _into(self, name: str) -> Callable[..., Any]:
        def into(output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False) -> Any:
            if self._is_row(input_tensor, output_tensor.numel(), group, async_op):
                table = self._gather(input_tensor, group)
                if table is not _lanes.HOSTS_WAY:
                    output_tensor.copy_(table.view(output_tensor.shape))
                    return None
            return getattr(self._distributed, name)(output_tensor, input_tensor, group=group, async_op=async_op)

        return into

    def _all_gather(self, tensor_list: List[Any], tensor: Any, group: Any = None, async_op: bool = False) -> Any:
        if self._is_row(tensor, sum(output.numel() for output in tensor_list), group, async_op):
            table = self._gather(tensor, group)
            if table is not _lanes.HOSTS_WAY:
                for output, row in zip(tensor_list, table):
                    output.copy_(row.view(output.shape))
                return None
        return self._distributed.all_gather(tensor_list, tensor, group=group, async_op=async_op)

    def _all_reduce_of(self) -> Callable[..., Any]:
        total = self._distributed.ReduceOp.SUM

        def all_reduce(tensor: Any, op: Any = total, group: Any = None, async_op: bool = False) -> Any:
            if op == total and not async_op and tensor.dtype == self._torch.int64 and self._sum(tensor, group):
                return None
            return self._distributed.all_reduce(tensor, op=op, group=group, async_op=async_op)

        return all_reduce

    def _sum(self, table: Any, group: Any) -> bool:
        """SUM of a world table in place. False: it is left to torch, on all ranks."""
        width = int(self._caller.batch._get_fallback_tensor("cpu").numel())
        if not 0 < width <= _abi.SYNC_COLUMNS_MAX or table.numel() == 0 or table.numel() % width:
            return False
        given = table.detach().cpu().reshape(-1, width)
        rank, slots = self._distributed.get_rank(group), given.shape[0]
        row = given[rank] if 0 <= rank < slots else self._torch.zeros(width, dtype=self._torch.int64)
        others = given.clone()
        if 0 <= rank < slots:
            others[rank] = 0
        refusal = "" if not bool(others.any()) else "the world table has values in other slots than that of rank %d" % rank
        rows = self._gather(row, group, refusal)
        if rows is _lanes.HOSTS_WAY:
            return False
        summed = self._torch.zeros_like(given)
        kept = min(slots, rows.shape[0])
        summed[:kept] = rows[:kept]
        table.copy_(summed.view(table.shape))
        return True
