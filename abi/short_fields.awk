# SPDX-License-Identifier: Apache-2.0
# Sources with the short forms of CONVOY_BUNDLE_FIELD that a file defines for itself written out, so that abi/registry.sh sees
# their tags: NAME(number, member) for a member of one struct, and NAME as another word for CONVOY_BUNDLE_FIELD.
FNR == 1 { delete type; delete prefix; delete alias }
/^#define [A-Z_]+\([a-z]+, member\) CONVOY_BUNDLE_FIELD\(/ {
    name = $2
    sub(/\(.*/, "", name)
    rest = $0
    sub(/.*CONVOY_BUNDLE_FIELD\([a-z]+, /, "", rest)
    type[name] = rest
    sub(/,.*/, "", type[name])
    sub(/^[^,]*, /, "", rest)
    sub(/member\).*/, "", rest)
    prefix[name] = rest
    next
}
/^#define [A-Z_]+ CONVOY_BUNDLE_FIELD$/ { alias[$2]; next }
{
    for (name in type) $0 = written_out(name, "CONVOY_BUNDLE_FIELD(", ", " type[name] ", " prefix[name])
    for (name in alias) $0 = written_out(name, "CONVOY_BUNDLE_FIELD(", ", ")
    print
}

# $0 with each NAME(number, replaced by begin, number, middle.
function written_out(name, begin, middle,    rest, out, number) {
    rest = $0
    out = ""
    while (match(rest, "(^|[^A-Z_a-z])" name "\\([0-9]+, *")) {
        number = substr(rest, RSTART, RLENGTH)
        out = out substr(rest, 1, RSTART - 1) (number ~ /^[A-Z]/ ? "" : substr(number, 1, 1))
        gsub(/[^0-9]/, "", number)
        out = out begin number middle
        rest = substr(rest, RSTART + RLENGTH)
    }
    return out rest
}
