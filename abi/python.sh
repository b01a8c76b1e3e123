#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gate: plugin/python/convoy/_abi.py is what the public headers say, and Python lays its structs out as they do.
# Usage: abi/python.sh check    compares
#        abi/python.sh draft    writes it, deliberately
. "$(dirname "$0")/gate.sh"
top=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
need "$python" diff
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
package=$top/plugin/python/convoy/_abi.py

"$top/abi/layout.sh" print >"$work/layout" || { fault "abi/layout.sh cannot print the layout"; finish; }
"$python" -B "$top/abi/python.py" <"$work/layout" >"$work/_abi.py" || { fault "abi/python.py failed"; finish; }

# Sizes and offsets as Python's own rules make them, against the compiler's.
check_sizes() {
    "$python" -B - "$work" <<'END' || fault "Python lays structs out differently from the compiler"
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import _abi
wrong = ["%s: %d bytes, not %d" % (c.__name__, ctypes.sizeof(c), size) for c, size in _abi.SIZES.items()
         if ctypes.sizeof(c) != size]
sys.exit("; ".join(wrong) if wrong or len(_abi.SIZES) < 40 else 0)
END
}

case ${1:-} in
draft)
    cp "$work/_abi.py" "$package"
    echo "python: wrote plugin/python/convoy/_abi.py"
    ;;
check)
    [ -s "$package" ] || fault "plugin/python/convoy/_abi.py is not there"
    diff "$package" "$work/_abi.py" >"$work/difference" ||
        fault "_abi.py is not what the headers say; if that is meant: make abi-draft
$(head -n 20 "$work/difference")"
    check_sizes
    finish
    ;;
*)
    echo "usage: abi/python.sh check | draft" >&2
    exit 2
    ;;
esac
