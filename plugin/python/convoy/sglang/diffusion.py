# SPDX-License-Identifier: Apache-2.0
"""convoy under the host's diffusion roles: engine, buffer and manager with the calls of the host's own.

The host makes them in this order in one process: the engine, the buffer (in the engine's own pool), the manager. Payloads
are pushed to the byte into slots of the receiver's pool. What the host's own get wrong is right here: padding counts,
lists may have holes, tensors may have gaps or no dimension, a failed stage keeps no slot, every entry of a manifest is
checked against its slot, and a freed slot's handle frees nothing later.
"""

from __future__ import annotations

from convoy.sglang._diffusion_buffer import ConvoyTransferBuffer, SlotHandle
from convoy.sglang._diffusion_engine import ConvoyTransferEngine
from convoy.sglang._diffusion_manager import ConvoyTransferManager, PendingReceive, StagedTransfer

__all__ = ["ConvoyTransferBuffer", "ConvoyTransferEngine", "ConvoyTransferManager", "PendingReceive", "SlotHandle",
           "StagedTransfer"]
