#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What `make install` copies is enough: the command replays, a host builds with pkg-config, and uninstall leaves nothing.
# Usage: tests/integration/install.sh. Prints cmocka's result lines.
set -u
cd "$(dirname "$0")/../.." || exit 1
unset MAKEFLAGS MFLAGS MAKELEVEL
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

report() { # NAME CODE: what the last command printed is shown on failure
    if [ "$2" -eq 0 ]; then
        echo "[       OK ] $1"
    else
        echo "[  FAILED  ] $1"
        tail -n 20 "$work/out" | sed 's/^/    /'
        failures=$((failures + 1))
    fi
}

make DEPS=no install "DESTDIR=$work/a root" PREFIX=/opt/convoy >"$work/out" 2>&1
report install_copies_below_destdir $?
mv "$work/a root/opt/convoy" "$work/convoy" # relative links only
(cd "$work" && "$work/convoy/bin/convoy" run) >"$work/out" 2>&1
report install_command_replays_from_anywhere $?
[ -f "$work/convoy-run/rank-0.log" ] && [ ! -e "$work/convoy/lib/convoy/run" ]
report install_command_writes_logs_where_it_was_started $?
"$work/convoy/bin/convoy" inspect "$work/convoy/lib/libconvoy.so" >"$work/out" 2>&1
report install_library_is_found_by_every_name $?

export PKG_CONFIG_PATH=$work/convoy/lib/pkgconfig
sed -n '/^<!-- example:/,/^```$/p' README.md | sed '1,2d;$d' >"$work/host.c"
read -ra flags < <(pkg-config --define-prefix --cflags --libs --static convoy)
gcc -std=c11 -Wall -Werror "$work/host.c" "${flags[@]}" -o "$work/host" >"$work/out" 2>&1
report install_host_builds_with_pkg_config $?
[ "$(pkg-config --modversion convoy)" = "$("$work/convoy/bin/convoy" version | sed -n 's/^convoy //p')" ]
report install_versions_agree $?

mv "$work/convoy" "$work/a root/opt/convoy"
make DEPS=no uninstall "DESTDIR=$work/a root" PREFIX=/opt/convoy >"$work/out" 2>&1 &&
    find "$work/a root" ! -type d >>"$work/out" && ! find "$work/a root" ! -type d | grep -q .
report uninstall_leaves_nothing $?
[ "$failures" -eq 0 ]
