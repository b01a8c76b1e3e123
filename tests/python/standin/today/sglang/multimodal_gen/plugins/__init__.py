# SPDX-License-Identifier: Apache-2.0
"""Plugins of the diffusion server: a registry with tables of its own, and entry points of its own group."""

from __future__ import annotations

from standin_parts.plugin_loading import call_plugins

from sglang.srt.plugins.hook_registry import HookRegistry as _ServerRegistry
from sglang.srt.plugins.hook_registry import HookType

__all__ = ["HookRegistry", "HookType", "load_plugins"]

_is_loaded = False


class HookRegistry(_ServerRegistry):
    """Same behaviour; shares no entry with the server's registry."""


def load_plugins() -> None:
    global _is_loaded
    if _is_loaded:
        return
    _is_loaded = True
    call_plugins("sglang.multimodal_gen.plugins")
    HookRegistry.apply_hooks()
