#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What one layout adds to an older one, a line each; and every change of the older one, as a fault. Allowed is: a new struct,
# typedef or constant; fields at the end of a struct that says its own size; slots at the end of a table; a raised minor. What
# is longer needs a higher minor of its family. Usage: abi/append.sh OLD NEW (two outputs of abi/layout.sh print)
. "$(dirname "$0")/gate.sh"
need awk
old=${1:?usage: abi/append.sh OLD NEW}
new=${2:?usage: abi/append.sh OLD NEW}
work=$(mktemp)
trap 'rm -f "$work"' EXIT

# The family of a struct by the header that it stands in; what base.h and query.h have is core's.
families() {
    local header
    for header in core poll sync transfer move; do
        awk -v family=$header '$1 == "struct" && $3 == "{" { print $2, family }' "$top/include/convoy/$header.h"
    done
    awk '$1 == "struct" && $3 == "{" { print $2, "core" }' "$top"/include/convoy/{base,query}.h
    awk '$1 == "struct" && $3 == "{" { print $2, "transfer" }' "$top"/include/convoy/{device,payload}.h
}

families | awk -v old="$old" -v new="$new" '
    FILENAME == "-" { family[$1] = $2; next }
    function is_new() { return FILENAME == new }
    /^struct / {
        name = $2
        if (is_new()) size_new[name] = $3; else { size_old[name] = $3; order[++count] = name }
        next
    }
    /^  / {
        if (is_new()) field_new[name, ++fields_new[name]] = $0; else field_old[name, ++fields_old[name]] = $0
        next
    }
    $1 == "constant" {
        key = $2; $1 = ""; $2 = ""
        if (is_new()) constant_new[key] = $0; else constant_old[key] = $0
        next
    }
    NF { if (is_new()) line_new[$0] = 1; else line_old[$0] = 1 }
    function bad(text) { print "fault " text; }
    function version(values, key) { return values["CONVOY_" toupper(key) "_MINOR"] + 0 }
    function describes(text) { sub(/^ *[0-9]+ +[0-9]+ /, "", text); return text }
    function grow(name,    i, what) {
        if (field_old[name, 1] !~ /uint32_t struct_size$|struct convoy_table_header header$|uint32_t table_size$/)
            bad("struct " name " does not say its own size, so it cannot grow")
        what = family[name]
        if (version(constant_new, what) <= version(constant_old, what))
            bad("struct " name " is longer, and CONVOY_" toupper(what) "_MINOR is still" constant_old["CONVOY_" toupper(what) "_MINOR"])
        for (i = fields_old[name] + 1; i <= fields_new[name]; i++)
            print "added " (field_new[name, i] ~ /\(\*/ ? "slot " : "field ") name ": " describes(field_new[name, i])
    }
    function compare(name,    i) {
        if (!(name in size_new)) { bad("struct " name " is gone"); return }
        for (i = 1; i <= fields_old[name]; i++)
            if (field_old[name, i] != field_new[name, i]) {
                bad("struct " name ": was \"" describes(field_old[name, i]) "\" at" substr(field_old[name, i], 1, 7) ", is \"" describes(field_new[name, i]) "\" at" substr(field_new[name, i], 1, 7))
                return
            }
        if (fields_new[name] > fields_old[name]) grow(name)
        else if (size_old[name] != size_new[name]) bad("struct " name " has another size")
    }
    END {
        for (i = 1; i <= count; i++) compare(order[i])
        for (name in size_new) if (!(name in size_old)) print "added struct " name
        for (key in constant_old) {
            if (!(key in constant_new)) bad("constant " key " is gone")
            else if (key ~ /_MINOR$/ && constant_new[key] + 0 > constant_old[key] + 0) print "added minor " key ":" constant_old[key] " to" constant_new[key]
            else if (constant_new[key] != constant_old[key]) bad("constant " key " was" constant_old[key] ", is" constant_new[key])
        }
        for (key in constant_new) if (!(key in constant_old)) print "added constant " key constant_new[key]
        for (text in line_old) if (!(text in line_new)) bad("declaration is gone: " text)
        for (text in line_new) if (!(text in line_old)) print "added declaration " text
    }' - "$old" "$new" | sort >"$work"
while read -r kind words; do
    if [ "$kind" = fault ]; then fault "$words"; else echo "$kind $words"; fi
done <"$work"
[ "$faults" -eq 0 ]
