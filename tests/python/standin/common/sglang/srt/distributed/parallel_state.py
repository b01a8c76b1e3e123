# SPDX-License-Identifier: Apache-2.0
"""The tensor-parallel group of a process, as far as others ask it which ranks are active."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class GroupCoordinator:
    """active_ranks, active_ranks_cpu: one number per rank, 0 = inactive."""

    active_ranks: Any
    active_ranks_cpu: Any


_tp_group: GroupCoordinator | None = None


def get_tp_group() -> GroupCoordinator:
    assert _tp_group is not None, "the tensor-parallel group has not been set"
    return _tp_group


def set_tp_group(group: GroupCoordinator) -> None:
    """For tests: the host makes its groups from the command line."""
    global _tp_group
    _tp_group = group
