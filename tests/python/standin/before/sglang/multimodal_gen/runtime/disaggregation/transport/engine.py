# SPDX-License-Identifier: Apache-2.0
"""The engine of an older release: made of three parameters."""

from __future__ import annotations

from standin_parts.memory_engines import BaseTransferEngine, MemoryTransferEngine

__all__ = ["BaseTransferEngine", "create_transfer_engine"]


def create_transfer_engine(hostname: str = "127.0.0.1", gpu_id: int = 0, ib_device: str | None = None) -> BaseTransferEngine:
    return MemoryTransferEngine(hostname)
