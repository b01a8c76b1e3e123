/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manifest as an ELF note, so that a tool can decide about the file without running any of it. The build id is
 * not repeated in the text: it is known only after linking, and the file's GNU note has it.
 */
#include "plugin/families.h"

#include "core/version.h"

#define WORD_OF(x) #x
#define WORD(x) WORD_OF(x)
#define OFFER(family, major, minor, table)                                                                             \
    "{\"name\":\"" #family "\",\"min\":\"" WORD(major) ".0\",\"max\":\"" WORD(major) "." WORD(minor) "\"}"
#define NEXT_OFFER(family, major, minor, table) "," OFFER(family, major, minor, table)

#define MANIFEST                                                                                                       \
    "{\"schema\":1,\"name\":\"convoy\",\"soname\":\"" CONVOY_SONAME "\",\"release\":\"" CONVOY_RELEASE "\","           \
    "\"families\":[" CONVOY_PLUGIN_FAMILIES(OFFER, NEXT_OFFER) "],"                                                    \
    "\"wire\":{\"min\":" WORD(CONVOY_WIRE_MIN) ",\"max\":" WORD(CONVOY_WIRE_MAX) "},"                                  \
    "\"state\":{\"min\":" WORD(CONVOY_STATE_FORMAT_MIN) ",\"max\":" WORD(CONVOY_STATE_FORMAT_MAX) "},"                 \
    "\"ucx\":\"" CONVOY_UCX_SUPPORTED "\",\"unload\":\"nodelete\"}"

#define ROUND_UP_4(n) (((n) + 3u) & ~3u)

/* An ELF note: header, owner, descriptor, the last two padded to 4 bytes. */
struct manifest_note {
    uint32_t owner_bytes;
    uint32_t text_bytes;
    uint32_t type;
    char owner[ROUND_UP_4(sizeof CONVOY_NOTE_OWNER)];
    char text[ROUND_UP_4(sizeof MANIFEST)];
};

/* The name of the section makes it SHT_NOTE, and the linker puts those under PT_NOTE, which survives `strip`. */
__attribute__((used, section(".note.convoy"), aligned(4))) static const struct manifest_note manifest_note = {
    .owner_bytes = sizeof CONVOY_NOTE_OWNER,
    .text_bytes = sizeof manifest_note.text,
    .type = CONVOY_NOTE_MANIFEST,
    .owner = CONVOY_NOTE_OWNER,
    .text = MANIFEST,
};

/* Filled in after linking, see src/load/stamp.c; 0 = not stamped. */
struct digest_note {
    uint32_t owner_bytes;
    uint32_t digest_bytes;
    uint32_t type;
    char owner[ROUND_UP_4(sizeof CONVOY_NOTE_OWNER)];
    uint32_t digest[2];
};

__attribute__((used, section(".note.convoy"), aligned(4))) static const struct digest_note digest_note = {
    .owner_bytes = sizeof CONVOY_NOTE_OWNER,
    .digest_bytes = sizeof digest_note.digest,
    .type = CONVOY_NOTE_DIGEST,
    .owner = CONVOY_NOTE_OWNER,
};

const char *convoy_manifest_text(size_t *length_out)
{
    *length_out = sizeof MANIFEST - 1;
    return manifest_note.text;
}
