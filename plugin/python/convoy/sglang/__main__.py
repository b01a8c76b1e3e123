# SPDX-License-Identifier: Apache-2.0
"""Prints what the hooks would do with the host that Python finds here. Registers nothing."""

from __future__ import annotations

import os
import sys

from convoy.sglang import _hooks, _host
from convoy.sglang._code import Unknown


def main() -> int:
    """0: the plan was printed, to stdout. It says of each target what would be done and why."""
    for name, pieces in ((_host.SERVER_REGISTRY, _host.server_pieces()), (_host.DIFFUSION_REGISTRY, _hooks.DIFFUSION)):
        try:
            _host.registry(name)
        except (LookupError, Unknown) as reason:
            print("no hooks in %s: %s" % (name, reason.args[0]))
            continue
        for decision in _host.decisions(_hooks.plan(pieces, os.environ, _host.find)):
            print(decision)
    return 0


if __name__ == "__main__":
    sys.exit(main())
