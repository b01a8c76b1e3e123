# SPDX-License-Identifier: Apache-2.0
"""convoy in SGLang, as a plugin of the host: its poll reduce, its DP sync gather and its diffusion transfer.

The host finds ``register`` and ``register_diffusion`` by their entry points and calls them in each of its processes. They
put hooks on the host's functions where those have a shape that is known, and leave the host alone where they have not.
Nothing is loaded or opened before the first collective.

Environment, the same on all ranks: CONVOY_HOOKS=0 switches all hooks off, CONVOY_HOOK_POLL=0, CONVOY_HOOK_GATHER=0,
CONVOY_HOOK_TRANSFER=0 and CONVOY_HOOK_TRANSFER_MANAGER=0 one each. CONVOY_DRY_RUN=1 prints what would be done and does
nothing; so does ``python3 -m convoy.sglang``. CONVOY_FALLBACK=host: where convoy cannot make a collective, all ranks of it
use the host's own, see ``_lanes``; default raise. CONVOY_SECRET: shared by all ranks. CONVOY_TIMEOUT_MS: how long a round
waits for a rank that is late; default as long as the host's own collective, with a warning that names it after 10 s.
"""

from __future__ import annotations

from convoy.sglang import _hooks, _host
from convoy.sglang._state import call_logs, context, groups, swap

__all__ = ["call_logs", "context", "groups", "register", "register_diffusion", "swap"]


def register() -> None:
    """Registers the hooks: entry point of group ``sglang.srt.plugins``. Those on the diffusion server are left to
    ``register_diffusion`` where that server has a registry of its own."""
    _host.register(_host.server_pieces(), _host.SERVER_REGISTRY)


def register_diffusion() -> None:
    """Registers the hooks on the diffusion server: entry point of group ``sglang.multimodal_gen.plugins``."""
    _host.register(_hooks.DIFFUSION, _host.DIFFUSION_REGISTRY)
