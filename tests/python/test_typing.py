#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The package as source: types, the oldest Python, docstrings, imports, one exception class per status."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List, Tuple, Union

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]
_PACKAGE = _ROOT / "plugin" / "python"
sys.path[:0] = [str(_HERE), str(_PACKAGE)]

from lib import runner  # noqa: E402
from lib.runner import expect_equal  # noqa: E402

_Named = Union[ast.FunctionDef, ast.ClassDef]


def _sources() -> List[Path]:
    found = sorted((_PACKAGE / "convoy").rglob("*.py"))
    assert len(found) > 15, found
    return found


def test_mypy_strict_finds_nothing() -> None:
    cache = _ROOT / "build" / "mypy"  # of torch above all, which takes most of a minute; mypy looks whether a file is as it was
    done = subprocess.run(["/usr/bin/mypy", "--strict", "--cache-dir=%s" % cache, "convoy"], cwd=_PACKAGE, text=True,
                          capture_output=True, timeout=280, check=False)
    expect_equal((done.returncode, done.stderr), (0, ""), done.stdout)


def test_every_file_is_python_3_9() -> None:
    for path in _sources():
        ast.parse(path.read_text(), str(path), feature_version=(3, 9))
        assert "from __future__ import annotations" in path.read_text() or path.name == "_version.py", path
        expect_equal(path.read_text().splitlines()[0], "# SPDX-License-Identifier: Apache-2.0", str(path))


def _public(body: List[ast.stmt], prefix: str = "") -> Iterator[Tuple[str, _Named]]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from _public(node.body, prefix + node.name + ".")


def _is_setter(node: _Named) -> bool:
    return any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in node.decorator_list)


def _is_bare_exception(node: _Named) -> bool:
    """One whose name says it all."""
    return isinstance(node, ast.ClassDef) and any(isinstance(base, ast.Name) and base.id.endswith(
        ("Error", "ConvoyError")) for base in node.bases)


def test_everything_public_has_a_docstring() -> None:
    lacking = []
    for path in _sources():
        tree = ast.parse(path.read_text())
        if path.read_text().strip() and not ast.get_docstring(tree):
            lacking.append(path.name)
        if path.name == "_abi.py":
            continue
        lacking += ["%s: %s" % (path.name, name) for name, node in _public(tree.body)
                    if not ast.get_docstring(node) and not _is_setter(node) and not _is_bare_exception(node)]
    expect_equal(lacking, [], "without a docstring")


def test_importing_takes_only_the_standard_library() -> None:
    script = ("import sys; sys.path.insert(0, %r); before = set(sys.modules); import convoy; "
              "new = {name.split('.')[0] for name in set(sys.modules) - before}; "
              "print(sorted(new - set(sys.stdlib_module_names) - {'convoy'}))" % str(_PACKAGE))
    done = subprocess.run([sys.executable, "-I", "-c", script], text=True, capture_output=True, timeout=60, check=False)
    expect_equal((done.stdout.strip(), done.stderr), ("[]", ""), "modules of others")


def test_every_status_has_an_exception() -> None:
    import convoy
    from convoy import errors

    bands = {1: convoy.CallerError, 2: convoy.ResourceError, 3: convoy.PeerError, 4: convoy.ProtocolError,
             5: convoy.LoadError, 9: convoy.InternalError}
    rows = [line.split("\t") for line in (_ROOT / "abi" / "status.tsv").read_text().splitlines()[1:]]
    statuses = {int(row[0]) for row in rows if int(row[0]) < 0}
    expect_equal(set(errors.BY_STATUS), statuses, "statuses with a class")
    for status, cls in errors.BY_STATUS.items():
        assert issubclass(cls, bands[-status // 100]) and cls.STATUS == status, cls
        assert getattr(convoy, cls.__name__) is cls and cls.__name__ in convoy.__all__, cls


def test_all_names_what_there_is() -> None:
    import convoy

    expect_equal([name for name in convoy.__all__ if not hasattr(convoy, name)], [], "missing")
    expect_equal(len(set(convoy.__all__)), len(convoy.__all__), "names")


if __name__ == "__main__":
    runner.main(globals())
