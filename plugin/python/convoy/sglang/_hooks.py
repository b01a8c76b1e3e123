# SPDX-License-Identifier: Apache-2.0
"""Which hooks there are, and the decision what to do about each in the host that is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from convoy.sglang import _code, _copies, _gather, _poll, _transfer

AROUND, REPLACE = "AROUND", "REPLACE"
APPLY, LEAVE, WARN = "apply", "leave", "warn"  # WARN leaves as well, for a reason that an operator should hear
_OFF = ("0", "off", "false", "no")


@dataclass(frozen=True)
class Shape:
    """Targets that are hooked together, or not at all."""

    targets: Tuple[str, ...]
    check: Callable[[Mapping[str, Any]], None]  # {target: object}; raises Unknown
    make: Callable[[Mapping[str, Any]], Dict[str, Any]]  # {target: hook}
    copies: bool = False  # runs copies of the host's functions


@dataclass(frozen=True)
class Piece:
    """One piece of the host. shapes: by release; the first whose targets all exist is the one."""

    name: str
    kind: str
    shapes: Tuple[Shape, ...]

    @property
    def variable(self) -> str:
        """The environment variable that switches it."""
        return "CONVOY_HOOK_" + self.name.upper()


class Decision(NamedTuple):
    """What is done about one target. action: APPLY, LEAVE or WARN."""

    hook: str
    target: str
    action: str
    reason: str

    def __str__(self) -> str:
        verb = "applied" if self.action == APPLY else "not applied"
        return "hook %s on %s: %s (%s)" % (self.hook, self.target, verb, self.reason)


class Chosen(NamedTuple):
    """A piece with its decisions; shape and found are set when it is applied."""

    piece: Piece
    decisions: Tuple[Decision, ...]
    shape: Optional[Shape] = None
    found: Mapping[str, Any] = {}


SERVER: Tuple[Piece, ...] = (
    Piece("poll", AROUND, (
        Shape((_poll.HELPER,), _poll.check_helper, _poll.helper_hooks),
        Shape((_poll.PLAIN, _poll.TWO_LEVEL, _poll.STAGED), _poll.check_callers, _poll.caller_hooks, copies=True),
    )),
    Piece("gather", AROUND, tuple(Shape((t,), _gather.check, _gather.hooks, copies=True) for t in _gather.TARGETS)),
)
DIFFUSION: Tuple[Piece, ...] = (
    Piece("transfer", AROUND, (Shape((_transfer.ENGINE,), _transfer.check_engine, _transfer.engine_hooks),)),
    Piece("transfer_manager", REPLACE, (
        Shape((_transfer.BUFFER, _transfer.MANAGER), _transfer.check_classes, _transfer.class_hooks),)),
)

Find = Callable[[str], Any]  # a dotted name -> the object; raises LookupError with the reason: absent


def switched_off(piece: Piece, environment: Mapping[str, str]) -> str:
    """Which variable switches the piece off; empty = none."""
    for variable in ("CONVOY_HOOKS", piece.variable):
        if environment.get(variable, "1").strip().lower() in _OFF:
            return variable
    return ""


def _look(shape: Shape, find: Find) -> Dict[str, Any]:
    return {target: find(target) for target in shape.targets}


def _follow(found: Mapping[str, Any]) -> None:
    """Raises Unknown: a target lies under wrappers (a cache, a replacement) that another function cannot be put under."""
    for value in found.values():
        try:
            _copies.check_chain(value, _code.innermost(value))
        except _copies.CannotRebind as reason:
            raise _code.Unknown("expected wrappers that can be followed, found: %s" % reason) from None


def choose(piece: Piece, environment: Mapping[str, str], find: Find) -> Chosen:
    """The decision about one piece. Changes nothing; finding a target imports its module."""
    def all_of(targets: Sequence[str], action: str, reason: str) -> Tuple[Decision, ...]:
        return tuple(Decision(piece.name, target, action, reason) for target in targets)

    variable = switched_off(piece, environment)
    if variable:
        return Chosen(piece, all_of(piece.shapes[0].targets, LEAVE, "%s=0" % variable))
    absent: List[str] = []
    for shape in piece.shapes:
        try:
            found = _look(shape, find)
        except LookupError as reason:
            absent.append(str(reason.args[0]))
            continue
        try:
            shape.check(found)
            if piece.kind == AROUND:
                _follow(found)
            if shape.copies and not _copies.works():
                raise _code.Unknown("expected an interpreter that asks a dict's subclass for globals")
        except _code.Unknown as reason:
            return Chosen(piece, all_of(shape.targets, WARN, "unknown shape: %s; the host's own code stays" % reason))
        return Chosen(piece, all_of(shape.targets, APPLY, piece.kind), shape, found)
    return Chosen(piece, all_of(piece.shapes[0].targets, LEAVE, "; ".join(dict.fromkeys(absent))))


def plan(pieces: Sequence[Piece], environment: Mapping[str, str], find: Find) -> List[Chosen]:
    """The decisions about all pieces. A buffer and a manager without the engine they are for stay the host's."""
    chosen = [choose(piece, environment, find) for piece in pieces]
    applied = {one.piece.name for one in chosen if one.shape is not None}
    for place, one in enumerate(chosen):
        if one.piece.name == "transfer_manager" and one.shape is not None and "transfer" not in applied:
            reason = "works with hook transfer only"
            chosen[place] = Chosen(one.piece, tuple(d._replace(action=LEAVE, reason=reason) for d in one.decisions))
    return chosen
