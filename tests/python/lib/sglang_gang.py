# SPDX-License-Identifier: Apache-2.0
"""What the tests of the host's hooks do in each process of a gang: a host in some release, hooked, and its calls."""

from __future__ import annotations

import importlib
import logging
import os
from typing import Any, Callable, Dict, List, Mapping, Sequence

import standin
from lib.gang import Member

UTILS = "sglang.srt.disaggregation.utils"
GATHER = {"today": "sglang.srt.managers.scheduler_components.dp_attn", "before": "sglang.srt.managers.scheduler_dp_attn_mixin"}


class Lines(logging.Handler):
    """Lines of convoy.sglang in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: List[str] = []
        self.at_warning: Callable[[], Any] = lambda: None
        logger = logging.getLogger("convoy.sglang")
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append("%s %s" % (record.levelname, record.getMessage()))
        if record.levelno == logging.WARNING:
            self.at_warning()

    def warnings(self) -> List[str]:
        return [line for line in self.lines if line.startswith("WARNING")]


def hooked(shape: str, environment: Mapping[str, str] = {}) -> Any:
    """The host's module of the poll reduce, with convoy's hooks. environment: set in this process before that."""
    os.environ.update(environment)
    standin.use(shape)
    utils = importlib.import_module(UTILS)
    importlib.import_module("convoy.sglang").register()
    importlib.import_module("sglang.srt.plugins.hook_registry").HookRegistry.apply_hooks()
    return utils


class Poller:
    """What the host polls."""

    def __init__(self, state: int) -> None:
        self.state = state

    def poll(self) -> int:
        return self.state


class TorchCalls:
    """Counts the collectives of torch that are made in this process, those that open groups left out."""

    NAMES = ("all_reduce", "all_gather_into_tensor")

    def __init__(self) -> None:
        import torch.distributed as dist

        self.count = 0
        for name in self.NAMES:
            setattr(dist, name, self._counting(getattr(dist, name)))

    def _counting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            return original(*args, **kwargs)

        return call

    def taken(self) -> int:
        count, self.count = self.count, 0
        return count


def reduce(utils: Any, shape: str, states: Sequence[int], group: Any) -> List[int]:
    """One poll reduce through the name that is hooked."""
    if shape == "today":
        return list(utils._all_reduce_polls(list(states), group))
    return list(utils.poll_and_all_reduce([Poller(state) for state in states], group))


def outcome(call: Callable[[], Any]) -> Any:
    """The result, or "Class: text" of what convoy raised."""
    from convoy import errors

    try:
        return call()
    except errors.ConvoyError as failure:
        return "%s: %s" % (type(failure).__name__, failure)


def batch(shape: str, member: Member, tokens: int) -> Any:
    """This rank's batch in a world where each rank is one data-parallel rank."""
    module = importlib.import_module(GATHER[shape])
    if shape == "today":
        return module.MLPSyncBatchInfo(member.size, 1, 1, tokens, 1, True, False, True, 2, True, 7)
    return module.MLPSyncBatchInfo(member.size, 1, tokens, 1, True, False, True, 2, True)


def all_active(size: int) -> None:
    """All ranks of the host's tensor-parallel group are active."""
    import torch

    state = importlib.import_module("sglang.srt.distributed.parallel_state")
    mask = torch.ones(size, dtype=torch.int64)
    state.set_tp_group(state.GroupCoordinator(mask, mask))


def gathered(one: Any, group: Any, **options: Any) -> Dict[str, Any]:
    """The result fields after a gather."""
    one.all_gather("cpu", group, **options)
    fields = dict(vars(one))
    return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in sorted(fields.items())}
