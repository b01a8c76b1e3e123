# SPDX-License-Identifier: Apache-2.0
"""Logs of reductions, in one form: what the host asked torch.distributed for, and what convoy did in its place."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Mapping, Sequence

MIN, SUM, GATHER = "min", "sum", "gather"


@dataclass(frozen=True)
class Record:
    """One reduction. given and taken: values in the order of memory; a gather gives a row and takes a table."""

    group: str
    operation: str
    given: tuple[int, ...]
    taken: tuple[int, ...]


def _values(tensor: Any) -> tuple[int, ...]:
    return tuple(int(value) for value in tensor.reshape(-1).tolist())


class Recorder:
    """Wraps torch.distributed's calls in this process while it is in force; `records` has them in order."""

    def __init__(self, groups: Mapping[str, Any]) -> None:
        """groups: the names of process groups. A group without a name is logged as "unnamed"."""
        self.records: list[Record] = []
        self._groups = dict(groups)
        self._depth = 0  # calls that one of these calls makes are not the host's

    def take(self) -> list[Record]:
        """The records since the last time."""
        records, self.records = self.records, []
        return records

    def _name(self, group: Any) -> str:
        return next((name for name, one in self._groups.items() if one is group), "unnamed")

    def _record(self, group: Any, operation: str, given: tuple[int, ...], output: Any, result: Any) -> None:
        if result is not None and hasattr(result, "wait"):
            result.wait()  # the work of an asynchronous call
        self.records.append(Record(self._name(group), operation, given, _values(output)))

    def _nested(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._depth += 1
        try:
            return call(*args, **kwargs)
        finally:
            self._depth -= 1

    def _all_reduce(self, original: Any, min_op: Any, sum_op: Any) -> Callable[..., Any]:
        def all_reduce(tensor: Any, op: Any = sum_op, group: Any = None, async_op: bool = False) -> Any:
            if self._depth:
                return original(tensor, op, group, async_op)
            given = _values(tensor)
            result = self._nested(original, tensor, op, group, async_op)
            name = MIN if op == min_op else SUM if op == sum_op else str(op)
            self._record(group, name, given, tensor, result)
            return result

        return all_reduce

    def _all_gather(self, original: Any) -> Callable[..., Any]:
        def all_gather(tensors: Any, tensor: Any, group: Any = None, async_op: bool = False) -> Any:
            if self._depth:
                return original(tensors, tensor, group, async_op)
            given = _values(tensor)
            result = self._nested(original, tensors, tensor, group, async_op)
            import torch

            self._record(group, GATHER, given, torch.cat([one.reshape(-1) for one in tensors]), result)
            return result

        return all_gather

    def _into_tensor(self, original: Any) -> Callable[..., Any]:
        def all_gather_into_tensor(output: Any, tensor: Any, group: Any = None, async_op: bool = False) -> Any:
            if self._depth:
                return original(output, tensor, group, async_op)
            given = _values(tensor)
            result = self._nested(original, output, tensor, group, async_op)
            self._record(group, GATHER, given, output, result)
            return result

        return all_gather_into_tensor

    @contextlib.contextmanager
    def recording(self) -> Iterator[Recorder]:
        import torch.distributed as dist

        names = ("all_reduce", "all_gather", "all_gather_into_tensor")
        originals = {name: getattr(dist, name) for name in names}
        dist.all_reduce = self._all_reduce(dist.all_reduce, dist.ReduceOp.MIN, dist.ReduceOp.SUM)
        dist.all_gather = self._all_gather(dist.all_gather)
        dist.all_gather_into_tensor = self._into_tensor(dist.all_gather_into_tensor)
        try:
            yield self
        finally:
            for name, original in originals.items():
                setattr(dist, name, original)


def _flat(values: Sequence[Any]) -> Iterator[int]:
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        else:
            yield int(value)


_OPERATIONS = {"poll": MIN, "poll_keyed": MIN, "sync": GATHER}


def from_call_log(group: str, calls: Sequence[Mapping[str, Any]]) -> list[Record]:
    """Records of a group from its call log (the parsed JSON of topic CALL_LOG), oldest first, lists one after another.
    ValueError: a call that did not end OK, or of which the log did not keep all values."""
    records = []
    for call in calls:
        where = f"group {group}, round {call['round']}"
        if call["status"] != "OK":
            raise ValueError(f"{where} ended {call['status']}")
        if call["cut"]:
            raise ValueError(f"{where} is cut: {call['input_bytes']} bytes in, {call['output_bytes']} out")
        given = tuple(value for one in call["lists"] for value in _flat(one["input"]))
        taken = tuple(value for one in call["lists"] for value in _flat(one["output"]))
        records.append(Record(group, _OPERATIONS[call["operation"]], given, taken))
    return records


class CallLogTail:
    """Follows call logs that keep only their last calls."""

    def __init__(self) -> None:
        self._seen: dict[str, Mapping[str, Any]] = {}

    def take(self, group: str, calls: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The calls since the last time. ValueError: some are not in the log any more."""
        last = self._seen.get(group)
        if calls:
            self._seen[group] = calls[-1]
        if last is None:
            return list(calls)
        for place in range(len(calls) - 1, -1, -1):
            if calls[place] == last:
                return list(calls[place + 1 :])
        raise ValueError(f"group {group}: the call log has lost calls since it was read last; read it more often")
