# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for the host: modules with its dotted names, in three shapes, written from what is known of its behaviour.

today:  the helper of the poll reduce exists; rows of eight columns.
before: the release without the helper; rows of seven columns; a transfer engine made of three parameters.
future: signatures that nobody has seen yet. Hooks must leave such a host alone.

What the shapes have in common lies in `common`; its packages have no __init__.py where a shape adds modules, so that
Python joins both folders to one package.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent
SHAPES = ("today", "before", "future")
_ROOTS = ("sglang", "standin_parts")


def _forget_modules() -> None:
    for name in list(sys.modules):
        if name.split(".")[0] in _ROOTS:
            del sys.modules[name]


def use(shape: str) -> None:
    """Makes `import sglang...` find this shape, freshly, in this process. ValueError: no such shape."""
    if shape not in SHAPES:
        raise ValueError(f"no shape {shape!r} of the host: must be one of {', '.join(SHAPES)}")
    _forget_modules()
    ours = {str(_FOLDER / name) for name in (*SHAPES, "common")}
    sys.path[:] = [str(_FOLDER / shape), str(_FOLDER / "common"), *(path for path in sys.path if path not in ours)]
    importlib.invalidate_caches()
