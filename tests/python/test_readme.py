#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The README's piece of Python on engines, run as it is printed: one part on each of two threads."""

from __future__ import annotations

import re
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any, Dict, List

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]
sys.path[:0] = [str(_HERE), str(_ROOT / "plugin" / "python")]

from lib import runner  # noqa: E402
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


if __name__ == "__main__":
    need("torch")
    runner.main(globals())
