#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Python package into a folder, with a plugin beside it; needs no network and leaves the source tree as it is.
# Usage: plugin/python/install.sh PYTHON FOLDER LIBRARY (PYTHON needs setuptools and wheel)
set -eu
[ $# -eq 3 ] || { echo "usage: plugin/python/install.sh PYTHON FOLDER LIBRARY" >&2; exit 2; }
python=$1 folder=$2 library=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/source" # setuptools builds beside its sources, and packs what an earlier build has left there
cp -r "$(dirname "$0")"/{pyproject.toml,convoy} "$work/source"
(cd "$work/source" && "$python" -c 'import setuptools.build_meta as build; build.build_wheel("..")' >"$work/words" 2>&1) ||
    { cat "$work/words" >&2; echo "install.sh: $python cannot build the package; it needs setuptools and wheel" >&2; exit 1; }
mkdir -p "$folder"
rm -rf "$folder"/convoy "$folder"/convoy-*.dist-info
"$python" -m zipfile -e "$work"/convoy-*.whl "$folder"
install -m 755 "$library" "$folder/convoy/libconvoy.so.1"
echo "convoy/libconvoy.so.1,," >>"$(echo "$folder"/convoy-*.dist-info/RECORD)" # pip uninstall removes it too
echo "installed the Python package in $folder"
