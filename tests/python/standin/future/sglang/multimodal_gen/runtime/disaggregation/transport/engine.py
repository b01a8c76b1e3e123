# SPDX-License-Identifier: Apache-2.0
"""An engine that nobody has seen yet: made of one description, and of a name that is new."""

from __future__ import annotations

from dataclasses import dataclass

from standin_parts.memory_engines import BaseTransferEngine, MemoryTransferEngine

__all__ = ["BaseTransferEngine", "EngineDescription", "create_transfer_engine", "open_transfer_engine"]


@dataclass(frozen=True)
class EngineDescription:
    hostname: str
    rails: int = 1


def create_transfer_engine(description: EngineDescription, /, *, is_shared: bool) -> BaseTransferEngine:
    return MemoryTransferEngine(f"{description.hostname}/{is_shared}")


def open_transfer_engine(description: EngineDescription) -> BaseTransferEngine:
    return create_transfer_engine(description, is_shared=True)
