/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linked into the shared object only. The distribution's static jansson is built for executables: its load.o takes the
 * address of libc's `stdin` (json_loadf compares its stream with it) in a way that a shared object cannot relocate. A
 * hidden variable of that name resolves the reference inside the object. Nothing here reads JSON from a stream, so
 * nobody ever compares with it; no file that includes stdio.h may rely on it, hence no header.
 */
extern void *stdin __attribute__((visibility("hidden")));
void *stdin;
