#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints how many lines of src and plugin ran, by folder and by file, least first. Usage: tests/coverage.sh OBJECTS, the
# folder of a build with VARIANT=coverage after its tests. Processes that were killed on purpose leave no counts.
set -eu
objects=${1:?usage: tests/coverage.sh OBJECTS}
command -v gcov >/dev/null || {
    echo "gcov is missing (package gcc)" >&2
    exit 1
}
find "$objects/src" "$objects/plugin" -name '*.gcda' -print0 | xargs -0 -r gcov -n 2>/dev/null | awk '
    /^File / { file = $2; gsub(/\x27/, "", file) }
    /^Lines executed:/ && file ~ /^(src|plugin)\/.*\.c$/ {
        split($2, part, ":"); share = part[2] + 0; lines = $4
        ran[file] = share * lines / 100; all[file] = lines
        file = ""
    }
    END {
        for (f in all) {
            folder = f; sub(/\/[^\/]*$/, "", folder)
            folder_ran[folder] += ran[f]; folder_all[folder] += all[f]; sum_ran += ran[f]; sum_all += all[f]
            printf "2 %05.1f %% of %4d lines  %s\n", 100 * ran[f] / all[f], all[f], f
        }
        for (d in folder_all) printf "3 %05.1f %% of %4d lines  %s/\n", 100 * folder_ran[d] / folder_all[d], folder_all[d], d
        if (sum_all == 0) { print "nothing was counted" >"/dev/stderr"; exit 1 }
        printf "4 %05.1f %% of %4d lines  in all\n", 100 * sum_ran / sum_all, sum_all
    }' | sort | cut -c3- | sed 's/^0*\([0-9]\)/\1/'
