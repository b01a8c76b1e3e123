# SPDX-License-Identifier: Apache-2.0
"""The host's own all-gather, as the plugin calls it while a group opens."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Optional, Sequence

from convoy import _abi, _callbacks, errors

AllGather = Callable[[bytes], Sequence[bytes]]


class AllGatherCallback:
    """The host's all-gather as the plugin calls it. What it raises is kept and raised by the open."""

    def __init__(self, gather: AllGather, members: int) -> None:
        self.failure: Optional[BaseException] = None
        self._gather = gather
        self._members = members
        self.function = _abi.AllgatherFn(self._call)

    def _call(self, user: Any, mine: Any, size: int, all_out: Any) -> int:
        try:
            own = ctypes.string_at(mine, size)
            given = _callbacks.run(lambda: self._gather(own))
            try:
                parts = [bytes(memoryview(part)) for part in given]
            except TypeError as reason:
                raise errors.InvalidArgument("allgather must give a list of bytes: %s" % reason) from None
            if len(parts) != self._members or any(len(part) != size for part in parts):
                raise errors.InvalidArgument("allgather gave %d parts of %s bytes; %d of %d are needed" % (
                    len(parts), sorted({len(part) for part in parts}), self._members, size))
            ctypes.memmove(all_out, b"".join(parts), size * self._members)
        except BaseException as failure:
            self.failure = failure
            return -1
        return 0
