#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Finding, inspecting and loading the plugin: the search order, and what is refused by the file alone."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Type

_HERE = Path(__file__).resolve().parent
_PACKAGE = _HERE.parents[1] / "plugin" / "python"
sys.path[:0] = [str(_HERE), str(_PACKAGE)]

import convoy  # noqa: E402
from convoy import _digest, _elf  # noqa: E402
from lib import crew, runner  # noqa: E402
from lib.runner import expect_equal, expect_raises  # noqa: E402

_TINY = Path(os.environ.get("CONVOY_TINY") or crew.ROOT / "build" / "release" / "tests" / "abi" / "plugins")
_STAMP = Path(os.environ.get("CONVOY_STAMP") or crew.ROOT / "build" / "release" / "obj" / "stamp")
_GOOD = Path(crew.LIBRARY).read_bytes()


def _run(script: str, package: Optional[Path] = None, arguments: List[str] = [], **variables: str) -> str:
    """Standard output of a fresh interpreter in an environment of nothing but these variables."""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(package or _PACKAGE), **variables}
    done = subprocess.run([sys.executable, "-c", script, *arguments], env=environment, capture_output=True, text=True,
                          timeout=60, check=False)
    expect_equal((done.returncode, done.stderr), (0, ""), "exit code and errors")
    return done.stdout.strip()


def _refused(kind: Type[convoy.ConvoyError], path: Any, *words: str) -> None:
    failure = expect_raises(kind, lambda: convoy.load(path))
    for word in (os.path.basename(os.fspath(path)), *words):
        assert word in str(failure), (word, str(failure))


def _with_file(data: bytes, check: Callable[[str], None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "libfile.so")
        with open(path, "wb") as file:
            file.write(data)
        check(path)


_FOUND = "import convoy; print(convoy.load().info().path)"


def test_the_search_order() -> None:
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder).resolve()
        shutil.copytree(_PACKAGE / "convoy", there / "python" / "convoy")
        beside = there / "python" / "convoy" / "libconvoy.so.1"
        for name in ("system", "given"):
            (there / name).mkdir()
            shutil.copy(crew.LIBRARY, there / name / "libconvoy.so.1")
        system, given = str(there / "system"), str(there / "given" / "libconvoy.so.1")
        package = there / "python"
        expect_equal(_run(_FOUND, package, LD_LIBRARY_PATH=system), system + "/libconvoy.so.1", "the system's")
        shutil.copy(crew.LIBRARY, package)
        expect_equal(_run(_FOUND, package, LD_LIBRARY_PATH=system), str(package / beside.name), "beside the package's folder")
        shutil.copy(crew.LIBRARY, beside)
        expect_equal(_run(_FOUND, package, LD_LIBRARY_PATH=system), str(beside), "in the package's folder")
        expect_equal(_run(_FOUND, package, CONVOY_LIBRARY=given, LD_LIBRARY_PATH=system), given, "CONVOY_LIBRARY")
        asked = "import convoy, sys; print(convoy.load(sys.argv[1]).info().path)"
        expect_equal(_run(asked, package, [given], CONVOY_LIBRARY=str(beside)), given, "the argument")
        wrong = "import convoy\ntry: convoy.load()\nexcept convoy.NotFound as why: print(why)"
        text = _run(wrong, package, CONVOY_LIBRARY="/no/such.so")
        assert "CONVOY_LIBRARY" in text and "/no/such.so" in text, text
        beside.unlink()
        (package / beside.name).unlink()
        text = _run(wrong, package, LD_LIBRARY_PATH=str(package))
        assert str(package / "convoy") in text and "CONVOY_LIBRARY" in text and "/usr/lib" in text, text


def test_a_name_without_a_slash_and_path_objects() -> None:
    here = os.getcwd()
    os.chdir(os.path.dirname(os.path.abspath(crew.LIBRARY)))
    try:
        name = os.path.basename(crew.LIBRARY)
        for path in (name, Path(name), os.fsencode(name)):
            expect_equal(convoy.load(path).info().build_id, crew.plugin().info().build_id, "build of %r" % path)
    finally:
        os.chdir(here)
    for wrong in (5, [], object()):
        expect_raises(TypeError, lambda: convoy.load(wrong))
    expect_raises(convoy.NotFound, lambda: convoy.load("a\0b"))


def test_what_is_no_file_is_refused() -> None:
    with tempfile.TemporaryDirectory() as folder:
        _refused(convoy.NotFound, os.path.join(folder, "gone.so"), "does not exist")
        _refused(convoy.BadFile, folder, "directory")
        _refused(convoy.BadFile, "/dev/zero", "device")
        pipe = os.path.join(folder, "pipe.so")
        os.mkfifo(pipe)
        _refused(convoy.BadFile, pipe, "pipe")
        link = os.path.join(folder, "link.so")
        os.symlink(link, link)
        expect_raises((convoy.SystemFailure, convoy.NotFound), lambda: convoy.load(link))  # type: ignore[arg-type]
        closed = os.path.join(folder, "closed.so")
        shutil.copy(crew.LIBRARY, closed)
        os.chmod(closed, 0)
        script = ("import os, sys, convoy\nif os.getuid() == 0: os.setuid(65534)\n"
                  "try: convoy.load(sys.argv[1])\nexcept convoy.SystemFailure as why: print(why, why.errno)")
        os.chmod(folder, 0o755)
        text = _run(script, None, [closed])
        assert "closed.so" in text and text.endswith("Permission denied 13"), text


def test_what_is_no_plugin_is_refused() -> None:
    _with_file(b"", lambda path: _refused(convoy.BadFile, path, "empty"))
    _with_file(b"words\n" * 100, lambda path: _refused(convoy.BadFile, path, "ELF"))
    _with_file(_GOOD[:4] + b"\1" + _GOOD[5:], lambda path: _refused(convoy.BadFile, path, "32 bits"))
    _with_file(_GOOD[:5] + b"\2" + _GOOD[6:], lambda path: _refused(convoy.BadFile, path))
    _with_file(_GOOD[:18] + b"\xb7\0" + _GOOD[20:], lambda path: _refused(convoy.BadFile, path, "aarch64"))
    _with_file(_GOOD[:16] + b"\2\0" + _GOOD[18:], lambda path: _refused(convoy.BadFile, path, "type 2"))
    _refused(convoy.ConvoyError, sys.executable)  # an executable
    for path in Path("/lib/x86_64-linux-gnu").glob("libm.so.6"):
        _refused(convoy.NoEntry, path, "manifest")


def test_truncated_files_are_refused() -> None:
    draw = random.Random(7)
    end = max(at + length for kind, at, length in _loaded())
    for size in [1, 63, 64, 65, 500, 4096, end - 1] + [draw.randrange(end) for _ in range(runner.scaled(30, 1000))]:
        _with_file(_GOOD[:size], lambda path: _refused(convoy.BadFile, path))


def _loaded() -> List[Any]:
    offset, = struct.unpack_from("<Q", _GOOD, 32)
    size, count = struct.unpack_from("<HH", _GOOD, 54)
    rows = [struct.unpack_from("<IIQQQQQQ", _GOOD, offset + i * size) for i in range(count)]
    return [(row[0], row[2], row[5]) for row in rows if row[0] in (1, 4)]


def test_damage_anywhere_in_what_is_loaded_is_refused() -> None:
    """Before the dynamic linker sees it, so that nothing can crash."""
    draw = random.Random(9)
    notes = [(at, length) for kind, at, length in _loaded() if kind == 4]
    code = [(at, length) for kind, at, length in _loaded() if kind == 1]
    accepted = 0
    for turn in range(runner.scaled(60, 2000)):
        at, length = (0, 4096) if turn % 3 == 0 else draw.choice(notes if turn % 3 == 1 else code)
        place, bit = at + draw.randrange(length), 1 << draw.randrange(8)
        damaged = bytearray(_GOOD)
        damaged[place] ^= bit
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(damaged)
            file.flush()
            try:
                _elf.inspect(file.name)
                accepted += 1
                # Where and how many sections there are is not loaded, and `strip` changes it.
                assert 40 <= place < 48 or 60 <= place < 64 or 48 <= place < 52 or place < 16, place
            except convoy.ConvoyError as failure:
                assert file.name in str(failure), failure
    assert accepted < runner.scaled(60, 2000) // 4, accepted


def test_the_hash_is_the_known_one() -> None:
    for data, value in ((b"", 0xEF46DB3751D8E999), (b"a", 0xD24EC4F1A98C6E5B), (b"abc", 0x44BC2CF5AD770999)):
        expect_equal(_digest.xxh64(data), value, repr(data))


def _manifest(**changes: Any) -> bytes:
    """The good tiny plugin with another manifest of the same length or shorter, and its digest made new."""
    data = (_TINY / "good.so").read_bytes()
    start = data.index(b'{"schema":1')
    end = data.index(b"\0", start)
    manifest: Dict[str, Any] = {**json.loads(data[start:end]), "unload": None, **changes}
    kept = {key: value for key, value in manifest.items() if value is not None and key != "raw"}
    text = json.dumps(kept, separators=(",", ":")).encode()
    if "raw" in changes:
        text = changes["raw"]
    assert len(text) <= end - start, "no room"
    with tempfile.NamedTemporaryFile(suffix=".so", delete=False) as file:
        file.write(data[:start] + text + bytes(end - start - len(text)) + data[end:])
    try:
        subprocess.run([str(_STAMP), file.name], check=True)
        return Path(file.name).read_bytes()
    finally:
        os.unlink(file.name)


def test_manifests_that_do_not_fit_are_refused() -> None:
    core = [{"name": "core", "min": "1.0", "max": "1.0"}]
    cases = [(dict(schema=2), convoy.TooNew, "schema 2"), (dict(schema=0), convoy.TooOld, "schema 0"),
             (dict(schema="1"), convoy.BadFile, "schema"), (dict(schema=None), convoy.BadFile, "schema"),
             (dict(families=[]), convoy.Unsupported, "core"), (dict(families=None), convoy.BadFile, "families"),
             (dict(families=[dict(core[0], min="9.0", max="9.1")]), convoy.TooNew, "9.0 to 9.1"),
             (dict(families=[dict(core[0], min="0.1", max="0.9")]), convoy.TooOld, "0.1 to 0.9"),
             (dict(families=[dict(core[0], min="x", max="y")]), convoy.BadFile, "version"),
             (dict(families=5), convoy.BadFile, "manifest"), (dict(wire=None), convoy.BadFile, "wire"),
             (dict(raw=b"[" * 100), convoy.BadFile, "JSON"), (dict(raw=b"[1]"), convoy.BadFile, "object"),
             (dict(raw=b"\xff\xfe"), convoy.BadFile, "JSON")]
    for changes, kind, word in cases:
        _with_file(_manifest(**changes), lambda path: _refused(kind, path, word))
    _with_file(_manifest(), lambda path: expect_equal(convoy.load(path).info().release, "1.0.0", "release"))


def test_tiny_plugins_are_refused_for_their_reason() -> None:
    for name, kind, word in (("bad_json", convoy.BadFile, "JSON"), ("init_fails", convoy.InitFailed, "-505"),
                             ("needs_gone", convoy.InitFailed, "libtiny_gone"), ("no_entry", convoy.NoEntry, "convoy_query"),
                             ("no_note", convoy.NoEntry, "note"), ("no_table", convoy.InitFailed, "table"),
                             ("refuses", convoy.TooOld, "changed its mind"), ("too_new", convoy.TooNew, "2.0")):
        _refused(kind, _TINY / (name + ".so"), word)


def test_slots_that_a_build_lacks_are_unsupported() -> None:
    families = convoy.load(_TINY / "good.so").info().families
    expect_equal((families["core"], families["poll"]), ("1.0", "1.0"), "agreed")
    assert families["sync"] and families["sync"] != "1.0", families
    short = convoy.load(_TINY / "short_table.so")
    failure = expect_raises(convoy.Unsupported, lambda: short._build.core.group_info(None, None, None))
    assert "group_info" in str(failure), failure
    failure = expect_raises(convoy.Unsupported, lambda: short.padded_size([1]))
    assert "padded_size" in str(failure), failure
    assert convoy.load(_TINY / "extra_slots.so").info().families["core"] == "1.0"


def _maps() -> str:
    return Path("/proc/self/maps").read_text()


def test_importing_loads_nothing_and_loading_twice_maps_once() -> None:
    script = """
import os, sys
def maps(): return [line.split()[-1] for line in open("/proc/self/maps") if "convoy" in line and ".so" in line]
import convoy
assert not maps() and "numpy" not in sys.modules and "torch" not in sys.modules, maps()
first = convoy.load(os.environ["LIBRARY"])
count = len(maps())
second = convoy.load(os.environ["LIBRARY"])
assert count > 0 and len(maps()) == count, maps()
assert first.info() == second.info()
print(first._build.query is not None, convoy.__version__ == first.info().release)
"""
    expect_equal(_run(script, LIBRARY=crew.LIBRARY), "True True", "in a clean environment")


def test_a_file_replaced_under_its_name_is_another_build() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "libreplaced.so")
        loaded = []
        for name in ("good.so", "good_b.so"):
            shutil.copy(_TINY / name, path + ".new")
            os.replace(path + ".new", path)
            loaded.append(convoy.load(path))
        expect_equal([plugin.info().release for plugin in loaded], ["1.0.0", "1.0.1"], "releases")
        from convoy import _mapped

        expect_equal([_mapped.build_id(plugin._build.query) for plugin in loaded],
                     [plugin.info().build_id for plugin in loaded], "builds in memory")


# aws/aws-ofi-nccl PR 327
def test_plain_dlopen_in_a_clean_environment() -> None:
    script = ("import ctypes, os, sys; library = ctypes.CDLL(sys.argv[1], os.RTLD_NOW | os.RTLD_LOCAL); "
              "print(library.convoy_query(None, None, None))")
    expect_equal(_run(script, None, [os.path.abspath(crew.LIBRARY)]), "-101", "status of an empty query")


def test_info_says_what_was_loaded() -> None:
    info = crew.plugin().info()
    expect_equal(info.path, crew.LIBRARY, "path")
    assert len(info.build_id) == 40 and int(info.build_id, 16), info.build_id
    assert info.machine == "x86-64" and info.wire[0] <= info.wire[1] and "1.13" in info.ucx, info
    expect_equal(sorted(info.families), ["core", "move", "poll", "sync", "transfer"], "families")
    assert info.build_id[:12] in repr(crew.plugin()) and info.release == convoy.__version__


if __name__ == "__main__":
    for needed in (_TINY / "good.so", _STAMP):
        if not needed.exists():
            print("%s is missing: build it by `make`" % needed)
            sys.exit(1)
    runner.main(globals())
