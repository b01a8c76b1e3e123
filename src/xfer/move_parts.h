/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of saving and restoring an engine: which items there are, and what their writers and readers share. */
#ifndef CONVOY_XFER_MOVE_PARTS_H
#define CONVOY_XFER_MOVE_PARTS_H

#include "core/bundle.h"
#include "xfer/parts.h"
#include "xfer/raw.h"

/* Items of an engine. Numbers are never used again. */
enum convoy_xfer_item {
    CONVOY_XFER_ITEM_ENGINE = CONVOY_BUNDLE_FIELDS, /* its plain fields */
    CONVOY_XFER_ITEM_OPTIONS,
    CONVOY_XFER_ITEM_TABLE, /* functions of the host's device, 4 below it its name */
    CONVOY_XFER_ITEM_TABLE_NAME,
    CONVOY_XFER_ITEM_POOL,
    CONVOY_XFER_ITEM_NOTES,
    CONVOY_XFER_ITEM_DEVICE_POOL,
    CONVOY_XFER_ITEM_VIEW, /* in the order of their numbers, from 0 */
    CONVOY_XFER_ITEM_PEER,
    CONVOY_XFER_ITEM_ENTRY, /* in the order of the active list; free ones that had an owner behind them */
    CONVOY_XFER_ITEM_JOBS,  /* indices 4 each, in order: copies to do, */
    CONVOY_XFER_ITEM_ENDED, /* and completions */
    CONVOY_XFER_ITEM_PREALLOC,
    CONVOY_XFER_ITEM_WAITING,
    CONVOY_XFER_ITEM_DONE,
    CONVOY_XFER_ITEM_LOAN,
    CONVOY_XFER_ITEM_RANGE,
    CONVOY_XFER_ITEM_WINDOW,
    CONVOY_XFER_ITEM_COUNTER, /* value 8, name */
    CONVOY_XFER_ITEM_PHASE,
    CONVOY_XFER_ITEM_PAST,
    CONVOY_XFER_ITEM_FAR,
};

#define CONVOY_XFER_NO_VIEW UINT32_MAX

#define CONVOY_XFER_SHAPE(kind)                                                                                        \
    static const struct convoy_bundle_shape kind##_shape = {                                                           \
        .name = #kind, .fields = kind##_field_list, .count = sizeof kind##_field_list / sizeof *kind##_field_list}

/* Every view that something of an engine refers to, once. */
struct convoy_xfer_views {
    struct convoy_view **all;
    uint32_t count;
    uint32_t room;
};

struct convoy_xfer_saving {
    struct convoy_xfer *engine;
    struct convoy_bundle_writer *writer;
    struct convoy_xfer_views views;
};

struct convoy_xfer_restoring {
    struct convoy_xfer *engine;
    struct convoy_xfer_views views;
    uint32_t prealloc_count;
};

typedef int32_t (*convoy_xfer_restore_fn)(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                          struct convoy_error *error);

/* -- move_tables.c -- */
/* An item that is fields, and nothing else. */
void convoy_xfer_save_one(const struct convoy_xfer_saving *saving, uint16_t tag, const struct convoy_bundle_shape *shape,
                          const void *from);
/* Its fields; what else is in it is `inner`'s (NULL: unknown). */
struct convoy_xfer_reading {
    const struct convoy_bundle_shape *shape;
    void *to;
    int32_t (*inner)(void *user, const struct convoy_bundle_item *item, struct convoy_error *error);
    void *user;
};
int32_t convoy_xfer_restore_one(const struct convoy_bundle_item *item, const struct convoy_xfer_reading *reading,
                                struct convoy_error *error);
void convoy_xfer_save_tables(const struct convoy_xfer_saving *saving);
int32_t convoy_xfer_restore_prealloc(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                     struct convoy_error *error);
int32_t convoy_xfer_restore_waiting(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                    struct convoy_error *error);
int32_t convoy_xfer_restore_done(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                 struct convoy_error *error);
int32_t convoy_xfer_restore_loan(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                 struct convoy_error *error);
int32_t convoy_xfer_restore_range(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                  struct convoy_error *error);

/* -- move_window.c -- */
void convoy_xfer_save_windows(const struct convoy_xfer_saving *saving);
int32_t convoy_xfer_restore_window(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                   struct convoy_error *error);

/* -- move_figures.c: what it has counted and measured -- */
void convoy_xfer_save_figures(const struct convoy_xfer_saving *saving);
int32_t convoy_xfer_restore_counter(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                    struct convoy_error *error);
int32_t convoy_xfer_restore_phase(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                  struct convoy_error *error);
int32_t convoy_xfer_restore_past(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                 struct convoy_error *error);

/* -- move_peer.c -- */
/* NO_MEMORY. all: gives (convoy_memory_free) */
int32_t convoy_xfer_views_gather(const struct convoy_xfer *engine, struct convoy_xfer_views *views_out,
                                 struct convoy_error *error);
/* CONVOY_XFER_NO_VIEW: it is NULL. */
uint32_t convoy_xfer_view_number(const struct convoy_xfer_views *views, const struct convoy_view *view);
/* One reference more. false: there is none of that number. */
bool convoy_xfer_view_take(const struct convoy_xfer_views *views, uint32_t number, struct convoy_view **view_out);
void convoy_xfer_save_views(const struct convoy_xfer_saving *saving);
void convoy_xfer_save_peers(const struct convoy_xfer_saving *saving);
int32_t convoy_xfer_restore_view(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                 struct convoy_error *error);
int32_t convoy_xfer_restore_peer(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                 struct convoy_error *error);
/* A close-on-exec duplicate in its place; -1 stays. SYSTEM: what it is of. */
int32_t convoy_xfer_duplicate(int *file, const char *of, struct convoy_error *error);

/* -- move_entry.c -- */
void convoy_xfer_save_entries(const struct convoy_xfer_saving *saving);
int32_t convoy_xfer_restore_entry(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                  struct convoy_error *error);
int32_t convoy_xfer_restore_jobs(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                 struct convoy_error *error);
int32_t convoy_xfer_restore_ended(struct convoy_xfer_restoring *restoring, const struct convoy_bundle_item *item,
                                  struct convoy_error *error);
/* After the last of them: what entries refer to, and the list of free ones. MALFORMED. */
int32_t convoy_xfer_restore_links(struct convoy_xfer_restoring *restoring, struct convoy_error *error);

#endif
