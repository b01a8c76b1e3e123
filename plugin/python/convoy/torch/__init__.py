# SPDX-License-Identifier: Apache-2.0
"""Groups made from process groups of torch.

    import convoy, convoy.torch

    groups = convoy.torch.Groups(context)
    states = groups.get(process_group).all_reduce_min(states)

The process group is used to open a group, and not after that. Opening is collective, and so is its failure: every rank
raises the same class of exception, with a text that names the ranks that failed and why. A rank that has no context to open
a group in, as the library cannot be loaded there, calls ``agree(process_group, failure)`` in place of opening.
"""

from __future__ import annotations

from convoy.torch.exchange import agree
from convoy.torch.group import TorchGroup
from convoy.torch.groups import Groups, open_group
from convoy.torch.streams import stream_of

__all__ = ["Groups", "TorchGroup", "agree", "open_group", "stream_of"]
