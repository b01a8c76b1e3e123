# SPDX-License-Identifier: Apache-2.0
"""Loads the server's plugins, once in each process."""

from __future__ import annotations

from standin_parts.plugin_loading import call_plugins

from sglang.srt.plugins.hook_registry import HookRegistry

_is_loaded = False


def load_plugins() -> None:
    global _is_loaded
    if _is_loaded:
        return
    _is_loaded = True
    call_plugins("sglang.srt.plugins")
    HookRegistry.apply_hooks()
