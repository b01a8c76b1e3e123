# SPDX-License-Identifier: Apache-2.0
"""What an engine says about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from convoy import _abi

_STATES = ("unknown", "open", "closing", "closed")


@dataclass(frozen=True)
class EngineInfo:
    """One look at an engine."""

    state: str  # open, closing or closed
    peers: int
    transfers: int  # not released
    completion_fd: int  # -1 = not asked for
    incarnation: int
    pool_address: int  # where offsets count from
    pool_bytes: int
    pool_generation: int  # from 1; each resize makes the next
    session: str
    # Sends; all 0 of a plugin before transfer 1.1.
    admitted: int = 0  # under way
    waiting: int = 0  # could go, and wait for room
    admitted_bytes: int = 0  # their payload
    waiting_bytes: int = 0
    overloaded: int = 0  # refused with Overloaded since the engine was opened

    @classmethod
    def from_struct(cls, info: _abi.EngineInfo) -> "EngineInfo":
        """What the plugin wrote."""
        state = _STATES[info.state] if info.state < len(_STATES) else str(info.state)
        return cls(state, info.peer_count, info.transfer_count, info.completion_fd, info.incarnation, info.pool_memory or 0,
                   info.pool_bytes, info.pool_generation, info.session.decode("ascii", "replace"), info.admitted_count,
                   info.waiting_count, info.admitted_bytes, info.waiting_bytes, info.overloaded_count)


@dataclass(frozen=True)
class PoolFigures:
    """The pool in bytes, but for counts and fragmentation."""

    capacity: int
    block: int  # the smallest
    asked: int  # by what is live
    taken: int  # asked, rounded up to blocks of a power of two
    free: int
    largest_free: int
    quarantined: int  # taken by what has ended and is still referred to
    taken_count: int
    ready_count: int
    quarantined_count: int
    reader_count: int
    exhausted_count: int
    expired_count: int
    stale_count: int
    fragmentation: float  # 1 - largest_free / free
    old_generations: int
    old_bytes: int
    old_taken: int

    @classmethod
    def from_struct(cls, figures: _abi.EngineFigures) -> "PoolFigures":
        """What the plugin wrote."""
        return cls(*[getattr(figures, name) for name in cls.__dataclass_fields__])


class Completion(NamedTuple):
    """One transfer that ended: the value of its handle, how, and in which state."""

    transfer: int
    status: int
    state: str


class Answer(NamedTuple):
    """What is known of a request. state: "unknown" when nothing is. drained: that side touches no memory of it any more.
    transfer: the value of its handle, here only."""

    state: str
    attempt: int  # the latest seen
    status: int
    drained: bool
    transfer: int
