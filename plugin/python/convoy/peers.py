# SPDX-License-Identifier: Apache-2.0
"""Engines that this one talks to."""

from __future__ import annotations

from ctypes import byref, sizeof
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from convoy import _abi, errors

if TYPE_CHECKING:
    from convoy.transfer import Engine

_STATES = ("unknown", "connected", "closed", "lost")
_LOCALITIES = ("unknown", "process", "host", "remote")


@dataclass(frozen=True)
class PeerInfo:
    """One look at a peer."""

    state: str  # connected, closed (said goodbye), lost (its process is proven dead, or broke the protocol)
    locality: str  # process (an engine of the same context), host (its memory is mapped here), remote
    incarnation: int
    pool_bytes: int  # mapped here, 0 = none
    sent_bytes: int
    received_bytes: int
    session: str


class Peer:
    """A connected engine. Made by ``Engine.connect``; a context manager: leaving it disconnects."""

    def __init__(self, engine: "Engine", value: int, session: str) -> None:
        self._engine = engine
        self.value = value
        self.session = session

    def handle(self) -> int:
        """The plugin's number of it."""
        return self.value

    def info(self) -> PeerInfo:
        """State, locality and bytes. Never waits. Raises Closed: it was disconnected."""
        info, error = _abi.PeerInfo(struct_size=sizeof(_abi.PeerInfo)), _abi.Error(struct_size=sizeof(_abi.Error))
        engine = self._engine
        status = engine._use("peer_info", self.value, byref(info), byref(error))
        if status != _abi.OK:
            raise errors.make(status, error)
        return PeerInfo(_name(_STATES, info.state), _name(_LOCALITIES, info.locality), info.incarnation, info.pool_bytes,
                        info.sent_bytes, info.received_bytes, info.session.decode("ascii", "replace"))

    def disconnect(self) -> None:
        """Ends the connection: what is not at an end fails with PeerLost on both sides; views stay valid until released.
        Raises Closed: it was disconnected before."""
        error = _abi.Error(struct_size=sizeof(_abi.Error))
        engine = self._engine
        status = engine._use("peer_disconnect", self.value, byref(error))
        if status != _abi.OK:
            raise errors.make(status, error)

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *exception: Any) -> None:
        if not self._engine.closed:
            try:
                self.disconnect()
            except errors.Closed:
                pass

    def __repr__(self) -> str:
        return "<convoy.Peer %s>" % self.session


def _name(names: Any, value: int) -> str:
    return str(names[value]) if value < len(names) else str(value)
