# SPDX-License-Identifier: Apache-2.0
"""How an engine is opened."""

from __future__ import annotations

from ctypes import sizeof
from dataclasses import dataclass
from typing import Any, List, Optional, Union

from convoy import _abi, errors
from convoy._buffers import U32_MAX, U64_MAX, Text, integer, nanoseconds
from convoy._memory import memory_of

_POOLS = {"shared": _abi.MEMORY_SHARED, "host": _abi.MEMORY_HOST, "device": _abi.MEMORY_DEVICE}
_NUMBERS = (  # field of the struct, option, largest
    ("pool_bytes", "pool_bytes", U64_MAX), ("pool_block_bytes", "pool_block_bytes", U64_MAX),
    ("transfer_max", "transfers", U32_MAX), ("peer_max", "peers", U32_MAX), ("prealloc_count", "prealloc_count", U32_MAX),
    ("prealloc_bytes", "prealloc_bytes", U64_MAX), ("bounce_bytes", "bounce_bytes", U64_MAX))


@dataclass
class EngineOptions:
    """Options of an engine; all defaults make a shared pool of 256 MiB, reached by loopback.

    address: "tcp://host:port" where peers reach it, port 0 picks one.
    pool: "shared" (memory that convoy makes), "host" or "device" (the caller's, see pool_memory).
    pool_memory: a writable buffer, a tensor or (address, bytes); the engine keeps it until it is closed.
    pool_bytes, pool_block_bytes: of the pool and of its smallest block, a power of two; 0 = 256 MiB, 1 MiB.
    lease: seconds that staged bytes wait for readers, and slots for bytes; None = 60.
    transfers, peers: alive at a time; 0 = 1,024 and 64.
    prealloc_count, prealloc_bytes: receive slots made at open and used again.
    private: no peer gets the pool to read; everything is pushed.
    notify: ``Engine.fileno`` is readable while completions wait.
    device: "cuda", or the address of a struct convoy_device_table. device_number: of CUDA, from 0; None = the device that
    is current on this thread. bounce_bytes: of the pinned pool beside one of device memory.
    """

    address: Optional[str] = None
    pool: str = "shared"
    pool_memory: Any = None
    pool_bytes: int = 0
    pool_block_bytes: int = 0
    lease: Optional[float] = None
    transfers: int = 0
    peers: int = 0
    prealloc_count: int = 0
    prealloc_bytes: int = 0
    private: bool = False
    notify: bool = False
    device: Union[None, str, int] = None
    device_number: Optional[int] = None
    bounce_bytes: int = 0

    def build(self, keep: List[Any]) -> _abi.TransferOptions:
        """The struct; ``keep`` holds what it points to: texts until the open has returned, memory until the close."""
        if not isinstance(self.pool, str) or self.pool not in _POOLS:
            raise errors.InvalidArgument("pool is %r; allowed: %s" % (self.pool, ", ".join(_POOLS)))
        where = Text(self.address)
        keep.append(where)
        options = _abi.TransferOptions(
            struct_size=sizeof(_abi.TransferOptions), pool_kind=_POOLS[self.pool], address=where.address,
            address_length=where.length, lease_ns=nanoseconds(self.lease, "lease"))
        for field, name, most in _NUMBERS:
            setattr(options, field, integer(getattr(self, name), name, 0, most))
        options.critical_flags = _abi.ENGINE_PRIVATE if self.private else 0
        options.hint_flags = _abi.ENGINE_NOTIFY if self.notify else 0
        if self.pool_memory is not None:
            memory = memory_of(self.pool_memory, "pool_memory", self.device is not None)
            options.pool_memory, options.pool_bytes = memory.address or None, memory.bytes
            keep.append(memory.owner)
        self._device(options, keep)
        return options

    def _device(self, options: _abi.TransferOptions, keep: List[Any]) -> None:
        if isinstance(self.device, int):
            options.device, options.device_table = _abi.DEVICE_TABLE, integer(self.device, "device", 1, U64_MAX)
        elif self.device == "cuda":
            options.device = _abi.DEVICE_CUDA
            options.device_number = 0 if self.device_number is None else integer(self.device_number, "device_number", 0, U32_MAX - 1) + 1
        elif self.device is not None:
            raise errors.InvalidArgument("device is %r; allowed: \"cuda\", the address of a device table, None" % (
                self.device,))
