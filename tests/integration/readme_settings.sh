#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The table of settings in README.md is what src/core/settings.h says. Usage: readme_settings.sh (compares), or
# readme_settings.sh write (writes the table into README.md).
set -u
cd "$(dirname "$0")/../.." || exit 1
begin='<!-- settings: written by tests/integration/readme_settings.sh write -->'
end='<!-- end of settings -->'

table() {
    printf '| setting | default | allowed | what it is |\n|---|---|---|---|\n'
    sed -nE -e 's/^ +NUMBER\((\w+), ([0-9]+), ([0-9]+), ([0-9]+), +"(.*)"\).*/| `\1` | \2 | \3 to \4 | \5 |/p' \
        -e 's/^ +TEXT\((\w+), "([^"]*)", "([^"]*)", +"(.*)"\).*/\1\t\2\t\3\t\4/p' src/core/settings.h |
        awk -F'\t' 'NF == 1 { print; next }
            { gsub(/\|/, ", ", $3)
              printf "| `%s` | %s | %s | %s |\n", $1, $2 == "" ? "none" : $2, $3 == "" ? "any text" : $3, $4 }'
}

lines=$(table | wc -l)
rows=$(grep -cE '^ +(NUMBER|TEXT)\([a-z]' src/core/settings.h)
if [ "$lines" -ne $((rows + 2)) ] || [ "$rows" -lt 10 ]; then
    echo "[  FAILED  ] readme_settings_are_all_read"
    echo "    $rows settings, but $((lines - 2)) rows"
    exit 1
fi
if [ "${1:-}" = write ]; then
    table | awk -v begin="$begin" -v end="$end" '
        NR == FNR { row[++count] = $0; next }
        $0 == end { inside = 0 }
        !inside { print }
        $0 == begin { inside = 1; for (i = 1; i <= count; i++) print row[i] }' - README.md >README.md.new
    mv README.md.new README.md
    exit 0
fi
if diff <(table) <(sed -n "\|^$begin\$|,\|^$end\$|p" README.md | sed '1d;$d'); then
    echo "[       OK ] readme_settings_are_those_of_the_source"
else
    echo "[  FAILED  ] readme_settings_are_those_of_the_source"
    echo "    run tests/integration/readme_settings.sh write"
    exit 1
fi
