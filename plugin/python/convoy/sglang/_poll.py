# SPDX-License-Identifier: Apache-2.0
"""The hooks on the poll reduce.

Today's host has one helper, ``_all_reduce_polls(polls, group)``: list in, list out, so no tensor is made on the way. The
release before has none; its three callers make a tensor and reduce it themselves, and run with that collective replaced.
"""

from __future__ import annotations

from importlib import import_module
from types import FunctionType
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from convoy import errors
from convoy.group import Group
from convoy.sglang import _code, _copies, _lanes, _stand_ins
from convoy.sglang._around import around

MODULE = "sglang.srt.disaggregation.utils"
HELPER = MODULE + "._all_reduce_polls"
PLAIN = MODULE + ".poll_and_all_reduce"
TWO_LEVEL = MODULE + ".poll_and_all_reduce_attn_cp_tp_group"
STAGED = MODULE + ".poll_and_all_reduce_with_staging"
_GATE = ("metadata_buffers", "server_args")
_PARAMETERS = {  # required, optional
    PLAIN: (("pollers", "gloo_group"), ("decode_reqs",) + _GATE),
    TWO_LEVEL: (("pollers", "attn_cp_cpu_group", "attn_tp_cpu_group"), ()),
    STAGED: (("decode_reqs", "staging_handler", "gloo_group"), _GATE),
}
_COLLECTIVES = ("all_reduce",)
_OPERATIONS = (("all_reduce", "MIN"),)
_ENTRIES_MAX = 1 << 16  # four times the plugin's default; a byte each in memory that is laid out when a group opens


class PollLane(_lanes.Lane):
    """Poll reduces of one process group: a sequence of states in, a list out."""

    WHAT = "poll reduces"

    def _options(self, value: Sequence[int]) -> Dict[str, Any]:
        return {"blob_bytes_max": _ENTRIES_MAX}

    def _round(self, group: Group, value: Sequence[int]) -> List[int]:
        try:
            if len(value) > _ENTRIES_MAX:
                raise errors.Limit("%d states; one poll reduce through convoy takes up to %d" % (len(value), _ENTRIES_MAX))
            return group.reduce(value)
        except TypeError as reason:  # no integers at all; the peers must hear of it too
            raise errors.InvalidArgument("states: %s" % reason) from reason

    def _take(self, group: Group, timeout: Optional[float]) -> List[int]:
        states: List[int] = group.wait(timeout)
        return states


def check_helper(functions: Mapping[str, Any]) -> None:
    """Raises Unknown: not the helper that is known."""
    function = _code.innermost(functions[HELPER])
    _code.check_parameters(function, ("polls", "group"))
    _code.check_collectives(function, _COLLECTIVES, _OPERATIONS, once=True)


def check_callers(functions: Mapping[str, Any]) -> None:
    """Raises Unknown: one of the callers is not as it is known."""
    for target, value in functions.items():
        name = target.rpartition(".")[2]
        try:
            function = _code.innermost(value)
            _code.check_parameters(function, *_PARAMETERS[target])
            _code.check_collectives(function, _COLLECTIVES, _OPERATIONS)
        except _code.Unknown as reason:
            raise _code.Unknown("%s: %s" % (name, reason)) from None


def helper_hooks(functions: Mapping[str, Any]) -> Dict[str, Any]:
    """{target: hook} for the helper."""
    host = _code.innermost(functions[HELPER])

    def reduce_polls(polls: Any, group: Any) -> Any:
        result = _lanes.lane(PollLane, group).run(polls)
        return host(polls, group) if result is _lanes.HOSTS_WAY else result

    return {HELPER: around(HELPER, host, reduce_polls)}


def caller_hooks(functions: Mapping[str, Any]) -> Dict[str, Any]:
    """{target: hook} for the callers, each with its collective replaced."""
    stand_ins = _stand_ins.stand_ins({"all_reduce": _all_reduce()})

    def hook(target: str) -> Callable[..., Any]:
        host: FunctionType = _code.innermost(functions[target])
        return around(target, host, _copies.copy_of(host, stand_ins))

    return {target: hook(target) for target in functions}


def _all_reduce() -> Callable[..., Any]:
    """What the callers find as torch.distributed.all_reduce: MIN of bytes in host memory is convoy's, all else torch's."""
    torch, distributed = import_module("torch"), import_module("torch.distributed")
    minimum, total = distributed.ReduceOp.MIN, distributed.ReduceOp.SUM

    def all_reduce(tensor: Any, op: Any = total, group: Any = None, async_op: bool = False) -> Any:
        # All of this is the same on all ranks, as they run the same code.
        if op == minimum and not async_op and tensor.dtype == torch.uint8 and tensor.device.type == "cpu":
            result = _lanes.lane(PollLane, group).run(tensor.reshape(-1).tolist())
            if result is not _lanes.HOSTS_WAY:
                tensor.copy_(torch.tensor(result, dtype=torch.uint8).view(tensor.shape))
                return None
        return distributed.all_reduce(tensor, op=op, group=group, async_op=async_op)

    return all_reduce
