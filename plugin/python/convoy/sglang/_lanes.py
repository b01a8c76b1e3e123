# SPDX-License-Identifier: Apache-2.0
"""A lane: what one kind of collective on one process group goes through, and what happens when convoy cannot do it.

The rule that keeps ranks together: a rank goes the host's way (its own collective of torch) only in a call in which all
ranks of the group do. Opening fails on all ranks or on none, and every way in which a round ends is the same on all members,
so each rank decides alone and all decide alike. CONVOY_FALLBACK must be the same on all ranks.

  state      what happened                         CONVOY_FALLBACK=raise        =host
  unopened   all ranks opened                      convoy                       convoy
  unopened   a rank failed: the same to all        raises; unopened             this call and all later: host
  convoy     the round ended well                  its result; convoy           its result; convoy
  convoy     own input refused, nothing was sent   peers are told (PeerFailed   peers are told; this call: host
             (InvalidArgument, Limit, NoMemory)    there); raises; convoy       there too; convoy
  convoy     PeerFailed: a peer's input refused    raises; convoy               this call: host; convoy
  convoy     TimedOut for the first time          a warning names who is late; waits on for the rest of the patience
  convoy     TimedOut, Canceled: abandon, then
               complete for all                    its result; convoy           its result; convoy
               sealed: Broken for all              raises; convoy (*)           this call and all later: host
  convoy     Broken, PeerLost, Unreachable,        raises; convoy (*)           this call and all later: host
             StaleEpoch
  convoy     Diverged                              raises; convoy               raises; convoy
  convoy     anything else (Busy, Closed, ...)     raises; convoy               raises; convoy
  host       every call                            -                            host

(*) Every later call raises as well, as the group is broken. Diverged always raises: ranks bring different counts, and the
host's own collective would take the process down, or worse, would not.
"""

from __future__ import annotations

import logging
import os
import weakref
from importlib import import_module
from typing import Any, Dict, Hashable, Optional, Type

from convoy import errors
from convoy._rounds import Operation
from convoy.group import Group
from convoy.sglang import _noise, _state

logger = logging.getLogger("convoy.sglang")
HOSTS_WAY: Any = object()  # result of a run that has to be made by the host's own collective
WARN_AFTER_S = 10.0  # a rank that late is worth a line in the log
_UNSENT = (errors.InvalidArgument, errors.Limit, errors.NoMemory)
_LATE = (errors.TimedOut, errors.Canceled)
_NAMED = 16  # ranks that a text has room for
_OVER = (errors.Broken, errors.PeerLost, errors.Unreachable, errors.StaleEpoch)


def falls_back() -> bool:
    """Whether CONVOY_FALLBACK lets the host's own collectives take over. Any other value than "host" raises errors."""
    return os.environ.get("CONVOY_FALLBACK", "raise").strip().lower() == "host"


class Lane:
    """One process group and one kind of collective. Used by one thread at a time, as collectives are. It does not keep the
    process group alive; who calls ``run`` does."""

    WHAT = ""  # for the log

    def __init__(self, process_group: Any) -> None:
        self._group: Optional[Group] = None
        self._repeats = _noise.Repeats()
        self._patience: Optional[float] = None  # seconds that a round waits for who is late; None = the package's default
        # A rank that is not in the process group has nothing to agree on; torch's own answer stands.
        self._is_host = import_module("torch.distributed").get_rank(process_group) < 0
        self._process_group: Any = None if self._is_host else weakref.ref(process_group)

    def _options(self, value: Any) -> Dict[str, Any]:
        """Options of the group, from the first value that goes through."""
        return {}

    def _opened(self, group: Group) -> None:
        """The group is there; prepares what its rounds need."""

    def _round(self, group: Group, value: Any) -> Any:
        raise NotImplementedError

    def _take(self, group: Group, timeout: Optional[float]) -> Any:
        """The result of the round that was left; waits for it."""
        raise NotImplementedError

    def _error_row(self, group: Group, reason: int) -> Operation:
        """Starts the round in which this rank brings nothing; its peers get PeerFailed with the reason."""
        return group.poll_start([], error_row=reason)

    def run(self, value: Any) -> Any:
        """One collective. HOSTS_WAY: the caller makes it by the host's own; so do all other ranks. Raises ConvoyError."""
        group = self._group
        if group is None:
            group = None if self._is_host else self._open(value)
        if group is None or self._is_host:
            return HOSTS_WAY
        try:
            return self._made(group, value)
        except errors.ConvoyError as failure:
            return self._after(group, failure)

    def _made(self, group: Group, value: Any) -> Any:
        """A round. One that waits long says for whom."""
        try:
            return self._round(group, value)
        except errors.TimedOut as late:
            left = 0.0 if self._patience is None else self._patience - WARN_AFTER_S
            if left <= 0:
                raise
            logger.warning("%s: %s; it waits %.0f s more", self.WHAT, _named(late), left)
            return self._take(group, left)

    def _open(self, value: Any) -> Optional[Group]:
        process_group = self._process_group()
        self._patience = _state.patience(process_group)
        first = None if self._patience is None else min(self._patience, WARN_AFTER_S)
        try:
            self._group = _state.process().open_group(process_group, timeout=first, **self._options(value))
        except errors.ConvoyError as failure:
            if not falls_back():
                raise
            self._leave("no group for %s" % self.WHAT, failure)
            return None
        self._opened(self._group)
        logger.info("%s of ranks %s go through group \"%s\"", self.WHAT, self._group.members, self._group.name)
        return self._group

    def _after(self, group: Group, failure: errors.ConvoyError) -> Any:
        """The state table, from a failure of this rank on."""
        if isinstance(failure, _UNSENT):
            failure = self._tell(group, failure)
        if isinstance(failure, _LATE):
            try:
                return self._abandon(group, failure)
            except errors.ConvoyError as verdict:
                failure = verdict
        failure = _named(failure)
        if not falls_back():
            raise failure
        if isinstance(failure, errors.PeerFailed) or isinstance(failure, _UNSENT):
            count = self._repeats.count((type(failure), failure.rank))
            if count:
                logger.warning("%s, group \"%s\": the host's own collective makes this call: %s%s", self.WHAT, group.name,
                               failure, _noise.times(count))
            return HOSTS_WAY
        if isinstance(failure, _OVER):
            self._leave("group \"%s\"" % group.name, failure)
            return HOSTS_WAY
        raise failure

    def _tell(self, group: Group, failure: errors.ConvoyError) -> errors.ConvoyError:
        """Tells the peers. Gives the failure back, or what the round has ended with instead."""
        try:
            operation = self._error_row(group, failure.status)
            try:
                operation.wait(self._patience)
            except _LATE as late:  # not all peers have come, and the round must not stay open
                if not operation.abandon():
                    return _broken(group, late)
                operation.wait()
        except errors.PeerFailed:
            pass
        except errors.ConvoyError as other:
            return other
        return failure

    def _abandon(self, group: Group, failure: errors.ConvoyError) -> Any:
        """After a time-out: the result, when the round is complete after all. Raises what it ended with for all."""
        if group.abandon():
            return self._take(group, None)
        raise _broken(group, failure) from failure

    def _leave(self, what: str, failure: errors.ConvoyError) -> None:
        self._is_host = True
        logger.warning("%s: %s; from now on all ranks use the host's own collective for its %s", what, failure, self.WHAT)


def _named(failure: errors.ConvoyError) -> errors.ConvoyError:
    """The same exception, its text naming the ranks of its report: what each brought when they differ, else its state."""
    if failure.report is None or not failure.report.members:
        return failure
    differs = isinstance(failure, errors.Diverged)
    said = ["rank %d %s" % (m.rank, "brought %d" % m.entries if differs else m.condition) for m in failure.report.members]
    shown, more = ", ".join(said[:_NAMED]), len(said) - _NAMED
    failure.text = "%s (%s%s)" % (failure.text, shown, ", and %d more" % more if more > 0 else "")
    failure.args = (failure.text,)
    return failure


def _broken(group: Group, late: errors.ConvoyError) -> errors.ConvoyError:
    text = "group \"%s\": rank %d gave the round up: %s" % (group.name, group.rank, late)
    return errors.Broken(text, rank=late.rank, round=late.round, report=late.report)


def lane(kind: Type[Lane], process_group: Any, key: Hashable = None) -> Any:
    """The lane of this kind on this process group, made at first use. process_group: None = the world."""
    if process_group is None:
        process_group = import_module("torch.distributed").group.WORLD
    process = _state.process()
    try:
        of_group = process.lanes.get(process_group)
    except TypeError:  # what torch gives a rank that is not in a group cannot be held weakly, and nothing is to be kept
        return kind(process_group)
    found = None if of_group is None else of_group.get((kind, key))
    if found is None:
        made = kind(process_group)
        with process.lock:
            found = process.lanes.setdefault(process_group, {}).setdefault((kind, key), made)
    return found
