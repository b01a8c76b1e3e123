# SPDX-License-Identifier: Apache-2.0
"""The stream that torch works on, for transfers that have to come after what is queued there."""

from __future__ import annotations

from typing import Optional

import torch


def stream_of(tensor: torch.Tensor) -> Optional[int]:
    """Handle of the current CUDA stream of the tensor's device; None for a tensor in host memory."""
    if tensor.device.type != "cuda":
        return None
    return int(torch.cuda.current_stream(tensor.device).cuda_stream)
