# SPDX-License-Identifier: Apache-2.0
"""Receive slots, or why there are none."""

from __future__ import annotations

from ctypes import addressof, byref, c_uint64, sizeof
from typing import TYPE_CHECKING, List, Optional, Sequence

from convoy import _abi, errors
from convoy._buffers import U32_MAX, U64_MAX, Text, integer, nanoseconds
from convoy._transfers import Slot

if TYPE_CHECKING:
    from convoy.transfer import Engine

_PREALLOC = {"first": _abi.PREALLOC_FIRST, "never": _abi.PREALLOC_NEVER, "only": _abi.PREALLOC_ONLY}


def sizes_of(sizes: Sequence[int]) -> List[int]:
    """Sizes of slots. Raises InvalidArgument."""
    try:
        return [integer(size, "sizes[%d]" % index, 0, U64_MAX) for index, size in enumerate(sizes)]
    except TypeError:
        raise errors.InvalidArgument("sizes is %r; a sequence of integers is needed" % (sizes,)) from None


def reserve(engine: "Engine", request: str, sizes: Sequence[int], attempt: int, prealloc: str, slot_id: int,
            lease: Optional[float]) -> List[Slot]:
    """See ``Engine.reserve``."""
    if not isinstance(prealloc, str) or prealloc not in _PREALLOC:
        raise errors.InvalidArgument("prealloc is %r; allowed: %s" % (prealloc, ", ".join(_PREALLOC)))
    sizes = sizes_of(sizes)
    name, count = Text(request), max(1, len(sizes))
    array, rows = (c_uint64 * count)(*sizes), (_abi.ReservedSlot * count)()
    question = _abi.Reserve(struct_size=sizeof(_abi.Reserve), attempt=integer(attempt, "attempt", 0, U32_MAX), request=name.address,
                            request_length=name.length, bytes=addressof(array), count=len(sizes),
                            prealloc=_PREALLOC[prealloc], slot_id=integer(slot_id, "slot_id", 0, U32_MAX), lease_ns=nanoseconds(lease, "lease"))
    answer = _abi.Reservation(struct_size=sizeof(_abi.Reservation), slots=addressof(rows),
                              slot_stride=sizeof(_abi.ReservedSlot), slot_capacity=count)
    error = _abi.Error(struct_size=sizeof(_abi.Error))
    status = engine._use("reserve", byref(question), byref(answer), byref(error))
    if status != _abi.OK:
        failure = errors.make(status, error)
        setattr(failure, "retry_after_ms", answer.retry_after_ms)
        raise failure
    return [Slot(engine, row, request, size) for row, size in zip(rows[: answer.slot_count], sizes)]
