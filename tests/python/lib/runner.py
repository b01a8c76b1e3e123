# SPDX-License-Identifier: Apache-2.0
"""Runs functions named test_* and prints one result each, in the form that tests/run.sh counts."""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from typing import Any, Callable, Mapping, NoReturn

_NOT_RUN = 77


class Skip(Exception):
    """Raised by a test that cannot run here; the text is the reason."""


def skip_program(reason: str) -> NoReturn:
    """Ends the whole program as skipped."""
    print(reason, flush=True)
    sys.exit(_NOT_RUN)


def need(*modules: str) -> None:
    """Ends the program as skipped when one of these modules (no submodules) is not there. Imports none: torch takes
    seconds, and a program whose processes use it may not need it itself."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            skip_program(f"needs the module {name}, which is not installed")


def scale() -> int:
    """CONVOY_SCALE, at least 1: how many times the count of `make test` a test repeats."""
    try:
        return max(1, int(os.environ.get("CONVOY_SCALE", "1")))
    except ValueError:
        return 1


def scaled(count: int, full: int) -> int:
    """count x scale, but not more than the test's full scale."""
    return min(count * scale(), full)


def expect_equal(actual: object, expected: object, what: str) -> None:
    if actual != expected:
        raise AssertionError(f"{what}: is {actual!r}, must be {expected!r}")


def expect_raises(kind: type[BaseException], call: Callable[[], Any]) -> BaseException:
    """The exception that the call raised. AssertionError: none, or one of another kind."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def _run_one(name: str, test: Callable[[], Any]) -> bool:
    print(f"[ RUN      ] {name}", flush=True)
    try:
        test()
    except Skip as reason:
        print(f"[  SKIPPED ] {name}\nskipped: {reason}", flush=True)
        return True
    except Exception:
        traceback.print_exc(file=sys.stdout)
        print(f"[  FAILED  ] {name}", flush=True)
        return False
    print(f"[       OK ] {name}", flush=True)
    return True


def main(names: Mapping[str, Any]) -> NoReturn:
    """Runs the functions test_* of a module's globals in the order of their definition; arguments of the command line
    are names of tests, and then only these run. Exits 0 when none failed, 1 when one did or none was found."""
    tests = {name: value for name, value in names.items() if name.startswith("test_") and callable(value)}
    if sys.argv[1:]:
        tests = {name: tests[name] for name in sys.argv[1:]}
    failed = [name for name, test in tests.items() if not _run_one(name, test)]
    if not tests:
        print("no tests found")
    sys.exit(1 if failed or not tests else 0)
