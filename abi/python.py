#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes plugin/python/convoy/_abi.py from what abi/layout.sh prints of the public headers.

Usage: abi/layout.sh print | abi/python.py >plugin/python/convoy/_abi.py

Every struct, constant, callback and table slot of the Python package comes from here, so none is typed a second time.
All pointers become c_void_p: the package fills in addresses and keeps the memory behind them alive itself.
"""

import contextlib
import io
import keyword
import re
import sys

HEAD = '''# SPDX-License-Identifier: Apache-2.0
# Generated from the public headers by abi/python.py; `make abi-draft` writes it, and the gate abi/python.sh compares it.
"""Structs, constants, callback types and table slots of the C ABI, as the headers lay them out."""

from __future__ import annotations

from ctypes import CFUNCTYPE, Structure
from ctypes import %s
from typing import Any, Callable, ClassVar, Tuple

Slot = Callable[..., int]  # returns a status
Slots = Tuple[Tuple[str, int, Any], ...]  # name, offset in the table, prototype
'''

SCALARS = {
    "int8_t": "c_int8", "uint8_t": "c_uint8", "int16_t": "c_int16", "uint16_t": "c_uint16", "int32_t": "c_int32",
    "uint32_t": "c_uint32", "int64_t": "c_int64", "uint64_t": "c_uint64", "size_t": "c_size_t", "double": "c_double",
    "char": "c_char",
}
# What the tables' names say twice: convoy_poll_table is the table of family "poll".
TABLE = re.compile(r"^convoy_(\w+)_table$")


def refuse(text):
    sys.exit("abi/python.py: " + text)


def class_name(c_name):
    """convoy_poll_list_result -> PollListResult"""
    return "".join(part.capitalize() for part in c_name.replace("convoy_", "", 1).split("_"))


def scalar(c_type, aliases):
    """The ctypes name of a C type that is passed or stored by value."""
    c_type = c_type.strip()
    if "*" in c_type or c_type in aliases["callbacks"]:
        return "c_void_p"
    c_type = aliases["integers"].get(c_type, c_type)
    if c_type not in SCALARS:
        refuse('type "%s" has no counterpart' % c_type)
    return SCALARS[c_type]


def annotation(ctypes_name, count):
    if ctypes_name == "c_char":
        return "bytes"
    if count:
        return "Any"
    return {"c_void_p": "Any", "c_double": "float"}.get(ctypes_name, "int")


def read_layout(lines):
    """Structs as [name, size, [(offset, size, declaration)]], declarations, constants as (name, text)."""
    structs, declarations, constants = [], [], []
    for line in lines:
        line = line.rstrip("\n")
        if line.startswith("struct "):
            structs.append([line.split()[1], int(line.split()[2]), []])
        elif line.startswith("  hole"):
            refuse("implicit padding in struct %s" % structs[-1][0])
        elif line.startswith("  "):
            offset, size, text = line.split(None, 2)
            structs[-1][2].append((int(offset), int(size), text))
        elif line.startswith("constant "):
            constants.append(tuple(line.split(None, 2)[1:]))
        elif line:
            declarations.append(line)
    return structs, declarations, constants


def read_aliases(declarations):
    integers, callbacks = {}, {}
    for line in declarations:
        function = re.match(r"typedef (\w+) \(\*(\w+)\)\((.*)\);$", line)
        plain = re.match(r"typedef (\w+) (\w+);$", line)
        if function:
            callbacks[function.group(2)] = (function.group(1), split_arguments(function.group(3)))
        elif plain:
            integers[plain.group(2)] = plain.group(1)
    return {"integers": integers, "callbacks": callbacks}


def split_arguments(text):
    return [] if text.strip() in ("", "void") else [argument.strip() for argument in text.split(",")]


def unnamed(argument):
    """The type of "const char *name" or of "uint32_t level"."""
    if "*" in argument:
        return argument[: argument.rindex("*") + 1]
    return argument.split()[0]


def prototype(result, arguments, aliases, named):
    types = [scalar(unnamed(a) if named else a, aliases) for a in arguments]
    return "CFUNCTYPE(%s)" % ", ".join(["None" if result == "void" else scalar(result, aliases)] + types)


def function_field(text):
    return re.match(r"(\w+) \(\*(\w+)\)\((.*)\)$", text)


def attribute(name):
    """The name of a field, which must not be a word of Python's own."""
    return name + "_" if keyword.iskeyword(name) else name


def field(text, aliases):
    """(name, ctypes name, count) of a data field or a function pointer."""
    function = function_field(text)
    if function:
        return function.group(2), "c_void_p", 0
    declaration, _, count = text.partition("[")
    c_type, _, name = declaration.rpartition(" ")
    name += "_" if keyword.iskeyword(name) else ""
    if c_type.startswith("struct ") and "*" not in c_type:
        refuse("a struct is embedded: %s" % text)
    return attribute(name), scalar(c_type, aliases), int(count.rstrip("]") or 0) if count else 0


def print_struct(name, size, fields, aliases):
    print("\n\nclass %s(Structure):" % class_name(name))
    print('    """struct %s, %d bytes."""\n' % (name, size))
    rows = [field(text, aliases) for _, _, text in fields]
    for field_name, ctypes_name, count in rows:
        print("    %s: %s" % (field_name, annotation(ctypes_name, count)))
    print("\n    _fields_ = [")
    for field_name, ctypes_name, count in rows:
        print('        ("%s", %s),' % (field_name, "%s * %d" % (ctypes_name, count) if count else ctypes_name))
    print("    ]")


def print_table(name, family, size, fields, aliases):
    functions = [(offset, function_field(text)) for offset, _, text in fields if function_field(text)]
    print("\n\nclass %s:" % class_name(name))
    print('    """Functions of family "%s"; a slot that the loaded build lacks raises Unsupported."""\n' % family)
    print('    FAMILY: ClassVar[str] = "%s"' % family)
    print("    MAJOR: ClassVar[int] = %s_MAJOR" % family.upper())
    print("    MINOR: ClassVar[int] = %s_MINOR" % family.upper())
    print("    TABLE_SIZE: ClassVar[int] = %d" % size)
    print("    SLOTS: ClassVar[Slots] = (")
    for offset, function in functions:
        text = prototype(function.group(1), split_arguments(function.group(3)), aliases, False)
        line = '        ("%s", %d, %s),' % (function.group(2), offset, text)
        if len(line) > 120:
            line = '        ("%s", %d,\n         %s),' % (function.group(2), offset, text)
        print(line)
    print("    )\n")
    for _, function in functions:
        print("    %s: Slot" % function.group(2))


def print_constant(name, text):
    name = name.replace("CONVOY_", "", 1)
    print("%s = %s" % (name, text if text.startswith('"') else int(text.strip("()").rstrip("u"), 0)))


def main():
    structs, declarations, constants = read_layout(sys.stdin)
    if not structs:
        refuse("standard input has no layout; abi/layout.sh print gives one")
    aliases = read_aliases(declarations)
    body = io.StringIO()
    with contextlib.redirect_stdout(body):
        print_all(structs, declarations, constants, aliases)
    used = sorted(set(re.findall(r"\bc_\w+\b", body.getvalue())))
    sys.stdout.write(HEAD % ", ".join(used) + body.getvalue())


def print_all(structs, declarations, constants, aliases):
    print()
    for name, text in constants:
        print_constant(name, text)
    print()
    for name, (result, arguments) in sorted(aliases["callbacks"].items()):
        if name != "convoy_query_fn":
            print("%s = %s" % (class_name(name), prototype(result, arguments, aliases, True)))
    query = next(line for line in declarations if " convoy_query(" in line)
    arguments = split_arguments(query[query.index("(") + 1 : query.rindex(")")])
    print("QUERY_RESULT = c_int32\nQUERY_ARGUMENTS = [%s]" %
          ", ".join(scalar(unnamed(argument), aliases) for argument in arguments))
    for name, size, fields in structs:
        family = TABLE.match(name)
        if family and any(c == "CONVOY_%s_MAJOR" % family.group(1).upper() for c, _ in constants):
            print_table(name, family.group(1), size, fields, aliases)
        else:
            print_struct(name, size, fields, aliases)
    print("\n\nSIZES = {  # bytes of each struct in the headers")
    for name, size, _ in structs:
        family = TABLE.match(name)
        if not (family and any(c == "CONVOY_%s_MAJOR" % family.group(1).upper() for c, _ in constants)):
            print("    %s: %d," % (class_name(name), size))
    print("}")


main()
