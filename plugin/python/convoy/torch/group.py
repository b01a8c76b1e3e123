# SPDX-License-Identifier: Apache-2.0
"""A group whose calls take tensors of torch, where hosts call all_reduce MIN and all_gather today."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, TypeVar, Union

import torch

from convoy import errors
from convoy._gatherer import Gatherer
from convoy._reducer import Reducer
from convoy.group import Group

States = TypeVar("States", List[int], torch.Tensor)

_PLAIN = (0, 0, 0, None, False, False)
_READ_IN_PLACE = (torch.uint8, torch.int8, torch.int32, torch.int64, torch.bool)


class TorchGroup(Group):
    """A Group with calls for tensors. Made by ``convoy.torch.open_group``; everything of Group is there too."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._tensor_reducer = Reducer(self, 0)
        self._aimed_at = 0, 0  # address and count of the tensor that was reduced in place last
        self._tensor_gatherer: Optional[Gatherer] = None

    # -- all_reduce MIN -----------------------------------------------------------------------------------------------

    def all_reduce_min(self, states: States, timeout: Optional[float] = None) -> States:
        """MIN of each state over all members; all bring equally many, 0..4 each.

        A list gives a new list. A tensor of integers is reduced in place and returned, as all_reduce does: a contiguous
        one of uint8 in host memory without any copy; others (int8 to int64, bool, with gaps, on a device) are read, and
        the result is copied back. timeout: seconds, None for the group's. After a failure the tensor is as it was.
        Raises as ``Group.reduce``; InvalidArgument also: a tensor of floats, or one whose elements overlap.
        """
        if isinstance(states, list):
            return self.reduce(states, timeout)
        if states.dtype is torch.uint8 and states.device.type == "cpu" and states.is_contiguous():
            return self._reduce_in_place(states, timeout)
        return self._reduce_copied(states, timeout)

    def _reduce_in_place(self, tensor: torch.Tensor, timeout: Optional[float]) -> torch.Tensor:
        reducer, place = self._tensor_reducer, (tensor.data_ptr(), tensor.numel())
        if place != self._aimed_at:
            reducer.aim(place[0], 1, 1, place[0], place[1])
            self._aimed_at = place
        reducer(place[1], timeout)
        return tensor

    def _reduce_copied(self, tensor: torch.Tensor, timeout: Optional[float]) -> torch.Tensor:
        flat = _readable(tensor)
        count = flat.numel()
        result = torch.empty(count, dtype=torch.uint8)
        self._aimed_at = 0, 0
        stride = flat.stride(0) * flat.element_size() if count > 1 else flat.element_size()
        self._tensor_reducer.aim(flat.data_ptr(), flat.element_size(), stride, result.data_ptr(), count)
        self._tensor_reducer(count, timeout)
        return tensor.copy_(result.view(tensor.shape))

    # -- all_gather of rows -------------------------------------------------------------------------------------------

    def gather_row(
        self,
        row: Union[None, Sequence[int], torch.Tensor],
        out: Optional[torch.Tensor] = None,
        timeout: Optional[float] = None,
        active: Optional[Sequence[int]] = None,
        mask_version: int = 0,
        tag: int = 0,
        votes: int = 0,
        world_slot: Optional[int] = None,
        errors_as_presence: bool = False,
        exchange: bool = False,
    ) -> torch.Tensor:
        """Gives every member the rows of all, as an int64 tensor [dp, inner, width] (world gathers: [slots, inner, width]).

        row: one value per column of the group's schema, None = the fallbacks (idle). out: an int64 tensor of as many
        elements, of any shape, which is filled and returned; the plugin writes straight into a contiguous one in host
        memory. It may hold ``row``. The other arguments are those of ``Group.gather``; ``presence`` then says which rows
        are their member's own. After a failure ``out`` is as it was.
        Raises as ``Group.gather``; InvalidArgument also: ``out`` is of another type or size.
        """
        if self._tensor_gatherer is None:
            self._tensor_gatherer = self.gatherer()
        gatherer = self._tensor_gatherer
        shape = gatherer.slots, gatherer.inner, gatherer.width
        table = self._table(out, shape)
        keep: Any = None
        if row.__class__ is list and active is None and _PLAIN == (mask_version, tag, votes, world_slot, errors_as_presence,
                                                                   exchange):
            gatherer.fill_plain(row)  # type: ignore[arg-type]
        else:
            given: Any = row.cpu() if isinstance(row, torch.Tensor) else row
            keep = gatherer.fill(given, active, mask_version, tag, votes, world_slot, errors_as_presence, exchange)
        gatherer.answer.table = table.data_ptr()
        gatherer(timeout)
        del keep
        if out is None or out is table:
            return table
        return out.copy_(table.view(out.shape))

    @staticmethod
    def _table(out: Optional[torch.Tensor], shape: Sequence[int]) -> torch.Tensor:
        """Memory for the plugin to write a table into: ``out`` itself where that is possible."""
        if out is None:
            return torch.empty(shape, dtype=torch.int64)
        count = shape[0] * shape[1] * shape[2]
        if out.dtype is not torch.int64 or out.numel() != count:
            raise errors.InvalidArgument("out is a tensor of %d elements of %s; the table has %s = %d of torch.int64" % (
                out.numel(), out.dtype, list(shape), count))
        _check_overlap(out, "out")
        if out.device.type == "cpu" and out.is_contiguous():
            return out
        return torch.empty(shape, dtype=torch.int64)

    @property
    def presence(self) -> List[int]:
        """Presence of each row of the last ``gather_row``, [dp x inner], one of those in ``convoy.sync``."""
        return [] if self._tensor_gatherer is None else self._tensor_gatherer.presence.tolist()


def _check_overlap(tensor: torch.Tensor, what: str) -> None:
    """Refuses at once what torch would refuse to copy into after the round."""
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape)):
        raise errors.InvalidArgument("%s is an expanded tensor: several of its elements share their memory" % what)


def _readable(tensor: torch.Tensor) -> torch.Tensor:
    """The same integers in one dimension of host memory, of a type that the plugin reads; a copy where it must be one."""
    if tensor.is_floating_point() or tensor.is_complex():
        raise errors.InvalidArgument("states is a tensor of %s; it must be one of integers" % tensor.dtype)
    _check_overlap(tensor, "states")
    host = tensor.detach().cpu()
    if host.dtype not in _READ_IN_PLACE:
        host = host.to(torch.int64)
    return host.reshape(-1)
