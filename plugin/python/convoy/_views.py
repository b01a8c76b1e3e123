# SPDX-License-Identifier: Apache-2.0
"""What a transfer holds, read where it lies: tensors as read-only views, scalars as text."""

from __future__ import annotations

import ctypes
from ctypes import addressof, byref, sizeof
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

from convoy import _abi, _dtypes, errors

if TYPE_CHECKING:
    from convoy._holding import Holding


@dataclass(frozen=True)
class Row:
    """One tensor of a payload, by address. index: of a list, else None. offset: from the start of the payload."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    address: int
    bytes: int
    offset: int
    index: Optional[int]


@dataclass(frozen=True)
class Payload:
    """Everything that the plugin says about what a transfer holds."""

    rows: Tuple[Row, ...]
    lists: Tuple[Tuple[str, int], ...]
    request: str
    attempt: int
    session: str  # the sender's
    scalars: Optional[str]
    bytes: int
    priority: int


class Tensor:
    """One tensor in memory of the pool's, read-only. It keeps its transfer alive.

    What ``data``, ``numpy`` and ``torch`` give stays readable as long as it lives, also after a release of the transfer: the
    memory goes back when both are over. Until then the engine cannot be closed.
    """

    def __init__(self, holder: "Holding", row: Row) -> None:
        self._holder = holder
        self._row = row
        self.name = row.name
        self.dtype = row.dtype
        self.shape = row.shape
        self.nbytes = row.bytes
        self.offset = row.offset

    @property
    def address(self) -> int:
        """Where the bytes lie; 0 when there is none."""
        return self._row.address

    def _span(self) -> Any:
        """The bytes as an object that numpy and torch take, and that keeps the transfer."""
        self._holder.handle()
        span = (ctypes.c_char * self.nbytes).from_address(self.address) if self.nbytes else (ctypes.c_char * 0)()
        setattr(span, "holder", self._holder)
        self._holder._lend(span)
        return span

    @property
    def data(self) -> memoryview:
        """The bytes, in one dimension, read-only."""
        return memoryview(self._span()).cast("B").toreadonly()

    def numpy(self) -> Any:
        """A read-only numpy array of this shape, no copy. numpy has no bfloat16 and no float8: their bits, as uint16 and
        uint8. Raises Unsupported for types that fit nowhere, ImportError without numpy."""
        name = _dtypes.for_numpy(self.dtype)
        import numpy

        array = numpy.frombuffer(memoryview(self._span()).toreadonly(), dtype=name) if self.nbytes else numpy.empty(0, name)
        array = array.reshape(self.shape)
        array.flags.writeable = False
        return array

    def torch(self) -> Any:
        """A torch tensor of this shape, no copy. Torch has no read-only tensors: writing to it ends the process where the
        memory is mapped from a peer. Raises Unsupported for types that this torch lacks, ImportError without torch."""
        name = _dtypes.for_torch(self.dtype)
        import torch

        dtype = getattr(torch, name, None)
        if dtype is None:
            raise errors.Unsupported("torch %s has no elements of type \"%s\"; `data` has the bytes" % (
                torch.__version__, name))
        if not self.nbytes:
            return torch.empty(self.shape, dtype=dtype)
        return torch.frombuffer(self._span(), dtype=dtype).reshape(self.shape)

    def tobytes(self) -> bytes:
        """A copy."""
        return bytes(self.data)

    def __repr__(self) -> str:
        return "<convoy tensor \"%s\": %s %s>" % (self.name, self.dtype, list(self.shape))


Field = Any  # a Tensor, or a list of Tensor and None; the caller knows which


def fields(holder: "Holding", payload: Payload) -> Dict[str, Field]:
    """Tensors by name; lists with None for their holes."""
    found: Dict[str, Field] = {}
    for row in payload.rows:
        if row.index is None:
            found[row.name] = Tensor(holder, row)
    lists: Dict[str, List[Optional[Tensor]]] = {name: [None] * length for name, length in payload.lists}
    for row in payload.rows:
        if row.index is not None:
            items = lists.setdefault(row.name, [])
            items += [None] * (row.index + 1 - len(items))
            items[row.index] = Tensor(holder, row)
    found.update(lists)
    return found


def _text(address: Any, length: int) -> str:
    return ctypes.string_at(address, length).decode("utf-8") if address else ""


def _row(view: _abi.TensorView) -> Row:
    shape = tuple((ctypes.c_uint64 * view.rank).from_address(view.shape)) if view.rank else ()
    return Row(_text(view.name, view.name_length), _text(view.dtype, view.dtype_length), shape, view.data or 0, view.bytes,
               view.offset, view.list_index if view.flags & _abi.TENSOR_LISTED else None)


def read(call: Callable[..., int], value: int) -> Payload:
    """Asks for the payload of a transfer: once for its size, then for all of it. Raises BadState, Closed."""
    payload = _abi.Payload(struct_size=sizeof(_abi.Payload), tensor_stride=sizeof(_abi.TensorView),
                           list_stride=sizeof(_abi.TensorListEntry))
    error = _abi.Error(struct_size=sizeof(_abi.Error))
    views: Any = ()
    lists: Any = ()
    for _ in range(2):
        status = call(value, byref(payload), byref(error))
        if status != _abi.OK:
            raise errors.make(status, error)
        if payload.tensor_count <= len(views) and payload.list_count <= len(lists):
            break
        views = (_abi.TensorView * max(1, payload.tensor_count))()
        lists = (_abi.TensorListEntry * max(1, payload.list_count))()
        payload.tensors, payload.tensor_capacity = addressof(views), len(views)
        payload.lists, payload.list_capacity = addressof(lists), len(lists)
    return Payload(
        tuple(_row(view) for view in views[: payload.tensor_count]),
        tuple((_text(entry.name, entry.name_length), entry.length) for entry in lists[: payload.list_count]),
        _text(payload.request, payload.request_length), payload.attempt, _text(payload.session, payload.session_length),
        _text(payload.scalars, payload.scalars_length) if payload.scalars else None, payload.payload_bytes,
        payload.priority)
