# SPDX-License-Identifier: Apache-2.0
"""What each member of a group was seen to do: the report that comes with a failed round."""

from __future__ import annotations

from ctypes import addressof, sizeof
from dataclasses import dataclass
from typing import Any, List, Optional, Tuple

from convoy import _abi

CONDITIONS = ("heard", "missing", "lost", "closed", "diverged", "error", "unknown", "abandoned")
NOTICED = ("none", "process", "link", "peer", "close")
FIELDS = ("none", "operation", "wire", "epoch", "counts", "digest", "schema", "policy", "tag")
OPERATIONS = ("none", "poll", "poll keyed", "sync")
NEVER = 2**64 - 1  # age of a contribution that was never seen


def _name(names: Tuple[str, ...], number: int) -> str:
    return names[number] if number < len(names) else str(number)


@dataclass(frozen=True)
class MemberReport:
    """One member as this one saw it. Times in seconds; ``age`` is None when nothing was ever heard."""

    rank: int
    index: int
    host: int
    condition: str  # one of CONDITIONS
    noticed_by: str  # how a loss was noticed, one of NOTICED
    behind: int  # member id of a silent leader, or -1
    reason: int  # of an error row, or the status a member sealed with
    operation: str  # of its last contribution, one of OPERATIONS
    round: int  # last round it contributed to
    tag: int
    age: Optional[float]
    epoch: int
    lists: int  # number of lists (poll) in its contribution
    entries: int  # entries of all lists; columns of a row
    digest: int
    schema: int
    policy: int

    @classmethod
    def from_struct(cls, member: _abi.MemberReport) -> "MemberReport":
        """From what the plugin wrote."""
        return cls(
            member.rank, member.index, member.host, _name(CONDITIONS, member.condition),
            _name(NOTICED, member.noticed_by), member.behind, member.reason, _name(OPERATIONS, member.operation),
            member.round, member.tag, None if member.age_ns == NEVER else member.age_ns / 1e9, member.epoch,
            member.counts & 0xFF, member.counts >> 8, member.digest, member.schema, member.policy,
        )

    def __str__(self) -> str:
        text = "rank %d: %s" % (self.rank, self.condition)
        if self.behind >= 0:
            text += ", behind rank %d" % self.behind
        if self.noticed_by != "none":
            text += ", noticed by %s" % self.noticed_by
        if self.reason:
            text += ", reason %d" % self.reason
        if self.age is None:
            return text + ", never heard"
        return text + ", last round %d (%s, tag %d) %.3f s ago" % (self.round, self.operation, self.tag, self.age)


@dataclass(frozen=True)
class Report:
    """What all members did in one round: one entry per member that did not simply contribute, all when they differ."""

    own_rank: int
    round: int
    elapsed: float  # seconds since the operation was started
    field: str  # the first field in which members differ, one of FIELDS
    operation: int  # the operation's value
    members: Tuple[MemberReport, ...]
    left_out: int = 0  # members beyond the room there was

    @property
    def ranks(self) -> Tuple[int, ...]:
        """The ranks that the report is about."""
        return tuple(member.rank for member in self.members)

    def __str__(self) -> str:
        head = "round %d after %.3f s, seen by rank %d" % (self.round, self.elapsed, self.own_rank)
        return "\n  ".join([head] + [str(member) for member in self.members])


class ReportBuffer:
    """Memory for a report, made once per group: room for every member."""

    def __init__(self, members: int) -> None:
        self._members: Any = (_abi.MemberReport * members)()
        self.struct = _abi.Report(struct_size=sizeof(_abi.Report))
        self.struct.member_stride = sizeof(_abi.MemberReport)
        self.struct.member_capacity = members
        self.struct.members = addressof(self._members)

    def clear(self) -> None:
        """Makes read() give None until a call writes a report."""
        self.struct.written_bytes = 0

    def read(self) -> Optional[Report]:
        """The report that the last call wrote; None when it wrote none."""
        struct = self.struct
        if struct.written_bytes == 0:
            return None
        kept = min(struct.member_count, len(self._members))
        members: List[MemberReport] = [MemberReport.from_struct(self._members[i]) for i in range(kept)]
        return Report(struct.own_rank, struct.round, struct.elapsed_ns / 1e9, _name(FIELDS, struct.field),
                      struct.operation, tuple(members), struct.member_count - kept)

