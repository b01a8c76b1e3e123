/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convoy/move.h: one build of the plugin hands its groups and engines to another, in one process, while the host goes on.
 * Family "move", version 1.0. Hosts that use the loader call convoy_loader_swap, which makes these calls in their order.
 *
 *   old build                                  new build
 *                                              context_open                 own threads and network, nothing of the old
 *   quiesce    no new work, open work ends
 *   export_state -> bytes                      import_state                 the same groups and engines, nothing of theirs
 *                                                                           is touched yet
 *                                              resume                       from here on they are its own
 *   retire     all but the handles is freed
 *   context_close, when no thread can be in a call on an old handle any more
 *
 *   Once the new one's resume has returned OK, retire is the only call to make on the old context: the old build cannot
 *   know of it, and a resume or close there would act on what is the new one's by then.
 *   What fails before the new one's resume is undone by closing the new context and resuming the old one: it goes on as if
 *   nothing had been. Whoever resumes first, the exporter or one of those that imported its state, has all of it from then
 *   on; every other resume is refused.
 *
 *   state       how it gets there         start, open  test, wait  look  quiesce  export  import  resume  retire  close
 *   running     context_open, resume      ok           ok          ok    ok       BAD     ok (+)  ok      BAD     ok
 *   quiescing   quiesce ran out of time   MOVED        ok (*)      ok    ok       BAD     BAD     ok      BAD     ok
 *   quiesced    quiesce returned OK       MOVED        MOVED       ok    ok       ok      BAD     ok (1)  ok      ok
 *   imported    import_state              MOVED        MOVED       ok    BAD      BAD     BAD     ok (1)  BAD     ok (-)
 *   retired     retire                    MOVED        MOVED       MOVED BAD      BAD     BAD     BAD     ok      ok
 *   closing, forked: all are CLOSED or FORKED, but close, and holdings of a context that closes (see core.h).
 *
 *   BAD is BAD_STATE. "start, open" is everything that begins something, blocking forms and reopen included; "look" is info,
 *   describe, report and holdings (holdings is ok in every state but forked). cancel, abandon and close of an object
 *   follow test and wait; but close of a retired context's object is OK, and the object is the other build's all the same.
 *   (*) of groups; an engine's calls are MOVED as soon as it quiesces, waits included, and its transfers go on at the new one.
 *   (+) a context in which nothing was ever opened. (-) drops what was imported: it is still the old context's.
 *   (1) BAD once another context has resumed what this one has exported or imported.
 *   Objects that were closed, or had failed to open, are not exported: their tombstones stay in the old context.
 */
#ifndef CONVOY_MOVE_H
#define CONVOY_MOVE_H

#include "convoy/core.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CONVOY_MOVE_MAJOR 1
#define CONVOY_MOVE_MINOR 0

/* convoy_holdings.state */
#define CONVOY_CONTEXT_RUNNING 1
#define CONVOY_CONTEXT_QUIESCING 2
#define CONVOY_CONTEXT_QUIESCED 3
#define CONVOY_CONTEXT_IMPORTED 4
#define CONVOY_CONTEXT_RETIRED 5
#define CONVOY_CONTEXT_CLOSING 6

/* OUT: what a context holds. Quiesced: calls, operations, copies and threads are 0. Retired: all but the counts of
 * objects. */
struct convoy_holdings {
    uint32_t struct_size;
    uint32_t written_bytes;
    uint32_t state;              /* CONVOY_CONTEXT_* */
    uint32_t group_count;        /* neither closed nor failed; of a retired context: that were handed over */
    uint32_t engine_count;       /* the same */
    uint32_t call_count;         /* of the host's that are inside */
    uint32_t operation_count;    /* rounds that are open, or over and not read */
    uint32_t transfer_count;     /* that the host has not released */
    uint32_t copy_count;         /* copies under way, of bytes that are not all where they go */
    uint32_t thread_count;       /* own ones */
    uint32_t descriptor_count;   /* files it has open */
    uint32_t mapping_count;      /* pools, rings, segments and peers' pools that it has mapped */
    uint32_t registration_count; /* memory that a network library or a device knows */
    uint32_t reserved;
};

/* convoy_moved_object.kind */
#define CONVOY_MOVED_GROUP 1
#define CONVOY_MOVED_ENGINE 2

/* One object that was imported. Element of the caller's array; the stride is its struct_size. */
struct convoy_moved_object {
    uint64_t old_handle; /* the exporter's, as a number */
    uint64_t new_handle; /* the one here, as a number */
    uint32_t kind;       /* CONVOY_MOVED_* */
    uint32_t reserved;
};

/* OUT: what import has made. Owned by the caller. */
struct convoy_moved {
    uint32_t struct_size;
    uint32_t written_bytes;
    struct convoy_moved_object *objects; /* in */
    size_t object_stride;                /* in */
    size_t object_capacity;              /* in */
    size_t object_count;                 /* out; also on BUFFER_TOO_SMALL: what is needed */
};

/* IN: how a state is to be written. All zero but the size is valid. */
struct convoy_export_options {
    uint32_t struct_size;
    uint32_t critical_flags; /* none defined */
    uint32_t format_max;     /* the highest format that the importer reads (convoy_file_info.state_max); 0 = this build's own */
    uint32_t reserved;
};

/* IN: what export_state wrote. Good in the process that wrote it only, and until the exporter is resumed, retired or
 * closed. */
struct convoy_exported_state {
    uint32_t struct_size;
    uint32_t critical_flags; /* none defined */
    const void *data;        /* borrows; any alignment */
    size_t bytes;
};

struct convoy_move_table {
    struct convoy_table_header header;

    /* Counts what a context holds. INVALID_ARGUMENT: NULL. TOO_OLD: the struct's size. FORKED.
     * [any thread; never blocks; any state; since 1.0] */
    int32_t (*holdings)(convoy_context *context, struct convoy_holdings *holdings_out, struct convoy_error *error);

    /* Begins nothing more, and waits until calls have returned, rounds have ended and been read, groups have opened and
     * copies are done; then joins the context's threads. Transfers need not end: they are exported as they are.
     * DRAIN_TIMEOUT: text names what is still going on, and which ranks it waits for; the context stays quiescing: call
     * again, or resume. BAD_STATE, CLOSED, FORKED. NO_MEMORY. timeout_ns 0 = close_timeout_ms.
     * [one thread, which is in no other call of this context; blocks up to timeout_ns; allocates; running, quiescing,
     * quiesced; since 1.0] */
    int32_t (*quiesce)(convoy_context *context, uint64_t timeout_ns, struct convoy_error *error);

    /* Goes on, with what it has or with what it has imported. When this fails nothing has changed. SYSTEM: a thread cannot be
     * started. INIT_FAILED: a network library or a device that an imported object needs cannot be opened here.
     * BAD_STATE, also when another context has resumed what this one has exported (retire this one) or imported (close it).
     * NO_MEMORY, CLOSED, FORKED.
     * [one thread; never waits for peers; allocates; running, quiescing, quiesced, imported; since 1.0] */
    int32_t (*resume)(convoy_context *context, struct convoy_error *error);

    /* Writes what the context is made of, as bytes of a versioned format of tagged items, into a text buffer (not text).
     * Nothing changes hands. BUFFER_TOO_SMALL: length is what is needed. UNSUPPORTED: an object cannot be handed over, text
     * says which and why; or this build writes no format as low as format_max, text has both numbers; or an unknown critical
     * flag. INVALID_ARGUMENT: NULL. SYSTEM: no file for the word that says who resumes. NO_MEMORY, BAD_STATE, CLOSED, FORKED.
     * [one thread; never blocks; allocates; quiesced; since 1.0] */
    int32_t (*export_state)(convoy_context *context, const struct convoy_export_options *options,
                            struct convoy_text_buffer *state_out, struct convoy_error *error);

    /* Makes the same groups and engines here; every operation, transfer and peer value of theirs stays good. Unknown
     * items are dropped, unless they are marked as critical. On any other status than OK nothing was made.
     * Settings, secret and log are not handed over: this context has those that it was opened with.
     * TOO_NEW: an unknown critical item, text names it. TOO_OLD: something that this build needs is missing.
     * VERSION_MISMATCH: another format. MALFORMED: these bytes are damaged. INVALID_ARGUMENT: of another process.
     * BUFFER_TOO_SMALL: moved_out has too little room. BAD_STATE, also when the exporter has resumed since or is retired, or
     * another context has resumed from this state. NO_MEMORY, SYSTEM, CLOSED, FORKED.
     * [one thread; never waits for peers; allocates; running, with nothing opened before; since 1.0] */
    int32_t (*import_state)(convoy_context *context, const struct convoy_exported_state *state, struct convoy_moved *moved_out,
                            struct convoy_error *error);

    /* What was exported is another's now: frees all but the handles, which answer MOVED from here on, and says goodbye to
     * nobody. DRAIN_TIMEOUT: a call is still inside, or, for two seconds at most, a member on another host has not
     * heard of the move; call again. BAD_STATE, CLOSED, FORKED. timeout_ns 0 = close_timeout_ms.
     * [one thread; blocks up to timeout_ns; quiesced, retired; since 1.0] */
    int32_t (*retire)(convoy_context *context, uint64_t timeout_ns, struct convoy_error *error);
};

#ifdef __cplusplus
}
#endif

#endif
