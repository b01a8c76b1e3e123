#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gate: what the shared object exports, needs and carries (abi/README.md, "symbols"). Usage: abi/symbols.sh LIBRARY
. "$(dirname "$0")/gate.sh"
need readelf nm awk sort
library=${1:?usage: abi/symbols.sh LIBRARY}
[ -r "$library" ] || { fault "$library is not there"; finish; }
dynamic=$(readelf -dW "$library")
segments=$(readelf -lW "$library")
notes=$(readelf -nW "$library" 2>/dev/null)

# Exactly one exported symbol, a function (a data object would be cut to its old size by copy relocation).
exported=$(nm -D --defined-only --with-symbol-versions "$library" | awk '$2 != "A" { print $2, $3 }')
[ "$exported" = "T convoy_query@@CONVOY_1" ] || fault "exports must be \"T convoy_query@@CONVOY_1\", found: ${exported:-nothing}"
readelf --dyn-syms -W "$library" | grep -q ' UNIQUE ' && fault "has a UNIQUE symbol; it could never be unloaded"

# Nothing that ties it to threads or to the end of the process.
grep -q '^  TLS ' <<<"$segments" && fault "has a TLS segment"
undefined=$(nm -D --undefined-only "$library" | awk '{ sub(/@.*/, "", $NF); print $NF }')
for name in atexit __cxa_atexit on_exit __cxa_thread_atexit_impl pthread_atfork __register_atfork __tls_get_addr; do
    grep -qx "$name" <<<"$undefined" && fault "uses $name"
done

# libc only: UCX and CUDA are opened when first needed, everything else is linked in. ld-linux counts as libc.
needed=$(awk '/\(NEEDED\)/ { gsub(/[][]/, "", $NF); print $NF }' <<<"$dynamic")
for name in $needed; do
    case $name in
    libc.so.6 | ld-linux-x86-64.so.2 | ld-linux-aarch64.so.1) ;;
    *) fault "needs $name; only libc is allowed" ;;
    esac
done
grep -qE '\((RPATH|RUNPATH)\)' <<<"$dynamic" && fault "has a run path"
grep -q '(TEXTREL)' <<<"$dynamic" && fault "has text relocations"

floor=$(readelf -VW "$library" | grep -oE 'GLIBC_[0-9.]+' | sort -Vu | tail -n 1)
newest=$(printf '%s\n%s\n' "${floor:-GLIBC_0}" GLIBC_2.34 | sort -V | tail -n 1)
[ "$newest" = GLIBC_2.34 ] || fault "needs $floor; the floor is GLIBC_2.34"
readelf -VW "$library" | grep -q 'GLIBC_ABI_DT_RELR' && fault "needs GLIBC_ABI_DT_RELR, which is glibc 2.36"

# What the loader and operators rely on.
grep -q 'Build ID: [0-9a-f]\{40\}' <<<"$notes" || fault "has no build id of 40 digits"
readelf -SW "$library" | grep -q ' \.note\.convoy  *NOTE ' || fault "has no .note.convoy section"
grep -q '(SONAME).*\[libconvoy\.so\.1\]' <<<"$dynamic" || fault "its SONAME is not libconvoy.so.1"
for flag in NOW NODELETE; do
    grep -qE "\(FLAGS_1\).* $flag( |\$)" <<<"$dynamic" || fault "is linked without -z ${flag,,}"
done
grep -q '^  GNU_RELRO ' <<<"$segments" || fault "is linked without -z relro"
grep -E '^  GNU_STACK ' <<<"$segments" | grep -q 'RWE' && fault "asks for an executable stack"

# The C runtime brings one entry each (frame_dummy, __do_global_dtors_aux); more would be code that runs at load.
for array in INIT_ARRAYSZ FINI_ARRAYSZ; do
    bytes=$(awk -v tag="($array)" '$2 == tag { print $3 }' <<<"$dynamic")
    [ "${bytes:-0}" -le 8 ] || fault "$array is $bytes bytes; the C runtime has 8"
done
grep -q '(PREINIT_ARRAY)' <<<"$dynamic" && fault "has pre-initialisers"
finish
