# SPDX-License-Identifier: Apache-2.0
"""What the tests of the plugin's decisions share: its log, its environment, its plan."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Dict, Iterator, List, Mapping, Tuple


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: List[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append("%s %s" % (record.levelname, record.getMessage()))

    def of(self, level: str) -> List[str]:
        return [line for line in self.lines if line.startswith(level)]


@contextlib.contextmanager
def logged() -> Iterator[Lines]:
    logger, lines = logging.getLogger("convoy.sglang"), Lines()
    level, logger.propagate = logger.level, False
    logger.setLevel(logging.INFO)
    logger.addHandler(lines)
    try:
        yield lines
    finally:
        logger.removeHandler(lines)
        logger.setLevel(level)


@contextlib.contextmanager
def environment_with(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def plan_of(environment: Mapping[str, str] = {}, diffusion: bool = False) -> Dict[str, Tuple[str, str]]:
    """{target: (action, reason)}."""
    from convoy.sglang import _hooks, _host

    pieces = _hooks.DIFFUSION if diffusion else _hooks.SERVER
    return {d.target: (d.action, d.reason) for d in _host.decisions(_hooks.plan(pieces, environment, _host.find))}


def actions_of(environment: Mapping[str, str] = {}, diffusion: bool = False) -> Dict[str, str]:
    return {target: action for target, (action, _) in plan_of(environment, diffusion).items()}
