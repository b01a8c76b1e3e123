#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The README's pieces of Python on engines, one part on each of two threads, and on swaps, run as they are printed."""

from __future__ import annotations

import array
import os
import re
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any, Dict, List

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]
sys.path[:0] = [str(_HERE), str(_ROOT / "plugin" / "python")]

import convoy  # noqa: E402
from lib import runner, swaps  # noqa: E402
from lib.pair import WAIT_S, engine_of  # noqa: E402
from lib.runner import expect_equal, need  # noqa: E402


def printed(word: str) -> str:
    found: List[str] = re.findall(r"^```python\n(.*?)^```$", (_ROOT / "README.md").read_text(), re.M | re.S)
    return next(block for block in found if word in block)


def test_engines_as_printed() -> None:
    import torch

    block = printed("context.engine(")
    there = block.index("with other.accept")
    with engine_of() as here, engine_of() as other:
        class Context:
            def engine(self, pool_bytes: int) -> Any:
                return here

        names: Dict[str, Any] = {"context": Context(), "session": other.session, "latents": torch.arange(6.0)}
        got: Dict[str, Any] = {"other": other}
        thread = threading.Thread(target=exec, args=(textwrap.dedent(block[there:]), got))
        thread.start()
        exec(block[:there], names)
        thread.join(WAIT_S)
        expect_equal(got["latents"].tolist(), list(range(6)), "what came")


def test_priorities_as_printed() -> None:
    block = printed("set_admission(")
    with engine_of() as here, engine_of() as other:
        names: Dict[str, Any] = {"convoy": convoy, "engine": here, "peer": here.connect(other.session),
                                 "latents": array.array("f", range(6))}
        exec(block, names)
        with other.accept(timeout=WAIT_S) as loaded:
            expect_equal((loaded.request, loaded.priority, len(loaded["latents"].data)), ("r2", 10, 24), "what came")
        names["sent"].wait(WAIT_S)
        names["sent"].release()
        names["urgent"].release()


def test_swap_as_printed() -> None:
    block = printed("plugin.swap(")
    path = re.search(r'"(/[^"]+)"', block)
    assert path is not None and os.path.exists(swaps.SECOND), "the path that is printed, and a second build"
    with convoy.load(swaps.FIRST) as plugin, plugin.context(log=False) as context, context.group("one", 1, 0) as group:
        exec(block.replace(path.group(1), swaps.SECOND), {"plugin": plugin})
        expect_equal((plugin.info().path, group.reduce([3])), (swaps.SECOND, [3]), "after the swap")


if __name__ == "__main__":
    need("torch")
    runner.main(globals())
