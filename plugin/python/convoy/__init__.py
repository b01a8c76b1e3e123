# SPDX-License-Identifier: Apache-2.0
"""convoy for Python: poll reduce, DP sync gather and staged transfer, by ctypes.

    import convoy

    with convoy.load() as plugin, plugin.context(secret=b"ours") as context:
        with context.group("tp", members=2, rank=rank, rendezvous="tcp://127.0.0.1:29471") as group:
            states = group.reduce([4, 3])

Importing this loads nothing; ``load`` does. Statuses of the plugin are exceptions (``convoy.errors``), one base class per
band, with rank, round and report. While a call waits, other Python threads run; waits go in slices of 0.1 s, so that
Ctrl-C works. ``convoy.torch`` and ``convoy.sglang`` are imported by whoever uses them.
"""

from __future__ import annotations

from convoy import poll, sync, transfer
from convoy.context import Context
from convoy.errors import (
    BadFile, BadState, Broken, BufferTooSmall, Busy, CallerError, Canceled, Closed, ConvoyError, Diverged, DrainTimeout,
    Forked, InitFailed, InternalError, InvalidArgument, Invariant, Limit, LoadError, Malformed, Moved, NoEntry, NoMemory,
    NotFound, Overloaded, PeerError, PeerFailed, PeerLost, PoolExhausted, ProtocolError, ResourceError, StaleEpoch,
    SystemFailure, TimedOut, TooNew, TooOld, Truncated, Unauthenticated, UnknownMessage, Unreachable, Unsupported, VersionMismatch,
)
from convoy.group import Group, GroupInfo, Reopened
from convoy.library import Plugin, PluginInfo, load
from convoy.poll import PollFaults, PollList, PollResult, Stamp, reduce_two_level
from convoy.reports import MemberReport, Report
from convoy.sync import Column, GatherResult
from convoy.transfer import Engine
from convoy._swap import Swapped
from convoy._version import VERSION

__version__ = VERSION

__all__ = [
    "BadFile", "BadState", "Broken", "BufferTooSmall", "Busy", "CallerError", "Canceled", "Closed", "Column", "Context",
    "ConvoyError", "Diverged", "DrainTimeout", "Engine", "Forked", "GatherResult", "Group", "GroupInfo", "InitFailed",
    "InternalError", "InvalidArgument", "Invariant", "Limit", "LoadError", "Malformed", "MemberReport", "Moved",
    "NoEntry", "NoMemory", "NotFound", "Overloaded", "PeerError", "PeerFailed", "PeerLost", "Plugin", "PluginInfo",
    "PollFaults", "PollList", "PollResult", "PoolExhausted", "ProtocolError", "Reopened", "Report", "ResourceError", "StaleEpoch", "Stamp",
    "Swapped", "SystemFailure", "TimedOut", "TooNew", "TooOld", "Truncated", "Unauthenticated", "UnknownMessage", "Unreachable",
    "Unsupported", "VersionMismatch", "load", "poll", "reduce_two_level", "sync", "transfer",
]
