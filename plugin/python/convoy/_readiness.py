# SPDX-License-Identifier: Apache-2.0
"""A producer's readiness, asked of a function of the host's between two calls of the plugin, never inside one.

So nothing that it raises passes through the plugin, and no signal's handler runs there. The plugin itself looks at a text
beside it, "0", "1" or "-1", with libc's atoi, which is the function that a stage needs.
"""

from __future__ import annotations

import ctypes
from ctypes import addressof, c_void_p
from typing import Any, Callable, Optional

ReadyFunction = Callable[[], Any]
SLICE_NS = 1_000_000  # how often it is asked
_atoi: Any = ctypes.CDLL(None).atoi
ADDRESS = ctypes.cast(_atoi, c_void_p).value


class Readiness:
    """Asked by threads that start, test or wait for its transfer, and by ``Engine.completions``, until its answer is true.

    What it raises ends the stage, and is raised by whoever waits for it; KeyboardInterrupt and the like are raised where
    they happen, and the stage goes on.
    """

    def __init__(self, function: ReadyFunction) -> None:
        self._function = function
        self._text = ctypes.create_string_buffer(b"0", 4)
        self.user = addressof(self._text)
        self.is_open = True  # there is no answer yet
        self.is_over = False  # the plugin looks at the text no more
        self.failure: Optional[BaseException] = None

    def ask(self) -> None:
        """Asks the producer; called between calls of the plugin, never by it."""
        if not self.is_open:
            return
        try:
            answer = self._function()
        except Exception as failure:
            self.failure = failure
            self._text.value = b"-1"
            self.is_open = False
            return
        if answer:
            self._text.value = b"1"
            self.is_open = False
