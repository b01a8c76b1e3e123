# SPDX-License-Identifier: Apache-2.0
"""The engine of today: the backend can be named."""

from __future__ import annotations

from standin_parts.memory_engines import BaseTransferEngine, MemoryTransferEngine

__all__ = ["BaseTransferEngine", "create_transfer_engine"]

_LOOPBACK = ("", "127.0.0.1", "localhost", "::1")


def create_transfer_engine(
    hostname: str = "127.0.0.1",
    gpu_id: int = 0,
    ib_device: str | None = None,
    backend: str = "auto",
    force_mock: bool = False,
) -> BaseTransferEngine:
    """Of the backends only the one in memory is here. RuntimeError where the host would take another."""
    if force_mock or backend == "mock":
        return MemoryTransferEngine(hostname)
    if backend == "auto" and ib_device is None and hostname in _LOOPBACK:
        return MemoryTransferEngine(hostname)
    raise RuntimeError(f"no transfer backend for host {hostname!r}, device {ib_device!r}, backend {backend!r}")
