# SPDX-License-Identifier: Apache-2.0
"""Exceptions, one class per status, one base class per band of statuses (who must act).

Every exception carries ``status`` (number), ``rank`` (member id the failure is about, or -1), ``round``, ``errno``,
``ucx_status`` and, where members of a group are concerned, ``report``. Its text is the plugin's own sentence. A status
that this package does not know is raised as the class of its band, so a newer plugin is understood as far as it can be.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple, Type

from convoy import _abi
from convoy.reports import Report


class ConvoyError(Exception):
    """Base of everything that convoy raises."""

    STATUS = 0

    def __init__(
        self,
        text: str,
        status: int = 0,
        rank: int = -1,
        round: int = 0,
        errno: int = 0,
        ucx_status: int = 0,
        report: Optional[Report] = None,
    ) -> None:
        super().__init__(text)
        self.text = text
        self.status = status or self.STATUS
        self.rank = rank
        self.round = round
        self.errno = errno
        self.ucx_status = ucx_status
        self.report = report

    def __reduce__(self) -> Tuple[Any, ...]:
        """Copies and pickles keep every attribute. OSError, a base of some, has an errno of its own and would lose it."""
        return _again, (type(self), self.args, dict(vars(self), errno=self.errno))


def _again(cls: Type[ConvoyError], arguments: Tuple[Any, ...], attributes: Dict[str, Any]) -> ConvoyError:
    failure = cls(*arguments)
    for name, value in attributes.items():
        setattr(failure, name, value)
    return failure


class CallerError(ConvoyError):
    """-1xx: the caller must act."""


class ResourceError(ConvoyError):
    """-2xx: a resource is missing."""


class PeerError(ConvoyError):
    """-3xx: a peer, or the link to it."""


class ProtocolError(ConvoyError):
    """-4xx: the protocol; members do not agree."""


class LoadError(ConvoyError):
    """-5xx: loading and versions."""


class InternalError(ConvoyError):
    """-9xx: a mistake in convoy; report it with the log and the dump."""


class InvalidArgument(CallerError, ValueError):
    """The text has parameter, value and allowed range. Nothing was sent or written."""

    STATUS = _abi.INVALID_ARGUMENT


class BadState(CallerError):
    """The call is not allowed in the object's state."""

    STATUS = _abi.BAD_STATE


class Closed(CallerError):
    """The object was closed, or the operation has gone."""

    STATUS = _abi.CLOSED


class Forked(CallerError):
    """The object was inherited through fork(); only a fresh context works in this process."""

    STATUS = _abi.FORKED


class Moved(CallerError):
    """Another build has the object. Hosts do not see it, but where a swap could neither go on nor be undone: swap again."""

    STATUS = _abi.MOVED


class BufferTooSmall(CallerError):
    """The text says how much is needed."""

    STATUS = _abi.BUFFER_TOO_SMALL


class Unsupported(CallerError):
    """This build, or this group, does not offer it."""

    STATUS = _abi.UNSUPPORTED


class NoMemory(ResourceError, MemoryError):
    """The operating system gives no more memory; the text says for what and how much."""

    STATUS = _abi.NO_MEMORY


class PoolExhausted(ResourceError):
    """The pool has no room now; the text has the figures, ``retry_after_ms`` says when to ask again (0 = unknown)."""

    STATUS = _abi.POOL_EXHAUSTED
    retry_after_ms = 0


class Limit(ResourceError):
    """A stated bound was passed; the text has value, bound, and how to raise it."""

    STATUS = _abi.LIMIT


class Busy(ResourceError):
    """An operation is open, or another thread is inside a call: finish or abandon it first."""

    STATUS = _abi.BUSY


class SystemFailure(ResourceError):
    """The operating system, or a device's driver, refused; ``errno`` says why."""

    STATUS = _abi.SYSTEM


class Overloaded(ResourceError):
    """More sends are waiting already than ``set_admission`` allows; the text has the figures. Ask again later, or elsewhere."""

    STATUS = _abi.OVERLOADED


class TimedOut(PeerError, TimeoutError):
    """No result yet. The operation stays open: wait again, or abandon it. ``report`` names the ranks not heard."""

    STATUS = _abi.TIMED_OUT


class Canceled(PeerError):
    """``cancel`` was called; the operation stays open, as after TimedOut."""

    STATUS = _abi.CANCELED


class PeerLost(PeerError):
    """A member died, closed, or its link is gone; ``report`` says which and how that was noticed."""

    STATUS = _abi.PEER_LOST


class PeerFailed(PeerError):
    """A member contributed an error row; ``report`` has its reason. The group goes on."""

    STATUS = _abi.PEER_ERROR


class Broken(PeerError):
    """The round was abandoned by a member; reopen the group."""

    STATUS = _abi.BROKEN


class Unreachable(PeerError):
    """Links are gone without a proven death, and this side is no majority; or no interface leads there."""

    STATUS = _abi.UNREACHABLE


class Truncated(PeerError):
    """A stream ended in the middle of a frame."""

    STATUS = _abi.TRUNCATED


class Diverged(ProtocolError):
    """Members disagree on what this round is; ``report`` names who and in which field. The group goes on."""

    STATUS = _abi.DIVERGED


class Malformed(ProtocolError):
    """Something that came from outside does not hold to its format; the text has the path of the field."""

    STATUS = _abi.MALFORMED


class UnknownMessage(ProtocolError):
    """A peer sent a message of a kind that this build does not know."""

    STATUS = _abi.UNKNOWN_MESSAGE


class VersionMismatch(ProtocolError):
    """No common version; the text names both ranges."""

    STATUS = _abi.VERSION_MISMATCH


class StaleEpoch(ProtocolError):
    """A member of an earlier life of the group, or another incarnation; the text names both."""

    STATUS = _abi.STALE_EPOCH


class Unauthenticated(ProtocolError):
    """The peer does not hold the same secret."""

    STATUS = _abi.UNAUTHENTICATED


class NotFound(LoadError):
    """No such file, request or slot; the text says where was looked."""

    STATUS = _abi.NOT_FOUND


class NoEntry(LoadError):
    """The file is a shared object, but no convoy plugin."""

    STATUS = _abi.NO_ENTRY


class TooOld(LoadError):
    """The plugin is older than this package can use; the text has both ranges."""

    STATUS = _abi.TOO_OLD


class TooNew(LoadError):
    """The plugin is newer than this package can use; the text has both ranges."""

    STATUS = _abi.TOO_NEW


class InitFailed(LoadError):
    """Something that is opened at run time (the plugin, UCX, a driver) would not open; the text has its words."""

    STATUS = _abi.INIT_FAILED


class DrainTimeout(LoadError, TimeoutError):
    """Close ran out of time; the object stays closing, close it again."""

    STATUS = _abi.DRAIN_TIMEOUT


class BadFile(LoadError):
    """Not a shared object of this machine, truncated or corrupt."""

    STATUS = _abi.BAD_FILE


class Invariant(InternalError):
    """Something that cannot be has happened inside convoy; the text says where."""

    STATUS = _abi.INVARIANT


_BANDS: Dict[int, Type[ConvoyError]] = {
    1: CallerError, 2: ResourceError, 3: PeerError, 4: ProtocolError, 5: LoadError, 9: InternalError,
}


BY_STATUS: Dict[int, Type[ConvoyError]] = {
    cls.STATUS: cls for band in _BANDS.values() for cls in band.__subclasses__()
}


def class_of(status: int) -> Type[ConvoyError]:
    """The class of a status; of an unknown number, the class of its band."""
    return BY_STATUS.get(status, _BANDS.get(-status // 100, ConvoyError))


def make(status: int, error: _abi.Error, report: Optional[Report] = None, is_reused: bool = False) -> ConvoyError:
    """The exception for a call that returned ``status`` and filled ``error``. is_reused: what the struct says may be of an
    earlier call, unless it is of this very status."""
    if error.status != status and (is_reused or error.status == _abi.OK):  # the call wrote none
        return class_of(status)("status %d" % status, status=status, report=report)
    text = error.text.decode("utf-8", "replace")
    return class_of(status)(text, status, error.rank, error.round, error.sys_errno, error.ucx_status, report)
