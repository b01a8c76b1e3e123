#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gate: each public header alone, as C11 and as C++17, with gcc and clang, without implicit padding; no type in them whose
# size or meaning differs between compilers; and nothing that only a C compiler could do for a host (macros with arguments,
# inline functions), since hosts in other languages have tables and structs alone. Usage: abi/headers.sh
. "$(dirname "$0")/gate.sh"
need gcc g++ clang clang++ awk
top=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
strict=(-Wall -Wextra -Wpedantic -Wpadded -Werror -fsyntax-only -I"$top/include")

# A header and all that it includes of ours, directly or not.
closure() {
    local before="" now=$1
    while [ "$now" != "$before" ]; do
        before=$now
        # shellcheck disable=SC2046,SC2086  # the paths are several words
        now=$(printf '%s\n' $now $(sed -n 's|^ *# *include  *"\(convoy/[a-z_]*\.h\)".*|\1|p' $now | sed "s|^|$top/include/|") | sort -u)
    done
    echo "$now"
}

for path in "$top"/include/convoy/*.h; do
    before=$faults
    # shellcheck disable=SC2046  # the paths are several words
    place=$(memo header "$top/abi/headers.sh" $(closure "$path") "$path") && [ -e "$place" ] && continue
    name=convoy/$(basename "$path")
    printf '#include "%s"\nextern int unused;\nint unused;\n' "$name" | tee "$work/alone.c" >"$work/alone.cc"
    for compiler in gcc clang; do
        "$compiler" -std=c11 "${strict[@]}" "$work/alone.c" 2>"$work/words" ||
            fault "$name alone, $compiler -std=c11: $(head -n 3 "$work/words" | tr '\n' ' ')"
    done
    for compiler in g++ clang++; do
        "$compiler" -std=c++17 "${strict[@]}" "$work/alone.cc" 2>"$work/words" ||
            fault "$name alone, $compiler -std=c++17: $(head -n 3 "$work/words" | tr '\n' ' ')"
    done
    # Comments out, then words: no enum, bool, long, bit-field, varargs, FILE, errno, wide or C++ type.
    "${CC:-cc}" -std=c11 -fpreprocessed -dD -E -P "$path" >"$work/code" 2>/dev/null
    grep -nE '\b(enum|bool|_Bool|long|short|FILE|errno|wchar_t|va_list|ucp_[a-z]+|ucs_[a-z]+)\b|\.\.\.|std::' "$work/code" \
        >"$work/banned" && fault "$name uses a banned type: $(head -n 1 "$work/banned")"
    grep -nE '^ *u?int[0-9]+_t +[a-z_]+ *: *[0-9]+ *;' "$work/code" >"$work/banned" &&
        fault "$name has a bit-field: $(head -n 1 "$work/banned")"
    grep -nE '^ *# *define +[A-Za-z_0-9]+\(|\b(inline|__inline|__inline__)\b' "$work/code" >"$work/banned" &&
        fault "$name does work that only a C compiler can: $(head -n 1 "$work/banned")"
    [ -z "$place" ] || [ "$faults" -ne "$before" ] || touch "$place"
done
finish
