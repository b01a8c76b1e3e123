# SPDX-License-Identifier: Apache-2.0
"""Transfer engines of one process: sessions are names in a table, and a transfer is a memmove between known ranges."""

from __future__ import annotations

import abc
import ctypes
import itertools
import threading
from typing import Sequence

_numbers = itertools.count(1)
_sessions: dict[str, MemoryTransferEngine] = {}


class BaseTransferEngine(abc.ABC):
    """Moves bytes between registered memory of sessions."""

    @property
    @abc.abstractmethod
    def session_id(self) -> str: ...

    @abc.abstractmethod
    def register_buffer(self, ptr: int, length: int) -> None: ...

    @abc.abstractmethod
    def deregister_buffer(self, ptr: int) -> None: ...

    @abc.abstractmethod
    def transfer_sync(self, dst_session_id: str, src_addr: int, dst_addr: int, length: int) -> int:
        """0 = done; negative = failed."""

    @abc.abstractmethod
    def batch_transfer_sync(
        self, dst_session_id: str, src_addrs: Sequence[int], dst_addrs: Sequence[int], lengths: Sequence[int]
    ) -> int:
        """As transfer_sync for each in turn; stops at the first failure."""

    @property
    @abc.abstractmethod
    def supports_gpu_direct(self) -> bool: ...


class MemoryTransferEngine(BaseTransferEngine):
    """Refuses (-1) unknown sessions and ranges that nobody registered."""

    def __init__(self, hostname: str) -> None:
        self._session_id = f"{hostname}:{next(_numbers)}"
        self._lock = threading.Lock()
        self._ranges: dict[int, int] = {}
        _sessions[self._session_id] = self

    @property
    def session_id(self) -> str:
        return self._session_id

    @property
    def supports_gpu_direct(self) -> bool:
        return False

    def register_buffer(self, ptr: int, length: int) -> None:
        with self._lock:
            self._ranges[ptr] = length

    def deregister_buffer(self, ptr: int) -> None:
        with self._lock:
            self._ranges.pop(ptr, None)

    def _holds(self, address: int, length: int) -> bool:
        with self._lock:
            ranges = list(self._ranges.items())
        return any(start <= address and address + length <= start + size for start, size in ranges)

    def transfer_sync(self, dst_session_id: str, src_addr: int, dst_addr: int, length: int) -> int:
        peer = _sessions.get(dst_session_id)
        if peer is None or not self._holds(src_addr, length) or not peer._holds(dst_addr, length):
            return -1
        ctypes.memmove(dst_addr, src_addr, length)
        return 0

    def batch_transfer_sync(
        self, dst_session_id: str, src_addrs: Sequence[int], dst_addrs: Sequence[int], lengths: Sequence[int]
    ) -> int:
        for source, target, length in zip(src_addrs, dst_addrs, lengths):
            result = self.transfer_sync(dst_session_id, source, target, length)
            if result != 0:
                return result
        return 0
