/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges that this build states in its manifest: one place, so that the manifest and the code cannot differ. */
#ifndef CONVOY_CORE_VERSION_H
#define CONVOY_CORE_VERSION_H

/* Frames of the rendezvous, cells of the segment, messages of the links. */
#define CONVOY_WIRE_MIN 1
#define CONVOY_WIRE_MAX 1

/* Formats of an exported state (core/bundle.h) that this build reads; it writes the highest. */
#define CONVOY_STATE_FORMAT_MIN 1
#define CONVOY_STATE_FORMAT_MAX 1

/* UCX releases that are opened; others are refused with both versions in the text. */
#define CONVOY_UCX_SUPPORTED "1.13 <= v < 2"
#define CONVOY_UCX_MAJOR 1u
#define CONVOY_UCX_MINOR_MIN 13u

#endif
