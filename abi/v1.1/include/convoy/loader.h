/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convoy/loader.h: the host's side of loading a plugin. A static library (libconvoy_loader.a), linked into the host.
 *
 *   inspect   what a file is, without running any of it
 *   open      find a file, decide from it alone, load it, check that what was loaded is that file, negotiate
 *   host_*    one function per table slot, on handles that the loader owns
 *   swap      put another build behind all handles while the host goes on
 *   close     when no context is open any more; the code of every build stays mapped until the process ends
 *
 * Hosts hold the loader's handles, never the plugin's own. A handle is bound to {table, inner object} of one build, and a
 * swap binds it anew. A call costs two loads more than a call through the table. What the plugin lacks is never NULL: such
 * a slot answers UNSUPPORTED. A probe that fails is no log line; one info line states what was agreed.
 *
 * The loader is part of the host: header and library are of one release, so its own structs carry no size. No file
 * can make it crash: one that is missing, unreadable, truncated, corrupt, no ELF file, or of another machine is a
 * status with a text.
 */
#ifndef CONVOY_LOADER_H
#define CONVOY_LOADER_H

#include "convoy/convoy.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CONVOY_LOADER_PATH_BYTES 1024
#define CONVOY_LOADER_FAMILIES_MAX 16

/* -- inspect ------------------------------------------------------------------------------------------------------ */

/* One family that a file offers, one row per major. */
struct convoy_file_family {
    char name[32];
    uint16_t major_min;
    uint16_t minor_min;
    uint16_t major_max;
    uint16_t minor_max;
};

/* What a file says about itself. OUT, owned by the caller, about 10 KiB. Strings end in a zero; empty = not there. */
struct convoy_file_info {
    char path[CONVOY_LOADER_PATH_BYTES];
    uint32_t machine; /* ELF machine number, 0 = not an ELF file */
    uint32_t bits;    /* 32 or 64 */
    char machine_name[24];
    char soname[128];
    char build_id[72]; /* hexadecimal */
    char name[32];     /* from here on: from the manifest */
    char release[32];
    char ucx[32];    /* UCX releases it opens, such as "1.13 <= v < 2" */
    char unload[32]; /* "nodelete": stays mapped */
    uint32_t wire_min;
    uint32_t wire_max;
    uint32_t state_min; /* formats of an exported state that it reads; it writes the highest */
    uint32_t state_max; /* 0 = none: it cannot be swapped */
    uint32_t has_digest; /* 1 = the hash of its loaded bytes that the file carries was there and matched */
    uint32_t family_count;
    struct convoy_file_family families[CONVOY_LOADER_FAMILIES_MAX];
    size_t manifest_length;
    char manifest[8200]; /* the JSON text as it stands in the file */
};

/*
 * Reads what a file says about itself; runs none of it. info_out: written as far as it is known, also on failure.
 * NOT_FOUND: no such file. SYSTEM: not readable. BAD_FILE: no usable shared object of this machine, truncated, corrupt,
 * or its digest does not match. NO_ENTRY: a shared object without convoy's note. TOO_NEW: a manifest schema of a later
 * release.
 * [any thread; blocks for file reads; allocates; any state; since 1.0]
 */
int32_t convoy_loader_inspect(const char *path, struct convoy_file_info *info_out, struct convoy_error *error);

/*
 * The same from a manifest's text alone, as a frozen release keeps it: what the ELF file would say stays empty.
 * INVALID_ARGUMENT: no text, or one longer than a file's manifest can be. BAD_FILE, TOO_NEW: as above. NO_MEMORY.
 * [any thread; does not block; allocates; any state; since 1.0]
 */
int32_t convoy_loader_inspect_manifest(const char *text, size_t length, struct convoy_file_info *info_out,
                                       struct convoy_error *error);

/* -- open and close ----------------------------------------------------------------------------------------------- */

typedef struct convoy_loader convoy_loader;             /* the build that runs, and those that ran before */
typedef struct convoy_host_context convoy_host_context; /* the host's handle of a context */
typedef struct convoy_host_group convoy_host_group;     /* the host's handle of a group */
typedef struct convoy_host_engine convoy_host_engine;   /* the host's handle of a transfer engine */

#define CONVOY_LOADER_REQUIRE_ALL 1u /* a refused family fails the open; otherwise only "core" must be agreed */

/* IN: all zero is valid. */
struct convoy_loader_options {
    const char *path; /* file to load, ends in a zero; NULL = search: CONVOY_LIBRARY, beside the executable, the
                         dynamic linker's own directories. A path or CONVOY_LIBRARY that is set is the only candidate */
    uint32_t flags;      /* CONVOY_LOADER_* */
    uint32_t log_level;  /* 0 = info */
    convoy_log_fn log;   /* NULL = nowhere; called on the caller's thread */
    void *log_user;
    const char *host_name; /* who asks, for the plugin's logs; ends in a zero; may be NULL */
    const struct convoy_family_request *families; /* NULL = all, as these headers know them */
    size_t family_count; /* at most CONVOY_LOADER_FAMILIES_MAX; without "move" among them there is no swap */
};

/* What was loaded. Lives as long as its loader, also when another build has taken over. */
struct convoy_loader_info {
    struct convoy_file_info file;
    uint32_t was_mapped; /* 1 = this build was mapped before: nothing was loaded */
    uint32_t family_count;
    char family_names[CONVOY_LOADER_FAMILIES_MAX][32];
    struct convoy_family_answer answers[CONVOY_LOADER_FAMILIES_MAX]; /* what each request was answered */
};

/*
 * Finds, checks and loads a plugin. Decides from the file before any of its code runs; loads it with RTLD_NOW and
 * RTLD_LOCAL; then verifies that the entry lies in that file and that the mapped build id is the inspected one (a file
 * replaced under the same name is loaded under another spelling of its path). A build that is mapped already is used
 * again. loader_out: gives (convoy_loader_close).
 * As convoy_loader_inspect, and: NOT_FOUND: text lists where it was searched. TOO_OLD, TOO_NEW, UNSUPPORTED: a family
 * that is needed is refused; text has both ranges. INIT_FAILED: the dynamic linker refused it (its words are in the
 * text), or its query failed. NO_ENTRY: it has no convoy_query.
 * [any thread; blocks for file reads; allocates; any state; since 1.0]
 */
int32_t convoy_loader_open(const struct convoy_loader_options *options, convoy_loader **loader_out,
                           struct convoy_error *error);

/* Forgets all its builds; their code stays mapped, so a thread that is still in it does no harm. NULL is a no-op.
 * BUSY: contexts are open, text says how many, or a swap is under way; nothing was closed.
 * [one thread; never blocks; all contexts closed; since 1.0] */
int32_t convoy_loader_close(convoy_loader *loader, struct convoy_error *error);

/* Of the build that runs; a build that an earlier open or swap had loaded keeps the path it was found at then. Never NULL.
 * [any thread; never blocks; open; since 1.0] */
const struct convoy_loader_info *convoy_loader_info(const convoy_loader *loader);

/* The own table of a requested family of the build that runs, or NULL when it was refused. For families that have no host
 * functions here; handles of the two worlds do not mix. [any thread; never blocks; open; since 1.0] */
const struct convoy_table_header *convoy_loader_table(const convoy_loader *loader, const char *family);

/* -- swap ---------------------------------------------------------------------------------------------------------- */
/*
 * Every context of the loader, with its groups and engines, goes over to another build (convoy/move.h). The host keeps its
 * handles, operations, transfers and peers; members in other processes notice a pause and nothing else.
 *
 *   phase      what is done, over all contexts                              calls of the host meanwhile
 *   loading    find, inspect and decide as at open; load; same families     as always; opens and closes of contexts and
 *   preparing  each context is opened in the new build too                  opens of groups and engines wait for the end
 *   quiescing  the old build begins nothing more and ends what is open      the pause: what the old build would begin waits
 *   exporting  it says what it has                                          the same
 *   importing  the new one makes the same                                   the same
 *   resuming   the new one goes on: from here there is no way back          the same
 *   switching  the handles are bound to it                                  the pause ends
 *   retiring   the old one frees all but its handles                        run in the new build
 *
 * What fails before `resuming` is over is undone: the new contexts are closed, the old ones go on, no call is lost. With
 * several contexts the first that resumes decides: when a later one cannot, that one and those after it stay with the old
 * build, where they go on, the status says why, and the same swap can be called again for the rest; until then the loader's
 * current build is the old one. What a host had closed, or had failed to open, stays behind in the old build as a tombstone.
 *
 * A call that finds the pause waits for its end, also one that is tagged [never blocks]; it is answered by whichever build
 * goes on. What is left of a timeout is counted as if the call had not been interrupted when it had waited before, and from
 * anew when it had not. A call from a log callback inside the swap itself cannot wait for it and is BUSY, as is a call that
 * waits for a swap which has not ended 10 s (opens: 30 s) after its timeout.
 */
#define CONVOY_SWAP_LOADING 1
#define CONVOY_SWAP_PREPARING 2
#define CONVOY_SWAP_QUIESCING 3
#define CONVOY_SWAP_EXPORTING 4
#define CONVOY_SWAP_IMPORTING 5
#define CONVOY_SWAP_RESUMING 6
#define CONVOY_SWAP_SWITCHING 7
#define CONVOY_SWAP_RETIRING 8
#define CONVOY_SWAP_DONE 9

struct convoy_swap_build {
    char release[32];
    char build_id[72]; /* hexadecimal; empty = not known yet */
};

/* What a swap did. OUT, owned by the caller; on failure written as far as it came. */
struct convoy_swap_result {
    struct convoy_swap_build from;
    struct convoy_swap_build to;
    uint32_t phase;         /* CONVOY_SWAP_*: DONE, or where it failed */
    uint32_t was_mapped;    /* 1 = the new build was mapped before: nothing was loaded */
    uint32_t context_count; /* that were handed over */
    uint32_t group_count;
    uint32_t engine_count;
    uint32_t late_count; /* contexts whose old build a call is still inside of; context_close retires those */
    uint64_t state_bytes; /* exported */
    uint64_t pause_ns;    /* from the first refusal of new work until whoever waited is woken */
    uint64_t load_ns;
    uint64_t prepare_ns;
    uint64_t quiesce_ns;
    uint64_t export_ns;
    uint64_t import_ns;
    uint64_t switch_ns; /* resuming and switching */
    uint64_t retire_ns;
    uint64_t total_ns; /* with undoing, where there was some */
};

/*
 * Puts the build in a file behind all handles of a loader. A build that is mapped already is used again; a file replaced
 * under its own name, a link and a copy all give the build that is in the file. Every family that was agreed by
 * convoy_loader_open must be agreed again, in any version both sides know. The file's options are those of
 * convoy_loader_open. Writes one line to the loader's log: info when done, warn when it failed. result_out may be NULL. The
 * error's text begins with the phase.
 * timeout_ns: for quiescing, and again for retiring; 0 = 5 s.
 * Finding and loading: as convoy_loader_open. INVALID_ARGUMENT: NULL; the file holds the very build that runs. UNSUPPORTED:
 * one of the builds has no family "move", or it was not asked for; an object cannot be handed over. BUSY: another swap of
 * this loader is under way. DRAIN_TIMEOUT: a call, a round or a copy has not ended in time; text names it. NO_MEMORY,
 * FORKED. Preparing, importing and resuming: what context_open, import_state and resume of the new build say.
 * [one thread, which is in no other call of this loader; blocks for file reads, and up to twice timeout_ns; allocates; open;
 * since 1.0]
 */
int32_t convoy_loader_swap(convoy_loader *loader, const char *path, uint64_t timeout_ns,
                           struct convoy_swap_result *result_out, struct convoy_error *error);

/* -- core: see convoy_core_table for what each does --------------------------------------------------------------- */
/*
 * Each function does what the slot of its name does, on the loader's handles. Beside the slot's own statuses:
 * INVALID_ARGUMENT: the handle is NULL. UNSUPPORTED: the loaded plugin does not offer it. NO_MEMORY: no handle. BUSY: a
 * swap, see there; never MOVED.
 * Ownership, errors and tags are the slot's: convoy_host_<name> is slot <name> of the table that the section names; where
 * the slot's name alone would not say of what, convoy_host_transfer_<name>. A handle that an open gives is freed by
 * the close of its context.
 */
int32_t convoy_host_context_open(convoy_loader *loader, const struct convoy_context_config *config,
                                 convoy_host_context **context_out, struct convoy_error *error);
int32_t convoy_host_context_close(convoy_host_context *context, uint64_t timeout_ns, struct convoy_error *error);
int32_t convoy_host_context_describe(convoy_host_context *context, uint32_t topic,
                                     struct convoy_text_buffer *text_out, struct convoy_error *error);
int32_t convoy_host_group_open(convoy_host_context *context, const struct convoy_group_options *options,
                               convoy_host_group **group_out, struct convoy_error *error);
int32_t convoy_host_group_open_start(convoy_host_context *context, const struct convoy_group_options *options,
                                     convoy_host_group **group_out, struct convoy_error *error);
int32_t convoy_host_group_open_test(convoy_host_group *group, struct convoy_error *error);
int32_t convoy_host_group_open_wait(convoy_host_group *group, uint64_t timeout_ns, struct convoy_error *error);
int32_t convoy_host_group_close(convoy_host_group *group, uint64_t timeout_ns, struct convoy_error *error);
int32_t convoy_host_group_cancel(convoy_host_group *group, const char *reason, size_t reason_length,
                                 struct convoy_error *error);
int32_t convoy_host_group_reopen(convoy_host_group *group, uint64_t timeout_ns,
                                 struct convoy_reopen_result *result_out, struct convoy_error *error);
int32_t convoy_host_operation_abandon(convoy_host_group *group, convoy_operation operation,
                                      struct convoy_error *error);
int32_t convoy_host_operation_report(convoy_host_group *group, struct convoy_report *report_out,
                                     struct convoy_error *error);
int32_t convoy_host_group_info(convoy_host_group *group, struct convoy_group_info *info_out,
                               struct convoy_error *error);
int32_t convoy_host_group_describe(convoy_host_group *group, uint32_t topic, struct convoy_text_buffer *text_out,
                                   struct convoy_error *error);

/* -- poll: see convoy_poll_table ----------------------------------------------------------------------------------- */

int32_t convoy_host_reduce_start(convoy_host_group *group, const struct convoy_poll_call *call,
                                 convoy_operation *operation_out, struct convoy_error *error);
int32_t convoy_host_reduce_test(convoy_host_group *group, convoy_operation operation,
                                struct convoy_poll_result *result_out, struct convoy_error *error);
int32_t convoy_host_reduce_wait(convoy_host_group *group, convoy_operation operation, uint64_t timeout_ns,
                                struct convoy_poll_result *result_out, struct convoy_error *error);
int32_t convoy_host_reduce(convoy_host_group *group, const struct convoy_poll_call *call, uint64_t timeout_ns,
                           struct convoy_poll_result *result_out, struct convoy_error *error);
/* first and second: of one loader. */
int32_t convoy_host_reduce2_start(convoy_host_group *first, convoy_host_group *second,
                                  const struct convoy_poll_call *call, convoy_operation *operation_out,
                                  struct convoy_error *error);
int32_t convoy_host_reduce2_test(convoy_host_group *first, convoy_operation operation,
                                 struct convoy_poll_result *result_out, struct convoy_error *error);
int32_t convoy_host_reduce2_wait(convoy_host_group *first, convoy_operation operation, uint64_t timeout_ns,
                                 struct convoy_poll_result *result_out, struct convoy_error *error);
int32_t convoy_host_reduce2_abandon(convoy_host_group *first, convoy_operation operation, struct convoy_error *error);
int32_t convoy_host_consensus(convoy_loader *loader, const struct convoy_poll_consensus *input, uint8_t *states_out,
                              struct convoy_error *error);

/* -- sync: see convoy_sync_table ----------------------------------------------------------------------------------- */

int32_t convoy_host_gather_start(convoy_host_group *group, const struct convoy_sync_call *call,
                                 convoy_operation *operation_out, struct convoy_error *error);
int32_t convoy_host_gather_test(convoy_host_group *group, convoy_operation operation,
                                struct convoy_sync_result *result_out, struct convoy_error *error);
int32_t convoy_host_gather_wait(convoy_host_group *group, convoy_operation operation, uint64_t timeout_ns,
                                struct convoy_sync_result *result_out, struct convoy_error *error);
int32_t convoy_host_gather(convoy_host_group *group, const struct convoy_sync_call *call, uint64_t timeout_ns,
                           struct convoy_sync_result *result_out, struct convoy_error *error);
int32_t convoy_host_padded_size(convoy_loader *loader, const struct convoy_sync_padding *input,
                                struct convoy_sync_padded *padded_out, struct convoy_error *error);
int32_t convoy_host_starts(convoy_loader *loader, const struct convoy_sync_padding *input, int64_t extent,
                           int64_t *starts_out, struct convoy_error *error);

/* -- transfer: see convoy_transfer_table --------------------------------------------------------------------------- */

int32_t convoy_host_engine_open(convoy_host_context *context, const struct convoy_transfer_options *options,
                                convoy_host_engine **engine_out, struct convoy_error *error);
int32_t convoy_host_engine_close(convoy_host_engine *engine, uint64_t timeout_ns, struct convoy_error *error);
int32_t convoy_host_engine_info(convoy_host_engine *engine, struct convoy_engine_info *info_out,
                                struct convoy_error *error);
int32_t convoy_host_engine_describe(convoy_host_engine *engine, uint32_t topic, struct convoy_text_buffer *text_out,
                                    struct convoy_error *error);
int32_t convoy_host_pool_figures(convoy_host_engine *engine, struct convoy_engine_figures *figures_out,
                                 struct convoy_error *error);
int32_t convoy_host_pool_fits(convoy_host_engine *engine, const uint64_t *bytes, size_t count,
                              struct convoy_error *error);
int32_t convoy_host_pool_resize(convoy_host_engine *engine, uint64_t bytes, struct convoy_error *error);
int32_t convoy_host_peer_connect(convoy_host_engine *engine, const char *session, size_t session_length,
                                 uint64_t timeout_ns, convoy_peer *peer_out, struct convoy_error *error);
int32_t convoy_host_peer_disconnect(convoy_host_engine *engine, convoy_peer peer, struct convoy_error *error);
int32_t convoy_host_peer_info(convoy_host_engine *engine, convoy_peer peer, struct convoy_peer_info *info_out,
                              struct convoy_error *error);
int32_t convoy_host_stage_start(convoy_host_engine *engine, const struct convoy_stage *stage,
                                convoy_transfer *staged_out, struct convoy_error *error);
int32_t convoy_host_transfer_descriptor(convoy_host_engine *engine, convoy_transfer staged, uint32_t form,
                                        struct convoy_text_buffer *text_out, struct convoy_error *error);
int32_t convoy_host_send_start(convoy_host_engine *engine, const struct convoy_stage *stage,
                               const struct convoy_send *send, convoy_transfer *transfer_out,
                               struct convoy_error *error);
int32_t convoy_host_accept_start(convoy_host_engine *engine, const struct convoy_load *load,
                                 convoy_transfer *transfer_out, struct convoy_error *error);
int32_t convoy_host_load_start(convoy_host_engine *engine, const struct convoy_load *load,
                               convoy_transfer *transfer_out, struct convoy_error *error);
int32_t convoy_host_transfer_test(convoy_host_engine *engine, convoy_transfer transfer,
                                  struct convoy_transfer_result *result_out, struct convoy_error *error);
int32_t convoy_host_transfer_wait(convoy_host_engine *engine, convoy_transfer transfer, uint64_t timeout_ns,
                                  struct convoy_transfer_result *result_out, struct convoy_error *error);
int32_t convoy_host_transfer_send(convoy_host_engine *engine, const struct convoy_stage *stage,
                                  const struct convoy_send *send, convoy_transfer *transfer_out,
                                  struct convoy_error *error);
int32_t convoy_host_transfer_accept(convoy_host_engine *engine, const struct convoy_load *load,
                                    convoy_transfer *transfer_out, struct convoy_error *error);
int32_t convoy_host_transfer_payload(convoy_host_engine *engine, convoy_transfer transfer,
                                     struct convoy_payload *payload_out, struct convoy_error *error);
int32_t convoy_host_transfer_release(convoy_host_engine *engine, convoy_transfer transfer, struct convoy_error *error);
int32_t convoy_host_transfer_abort(convoy_host_engine *engine, convoy_transfer transfer, const char *reason,
                                   size_t reason_length, struct convoy_error *error);
int32_t convoy_host_transfer_reserve(convoy_host_engine *engine, const struct convoy_reserve *reserve,
                                     struct convoy_reservation *reservation_out, struct convoy_error *error);
int32_t convoy_host_transfer_query(convoy_host_engine *engine, const struct convoy_transfer_query *query,
                                   uint64_t timeout_ns, struct convoy_transfer_answer *answer_out,
                                   struct convoy_error *error);
int32_t convoy_host_transfer_completions(convoy_host_engine *engine, struct convoy_completion *completions_out,
                                         size_t stride, size_t capacity, size_t *count_out,
                                         struct convoy_error *error);
int32_t convoy_host_memory_register(convoy_host_engine *engine, void *memory, uint64_t bytes,
                                    struct convoy_error *error);
int32_t convoy_host_memory_deregister(convoy_host_engine *engine, void *memory, uint64_t bytes,
                                      struct convoy_error *error);
int32_t convoy_host_transfer_sync(convoy_host_engine *engine, const struct convoy_raw *raw, uint64_t timeout_ns,
                                  struct convoy_error *error);
/* Since 1.1; with a plugin before it UNSUPPORTED, until a swap to one that has it. */
int32_t convoy_host_transfer_admission_set(convoy_host_engine *engine, const struct convoy_admission *admission,
                                           struct convoy_error *error);

#ifdef __cplusplus
}
#endif

#endif
