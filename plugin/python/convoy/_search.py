# SPDX-License-Identifier: Apache-2.0
"""Where the plugin is: the argument, CONVOY_LIBRARY, beside this package, then the system's own directories."""

from __future__ import annotations

import glob
import os
import re
from typing import List, Optional, Union

from convoy import _abi, errors

VARIABLE = "CONVOY_LIBRARY"


def find(path: "Optional[Union[str, os.PathLike[str]]]") -> str:
    """A path with a slash in it. An argument or CONVOY_LIBRARY that is set is the only candidate."""
    if path is not None:
        return _given(os.fsdecode(path), "path")
    configured = os.environ.get(VARIABLE, "")
    if configured:
        return _given(configured, VARIABLE)
    package = os.path.dirname(os.path.abspath(__file__))
    tried = [package, os.path.dirname(package)] + _system_directories()
    for directory in tried:
        candidate = os.path.join(directory, _abi.SONAME)
        if os.path.exists(candidate):
            return candidate
    raise errors.NotFound("%s is in none of: %s; give load() a path, or set %s" % (_abi.SONAME, ", ".join(tried), VARIABLE))


def _given(path: str, source: str) -> str:
    # A name without a slash would make the dynamic linker search by name, and give whatever build is there already.
    path = path if "/" in path else "./" + path
    if not os.path.exists(path):
        raise errors.NotFound("%s names %s, which does not exist" % (source, path))
    return path


def _system_directories() -> List[str]:
    directories = [d for d in os.environ.get("LD_LIBRARY_PATH", "").split(":") if d]
    directories += _configured("/etc/ld.so.conf", 0)
    triplet = "%s-linux-gnu" % os.uname().machine
    directories += ["/lib/" + triplet, "/usr/lib/" + triplet, "/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib"]
    return list(dict.fromkeys(directories))


def _configured(file: str, depth: int) -> List[str]:
    """Directories of the dynamic linker's configuration, in its order."""
    found: List[str] = []
    try:
        with open(file, encoding="utf-8", errors="replace") as lines:
            words = [line.split("#")[0].strip() for line in lines]
    except OSError:
        return found
    for line in words:
        include = re.match(r"include\s+(\S+)", line)
        if include and depth < 4:
            pattern = os.path.join(os.path.dirname(file), include.group(1))
            for name in sorted(glob.glob(pattern)):
                found += _configured(name, depth + 1)
        elif line.startswith("/"):
            found.append(line)
    return found
