#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that are missing for a purpose. Usage: tests/deps.sh build|test|bench ...
# This is the only list of packages. An entry "package:command" is also satisfied by the command alone, wherever it
# came from. Silent when nothing is missing.
set -eu

build_packages=(
    gcc:gcc make:make pkg-config:pkg-config binutils:ld libc6-dev
    libucx-dev libjansson-dev libsodium-dev libxxhash-dev libcmocka-dev
)
test_packages=(
    "${build_packages[@]}"
    abigail-tools:abidiff clang:clang libclang-rt-14-dev clang-tidy:clang-tidy dwarves:pahole g++:g++ libc6-dbg
    iproute2:ip nftables:nft gcc-aarch64-linux-gnu:aarch64-linux-gnu-gcc libc6-dev-arm64-cross
    strace:strace python3 procps:ps util-linux:unshare
    python3-torch python3-numpy mypy python3-pip python3-setuptools python3-wheel
)
bench_packages=(
    "${build_packages[@]}"
    openmpi-bin:mpirun libopenmpi-dev ucx-utils:ucx_perftest python3-torch python3-numpy python3-zmq iproute2:ip python3:python3 valgrind:valgrind
)

is_there() {
    local package=${1%%:*} command=
    [[ $1 == *:* ]] && command=${1#*:}
    [ -n "$command" ] && command -v "$command" >/dev/null 2>&1 && return 0
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ]
}

wanted=()
for purpose in "$@"; do
    case $purpose in
    build) wanted+=("${build_packages[@]}") ;;
    test) wanted+=("${test_packages[@]}") ;;
    bench) wanted+=("${bench_packages[@]}") ;;
    *)
        echo "tests/deps.sh: \"$purpose\" is no purpose: must be build, test or bench" >&2
        exit 2
        ;;
    esac
done
missing=()
for entry in "${wanted[@]}"; do
    package=${entry%%:*}
    if ! is_there "$entry" && [[ " ${missing[*]-} " != *" $package "* ]]; then
        missing+=("$package")
    fi
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "tests/deps.sh: cannot install here (no apt-get); missing: ${missing[*]}" >&2
    echo "tests/deps.sh: install them by hand, or set DEPS=no" >&2
    exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 || {
        echo "tests/deps.sh: not root and no sudo; missing: ${missing[*]}" >&2
        exit 1
    }
    as_root=(sudo)
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get -qq update
"${as_root[@]}" apt-get -qq -y --no-install-recommends -o Dpkg::Use-Pty=0 install "${missing[@]}" >/dev/null
