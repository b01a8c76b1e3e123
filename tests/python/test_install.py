#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The installed package: what is in it, what it finds, and what installing leaves behind. Needs no network."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List, Set

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]
sys.path[:0] = [str(_HERE)]

from lib import runner  # noqa: E402
from lib.runner import Skip, expect_equal, need  # noqa: E402

_SOURCE = _ROOT / "plugin" / "python"
_LIBRARY = Path(os.environ.get("CONVOY_LIBRARY") or _ROOT / "build" / "libconvoy.so.1").resolve()
_LIMIT_S = 240.0
ASKED = """
import sys; sys.path.insert(0, sys.argv[1])
import importlib.metadata as metadata
import convoy
print(convoy.__file__.startswith(sys.argv[1] + "/"), convoy.load(sys.argv[2] or None).info().path)
for group in ("sglang.srt.plugins", "sglang.multimodal_gen.plugins"):
    print(*[entry.load().__name__ for entry in metadata.entry_points(group=group) if entry.name == "convoy"])
"""


def run(*command: str, where: Path = Path("/")) -> str:
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=_LIMIT_S, env={"PATH": os.environ["PATH"]})
    if done.returncode != 0:
        raise AssertionError("%s ended with %d: %s%s" % (" ".join(command), done.returncode, done.stdout, done.stderr))
    return done.stdout


def files_below(folder: Path) -> Set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def sources() -> Set[str]:
    return {name for name in files_below(_SOURCE) if name.startswith("convoy/") and name.endswith((".py", "py.typed"))}


def ask(folder: Path, library: str) -> List[str]:
    """What a program elsewhere sees, without any of this environment."""
    return run(sys.executable, "-I", "-B", "-c", ASKED, str(folder), library).splitlines()


def test_pip_installs_the_package_alone() -> None:
    try:
        run(sys.executable, "-m", "pip", "--version")
    except AssertionError:
        raise Skip("needs pip") from None
    with tempfile.TemporaryDirectory() as work:
        source, folder = Path(work) / "source", Path(work) / "to"
        source.mkdir()
        run("cp", "-r", str(_SOURCE / "pyproject.toml"), str(_SOURCE / "convoy"), str(source))
        run(sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-index", "--no-compile", "--target",
            str(folder), str(source))
        installed = {name for name in files_below(folder) if ".dist-info/" not in name}
        expect_equal(installed, sources(), "the files of the package")
        expect_equal(ask(folder, str(_LIBRARY)), ["True " + str(_LIBRARY), "register", "register_diffusion"], "what it sees")


def test_the_installer_puts_the_library_beside_it() -> None:
    before = files_below(_SOURCE)
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "usr" / "lib"
        for _ in range(2):  # again, over the first
            run(str(_SOURCE / "install.sh"), sys.executable, str(folder), str(_LIBRARY))
        installed = {name for name in files_below(folder) if ".dist-info/" not in name}
        expect_equal(installed, sources() | {"convoy/libconvoy.so.1"}, "the files of the package")
        expect_equal(ask(folder, ""), ["True %s/convoy/libconvoy.so.1" % folder, "register", "register_diffusion"],
                     "what it sees")
        record = next(folder.glob("convoy-*.dist-info/RECORD")).read_text().splitlines()
        expect_equal({line.split(",")[0] for line in record}, files_below(folder), "what an uninstall would remove")
    expect_equal(files_below(_SOURCE), before, "the source tree afterwards")


def test_leftovers_of_a_build_are_not_installed() -> None:
    with tempfile.TemporaryDirectory() as work:
        run("cp", "-r", str(_SOURCE), work + "/source")
        stale = Path(work) / "source" / "build" / "lib" / "convoy" / "stale.py"
        stale.parent.mkdir(parents=True, exist_ok=True)
        stale.write_text("")
        run(work + "/source/install.sh", sys.executable, work + "/to", str(_LIBRARY))
        expect_equal((Path(work) / "to" / "convoy" / "stale.py").exists(), False, "a module of an earlier build")


if __name__ == "__main__":
    need("setuptools", "wheel")
    runner.main(globals())
