#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that every public report in tests/threads.tsv is covered by tests that ran and passed. Usage:
#   tests/threads.sh [LOG]     LOG as tests/run.sh writes it (default build/tests.log)
# Columns of the table: report, public threads, "program:test" separated by commas, and either nothing or
# "skip-ok:REASON" where a skip counts as well (what the test needs is not on every machine). Comments say which report a
# test is about: each test's file has one of the numbers, and each number is in one of the files. Exit status 1: a
# report is missing, not named or not covered; the last line is "N passed, N failed, N skipped" over the reports.
set -u
cd "$(dirname "$0")/.." || exit 1
log=${1:-build/tests.log}
required='P01 P02 P03 P04 P05 P06 P07 P08 P09 P10 P11 P12 P13 P14 P15 P16 P17 P18 P19 P20 P21 P22 P23
D01 D02 D03 D04 D05 D06 D07 D08 D09 D10 D11 D12 D13 D14 D17 D18 D19
T01 T02 T03 T04 T05 T06 T07 T08 T09 T10 T11 T12 T13 T14 T15 T16 T17 T18
T19 T20 T21 T22 T23 T24 T25 T26 T27 T28 T29 T30
U01 U02 U05 U06 U07 U08 U09 U10 U11 U12 U14 U15 U16 U17 U18 U19 U20 U21 U22 U23 U24 U25 U26 U28 U29 U30'
[ -r "$log" ] || { echo "tests/threads.sh: no log $log: run the tests first"; exit 1; }

# Prints "report<TAB>reason" for every number that is not where it should be.
missing_numbers() {
    local report threads tests test file number numbers named all
    while IFS=$'\t' read -r report threads tests _; do
        [[ $report == [A-Z]* ]] || continue
        numbers=$(tr -s ' ,;' '\n' <<<"$threads" | grep -xE '[0-9]+')
        all=
        for test in ${tests//,/ }; do
            file=$(grep -rlw --include='*.c' --include='*.py' -e "${test#*:}" tests | head -n 1)
            [ -n "$file" ] || { printf '%s\t%s is in no source\n' "$report" "${test#*:}"; continue; }
            named=$(grep -E '^(/\*| \*|#)' "$file" | grep -woF "$numbers" | sort -u) # in a comment
            [ -n "$named" ] || printf '%s\t%s does not name it\n' "$report" "$file"
            all+=" $named"
        done
        for number in $numbers; do
            grep -qw "$number" <<<"$all" || printf '%s\tno test names %s\n' "$report" "$number"
        done
    done <tests/threads.tsv
}

unnamed=$(mktemp)
trap 'rm -f "$unnamed"' EXIT
missing_numbers >"$unnamed"
awk -F'\t' -v required="$required" -v log_file="$log" -v unnamed_file="$unnamed" '
    FILENAME == log_file { result[$2] = result[$2] " " $1; next }
    FILENAME == unnamed_file { unnamed[$1] = unnamed[$1] " " $2 ";"; next }
    /^#/ || NF == 0 { next }
    { seen[$1]++
      reasons = unnamed[$1]
      may_skip = $4 ~ /^skip-ok:./
      if (NF > 4 || (NF == 4 && $4 != "" && !may_skip) || $2 == "" || $3 == "") reasons = " the line is not well formed;"
      count = split($3, tests, /, */)
      skips = 0
      for (i = 1; i <= count; i++) {
          found = result[tests[i]]
          if (found == "") reasons = reasons " " tests[i] " did not run;"
          else if (found ~ /failed/) reasons = reasons " " tests[i] " failed;"
          else if (found !~ /passed/) { if (may_skip) skips++; else reasons = reasons " " tests[i] " was skipped;" }
      }
      if (reasons != "") { failed++; print "report " $1 " (" $2 ") is not covered:" reasons }
      else if (skips == count) { skipped++; print "skipped: report " $1 ": " substr($4, 9) }
      else passed++ }
    END { wanted = split(required, ids, /[ \n]+/)
          for (i = 1; i <= wanted; i++)
              if (seen[ids[i]] != 1) { failed++; print "report " ids[i] " has " seen[ids[i]] + 0 " lines in the table" }
          printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
          exit failed != 0 }' "$log" "$unnamed" tests/threads.tsv
