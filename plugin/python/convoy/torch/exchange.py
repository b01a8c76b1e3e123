# SPDX-License-Identifier: Apache-2.0
"""Agreement over a process group: every exchange is one all-gather of frames, all of one size.

A frame has data, or says "done", or says "failed" and why. As all frames are of one size, a rank that has failed can tell
the others whatever they are doing at that moment, and all of them stop at the same exchange: none is left waiting in an
all-gather that nobody else makes.
"""

from __future__ import annotations

import ctypes
import struct
import time
from typing import Any, List, NamedTuple, Optional, Tuple

import torch
import torch.distributed as dist

from convoy import errors
from convoy.torch._ranks import device_of, ranks_of, resolve

_HEADER = struct.Struct("<4sIiI")  # magic, kind, status, bytes of the payload
_MAGIC = b"cvt1"
_DATA, _DONE, _FAILED = 1, 2, 3
_PAYLOAD = 8192  # what the plugin gathers at once mostly fits; more goes in pieces
_FRAME = _HEADER.size + _PAYLOAD
_TEXT = 1024
_NAMED = 8  # failed ranks that the exception's text has room for
_SLEEP_FIRST_S, _SLEEP_MOST_S = 50e-6, 10e-3


class _Frame(NamedTuple):
    kind: int
    status: int
    payload: bytes


def _all_gather(process_group: Any, device: torch.device, members: int, mine: bytes) -> List[bytes]:
    """One all-gather of torch. It is waited for in short sleeps, so that Ctrl-C works."""
    tensor = torch.frombuffer(bytearray(mine), dtype=torch.uint8).to(device)
    parts = [torch.empty_like(tensor) for _ in range(members)]
    all_gather: Any = dist.all_gather  # without types in older releases
    work = all_gather(parts, tensor, group=process_group, async_op=True)
    sleep_s = _SLEEP_FIRST_S
    while not work.is_completed():
        time.sleep(sleep_s)
        sleep_s = min(2 * sleep_s, _SLEEP_MOST_S)
    work.wait()
    received = [part.cpu() for part in parts]
    return [ctypes.string_at(part.data_ptr(), len(mine)) for part in received]


def _describe(failure: BaseException) -> Tuple[int, bytes]:
    """Status and text of a failure for the others."""
    status, text = errors.InitFailed.STATUS, "%s: %s" % (type(failure).__name__, failure)
    if isinstance(failure, errors.ConvoyError):
        status, text = failure.status or status, str(failure)
    return status, text.encode("utf-8", "replace")[:_TEXT]


class Exchange:
    """The exchanges that make one agreement. After a failure, of any rank, every further call raises it again."""

    def __init__(self, process_group: Any) -> None:
        self._group = process_group
        self.ranks = ranks_of(process_group)
        self.index = dist.get_rank(process_group)
        self._device = device_of(process_group)
        self._ended: Optional[BaseException] = None

    def gather(self, mine: bytes) -> List[bytes]:
        """Gathers equally many bytes from each rank, in the order of the ranks."""
        parts = [bytearray() for _ in self.ranks]
        for start in range(0, max(1, len(mine)), _PAYLOAD):
            frames = self._trade(_Frame(_DATA, 0, mine[start : start + _PAYLOAD]), None)
            for part, frame in zip(parts, frames):
                part += frame.payload
        return [bytes(part) for part in parts]

    def finish(self, failure: Optional[BaseException]) -> None:
        """The last exchange: returns when no rank has failed. Else all raise the class of the first rank that has."""
        if self._ended is not None:
            raise self._ended
        if failure is None:
            self._trade(_Frame(_DONE, 0, b""), None)
        else:
            status, text = _describe(failure)
            self._trade(_Frame(_FAILED, status, text), failure)

    def _trade(self, mine: _Frame, own: Optional[BaseException]) -> List[_Frame]:
        if self._ended is not None:
            raise self._ended
        packed = _HEADER.pack(_MAGIC, mine.kind, mine.status, len(mine.payload)) + mine.payload
        try:
            parts = _all_gather(self._group, self._device, len(self.ranks), packed.ljust(_FRAME, b"\0"))
        except Exception as reason:
            self._ended = errors.Unreachable("the all-gather of the process group of ranks %s failed: %s" % (
                self.ranks, reason))
            raise self._ended from (own or reason)
        frames = [self._unpack(rank, part) for rank, part in zip(self.ranks, parts)]
        self._ended = self._verdict(frames)
        if own is not None and not isinstance(own, Exception):
            raise own  # Ctrl-C stays what it is where it was pressed
        if self._ended is not None:
            raise self._ended from own
        return frames

    def _unpack(self, rank: int, part: bytes) -> _Frame:
        magic, kind, status, length = _HEADER.unpack_from(part)
        if magic != _MAGIC or length > _PAYLOAD:
            return _Frame(_FAILED, errors.Diverged.STATUS, b"is in another all-gather of the process group")
        return _Frame(kind, status, part[_HEADER.size : _HEADER.size + length])

    def _verdict(self, frames: List[_Frame]) -> Optional[BaseException]:
        failed = [(rank, frame) for rank, frame in zip(self.ranks, frames) if frame.kind == _FAILED]
        if failed:
            said = ["rank %d: %s" % (rank, frame.payload.decode("utf-8", "replace")) for rank, frame in failed[:_NAMED]]
            said += ["and %d more" % (len(failed) - _NAMED)] if len(failed) > _NAMED else []
            rank, first = failed[0]
            return errors.class_of(first.status)("; ".join(said), status=first.status, rank=rank)
        others = [rank for rank, frame in zip(self.ranks, frames) if frame.kind != frames[0].kind]
        if others:
            return errors.Diverged("rank %d is at another step of the agreement than rank %d" % (others[0], self.ranks[0]),
                                   rank=others[0])
        return None


def agree(process_group: Any, failure: Optional[BaseException]) -> None:
    """Collective: returns on all ranks when no rank has a failure; else raises on all of them.

    What is raised is of the class of the first failed rank's exception (of another package's: InitFailed), its ``rank`` is
    that rank, and its text names every rank that failed with its reason. On a failed rank its own failure is the
    ``__cause__``. KeyboardInterrupt and SystemExit are raised as they are where they came up. The others may be inside
    ``open_group`` meanwhile. process_group: None = the world.
    """
    Exchange(resolve(process_group)).finish(failure)
