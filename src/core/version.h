/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges that this build states in its manifest: one place, so that the manifest and the code cannot differ. */
#ifndef CONVOY_CORE_VERSION_H
#define CONVOY_CORE_VERSION_H

#define CONVOY_WIRE_MIN 1
#define CONVOY_WIRE_MAX 1

/* UCX releases that are opened; others are refused with both versions in the text. */
#define CONVOY_UCX_RANGE "1.13 <= v < 2"
#define CONVOY_UCX_MAJOR_MIN 1
#define CONVOY_UCX_MINOR_MIN 13
#define CONVOY_UCX_MAJOR_END 2

#endif
