#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/deps.sh with a made-up package manager: installs what is missing and says so, is silent when nothing is, and
# never installs for `make run` what only tests or benchmarks need.
set -u
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# The package database of the test is a file of names; apt-get adds to it what it is asked to install.
cat >"$work/dpkg-query" <<END
#!/bin/sh
for name; do :; done
grep -qx "\$name" "$work/installed" && printf installed
END
cat >"$work/apt-get" <<END
#!/bin/sh
echo "\$*" >>"$work/calls"
for word; do case \$word in install) found=1 ;; -*) ;; *) [ -n "\$found" ] && echo "\$word" >>"$work/installed" ;; esac; done
exit 0
END
printf '#!/bin/sh\nexec "$@"\n' >"$work/sudo"
chmod +x "$work/dpkg-query" "$work/apt-get" "$work/sudo"
: >"$work/installed"
deps() { # only these tools are found, so no command stands in for its package
    for tool in bash id env grep sh; do ln -sf "$(command -v $tool)" "$work/$tool"; done
    PATH=$work "$work/bash" tests/deps.sh "$@" 2>&1
}

report() { # NAME CONDITION-CODE
    if [ "$2" -eq 0 ]; then echo "[       OK ] $1"; else echo "[  FAILED  ] $1"; failures=$((failures + 1)); fi
}

output=$(deps build)
[[ $output == "installing: "*gcc*libucx-dev*libjansson-dev*libsodium-dev*libxxhash-dev* ]]
report deps_missing_packages_are_installed_and_named $?
! grep -qE 'torch|openmpi|clang|nftables|strace' "$work/calls"
report deps_of_a_build_are_only_those_of_a_build $?
output=$(deps build)
[ -z "$output" ] && [ "$(wc -l <"$work/calls")" -eq 2 ]
report deps_nothing_missing_is_silent $?
output=$(deps build test)
[[ $output == "installing: "*strace*python3-torch* && $output != *libucx-dev* && $output != *openmpi* ]]
report deps_of_tests_come_on_top $?
output=$(deps bench)
[[ $output == "installing: "*openmpi-bin*python3-zmq* && $output != *strace* && $output != *torch* ]]
report deps_of_benchmarks_come_on_top $?
deps nonsense >/dev/null
[ $? -eq 2 ]
report deps_unknown_purpose_is_usage $?
rm "$work/apt-get"
: >"$work/installed"
output=$(deps build)
[ $? -eq 1 ] && [[ $output == *"no apt-get"*libucx-dev* ]]
report deps_without_apt_names_what_is_missing $?
[ "$failures" -eq 0 ]
