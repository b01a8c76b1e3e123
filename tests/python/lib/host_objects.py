# SPDX-License-Identifier: Apache-2.0
"""The objects that a host passes to its poll reduce. Each call made to one of them is written to a common trail."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from types import SimpleNamespace
from typing import Any, Sequence


class State(IntEnum):
    FAILED = 0
    BOOTSTRAPPING = 1
    WAITING = 2
    TRANSFERRING = 3
    SUCCESS = 4


class Landing:
    """How the staging of one request goes on."""

    NONE = "none"  # the request needs no staging
    PENDING = "pending"  # advancing does not finish it
    FINISHES = "finishes"  # advancing finishes it
    DONE = "done"  # was done before
    LATE = "late"  # finishes while the request is polled


@dataclass(frozen=True)
class Entry:
    """One request on one rank. stamp: first element of the metadata row; host: its bootstrap host."""

    state: int
    landing: str = Landing.NONE
    room: int = 1
    stamp: int = 1
    host: str | None = "10.0.0.1"
    is_enum: bool = False  # the poller gives a State instead of an int

    @property
    def is_staged(self) -> bool:
        return self.landing != Landing.NONE


@dataclass
class Trail:
    calls: list[str] = field(default_factory=list)
    done: set[int] = field(default_factory=set)  # places whose staging is done


class Receiver:
    """A poller: the receiver (or sender) of one request."""

    def __init__(self, place: int, entry: Entry, trail: Trail) -> None:
        self._place, self._entry, self._trail = place, entry, trail
        self.require_staging = entry.is_staged

    def poll(self) -> int:
        self._trail.calls.append(f"poll {self._place}")
        if self._entry.landing == Landing.LATE:
            self._trail.done.add(self._place)
        return State(self._entry.state) if self._entry.is_enum else self._entry.state


class StagingHandler:
    def __init__(self, entries: Sequence[Entry], trail: Trail) -> None:
        self._entries, self._trail = entries, trail
        trail.done.update(place for place, entry in enumerate(entries) if entry.landing == Landing.DONE)

    def is_done(self, decode_req: Any) -> bool:
        self._trail.calls.append(f"is_done {decode_req.place}")
        return decode_req.place in self._trail.done

    def advance_scatter(self, decode_req: Any) -> None:
        self._trail.calls.append(f"advance {decode_req.place}")
        if self._entries[decode_req.place].landing == Landing.FINISHES:
            self._trail.done.add(decode_req.place)


@dataclass
class HostObjects:
    """Fresh objects for one call; `trail` has what was called, in order."""

    trail: Trail
    pollers: list[Receiver]
    decode_reqs: list[Any]
    staging_handler: StagingHandler
    metadata_buffers: Any
    server_args: Any

    def gate(self) -> tuple[Any, Any, Any]:
        return self.decode_reqs, self.metadata_buffers, self.server_args


_ROOM_COLUMNS = 8


def _metadata(entries: Sequence[Entry], rows: Sequence[int]) -> Any:
    import torch

    table = torch.zeros((len(rows) + 1, _ROOM_COLUMNS), dtype=torch.int64)
    for entry, row in zip(entries, rows):
        table[row, 0] = entry.stamp
        table[row, 1:] = -1  # only the first element counts
    return SimpleNamespace(bootstrap_room=table)


def build(entries: Sequence[Entry], backend: str) -> HostObjects:
    """backend: the host's transfer backend, "fake" or another name. Request i has metadata row len - 1 - i."""
    trail = Trail()
    pollers = [Receiver(place, entry, trail) for place, entry in enumerate(entries)]
    rows = [len(entries) - 1 - place for place in range(len(entries))]
    decode_reqs = [
        SimpleNamespace(
            place=place,
            kv_receiver=pollers[place],
            req=SimpleNamespace(bootstrap_host=entry.host, bootstrap_room=entry.room),
            metadata_buffer_index=rows[place],
        )
        for place, entry in enumerate(entries)
    ]
    handler = StagingHandler(entries, trail)
    args = SimpleNamespace(disaggregation_transfer_backend=backend)
    return HostObjects(trail, pollers, decode_reqs, handler, _metadata(entries, rows), args)
