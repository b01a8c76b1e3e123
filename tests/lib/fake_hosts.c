/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/fake_hosts.h"

#include "tests/lib/expect.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define FAKE_BLOB_BYTES 1024u
#define FAKE_TURNS_MAX 100u /* of all members: more than any agreement takes */

/* -- merging ----------------------------------------------------------------------------------------------------- */

static void sum_begin(void *state)
{
    ((struct fake_member *)state)->merged = 0;
}

static int32_t sum_member(void *state, uint32_t index, const uint8_t *payload, size_t bytes)
{
    (void)index;
    ((struct fake_member *)state)->merged += bytes != 0 ? payload[0] : 0;
    return CONVOY_OK;
}

static void sum_absent(void *state, uint32_t index, enum convoy_absence absence, int32_t reason)
{
    (void)state;
    (void)index;
    (void)absence;
    (void)reason;
}

/* As long as a partial may be, so that everything has to have room for one. */
static size_t sum_encode(const void *state, uint8_t *out, size_t capacity)
{
    uint32_t merged = ((const struct fake_member *)state)->merged;
    EXPECT(capacity >= FAKE_BLOB_BYTES);
    memset(out, 0, FAKE_BLOB_BYTES);
    memcpy(out, &merged, sizeof merged);
    return FAKE_BLOB_BYTES;
}

static int32_t sum_partial(void *state, const uint8_t *bytes, size_t length)
{
    uint32_t merged = 0;
    EXPECT_EQUAL(length, FAKE_BLOB_BYTES);
    memcpy(&merged, bytes, sizeof merged);
    ((struct fake_member *)state)->merged += merged;
    return CONVOY_OK;
}

static const struct convoy_merge_ops sum_ops = {sum_begin, sum_member, sum_absent, sum_encode, sum_partial};

/* -- making them ------------------------------------------------------------------------------------------------- */

/* What opening would exchange: links are opened in the order of members. */
int32_t convoy_bootstrap_exchange(struct convoy_bootstrap *bootstrap, const void *mine, size_t bytes,
                                  struct convoy_blob *blobs_out, struct convoy_error *error)
{
    const struct fake_hosts *hosts = (const struct fake_hosts *)(const void *)bootstrap;
    (void)mine;
    (void)error;
    EXPECT_EQUAL(bytes, sizeof hosts->numbers[0]);
    for (uint32_t i = 0; i < hosts->count; i++) {
        blobs_out[i] = (struct convoy_blob){.data = (const uint8_t *)&hosts->numbers[i], .bytes = bytes};
    }
    return CONVOY_OK;
}

static void *take(void *memory)
{
    EXPECT(memory != NULL);
    return memory;
}

static void place(struct fake_hosts *hosts, struct convoy_engine *engine, const uint32_t *host_of)
{
    uint32_t count = hosts->count;
    struct convoy_local *local = &engine->local;
    local->segment_fd = -1;
    local->pidfds = take(convoy_memory_array(count, sizeof *local->pidfds));
    local->hosts.host_of = take(convoy_memory_array(count, sizeof *host_of));
    local->hosts.member_count = count;
    local->hosts.host_count = host_of[count - 1] + 1;
    for (uint32_t i = 0; i < count; i++) {
        bool is_here = host_of[i] == host_of[engine->own_index];
        local->hosts.host_of[i] = host_of[i];
        local->pidfds[i] = is_here && i != engine->own_index ? dup(hosts->life[i]) : -1;
        if (i == engine->own_index) {
            engine->local_index = engine->local_count;
        }
        if (is_here) {
            engine->local_members[engine->local_count++] = i;
        }
    }
}

/* The first member of a host makes the segment, the others use it. */
static void map(struct fake_hosts *hosts, struct convoy_engine *engine)
{
    const struct convoy_engine *first = hosts->members[engine->local_members[0]].engine;
    convoy_segment_plan(&engine->segment.geometry, engine->local_count, engine->member_count, FAKE_BLOB_BYTES,
                        CONVOY_REMOTE_EXTRA_BYTES + FAKE_BLOB_BYTES + engine->member_count * 8);
    if (engine->local_index == 0) {
        EXPECT_OK(convoy_segment_open(&engine->segment, -1, NULL), NULL);
    } else {
        engine->segment.base = first->segment.base;
    }
    engine->cells = engine->segment.base + engine->segment.geometry.cells_offset;
    engine->cell_bytes = engine->segment.geometry.cell_bytes;
    for (uint32_t parity = 0; parity < 2; parity++) {
        engine->own_cells[parity] = convoy_segment_cell(&engine->segment, engine->local_index, parity);
    }
    convoy_engine_waiting_init(engine);
}

static void make_member(struct fake_hosts *hosts, uint32_t index, const uint32_t *host_of)
{
    struct fake_member *member = &hosts->members[index];
    struct convoy_engine *engine = take(convoy_memory_aligned(CONVOY_LINE_BYTES, sizeof *engine));
    uint32_t count = hosts->count;
    member->engine = engine;
    member->error = (struct convoy_error)CONVOY_ERROR_INIT;
    member->options = (struct convoy_group_options){.struct_size = sizeof member->options,
                                                    .name = "fake",
                                                    .name_length = 4,
                                                    .member_ids = hosts->ids,
                                                    .member_count = count,
                                                    .own_index = index,
                                                    .own_id = hosts->ids[index],
                                                    .blob_bytes_max = FAKE_BLOB_BYTES};
    engine->runtime = hosts->runtime;
    engine->group = &member->options;
    engine->agreement = (struct convoy_agreement){.epoch = FAKE_HOSTS_EPOCH, .wire = 1};
    engine->member_count = count;
    engine->own_index = index;
    engine->blob_bytes_max = FAKE_BLOB_BYTES;
    engine->front.generation = CONVOY_QUICK_NOBODY;
    engine->generation = 1;
    engine->next_round = 1;
    engine->ended_status = CONVOY_CLOSED;
    engine->waiting.ask_ns = UINT64_MAX; /* reports are not looked at */
    (void)pthread_mutex_init(&engine->report_lock, NULL);
    engine->local_members = take(convoy_memory_array(count, sizeof *engine->local_members));
    engine->losses = take(convoy_memory_array(count, sizeof *engine->losses));
    engine->pollfds = take(convoy_memory_array(count, sizeof *engine->pollfds));
    engine->poll_members = take(convoy_memory_array(count, sizeof *engine->poll_members));
    engine->report.rows = take(convoy_memory_array(count, sizeof *engine->report.rows));
    place(hosts, engine, host_of);
    map(hosts, engine);
    EXPECT_OK(convoy_remote_open(engine, (struct convoy_bootstrap *)(void *)hosts, FAKE_BLOB_BYTES, &member->error),
              &member->error);
}

struct fake_hosts *fake_hosts_create(const uint32_t *host_of, uint32_t count)
{
    struct fake_hosts *hosts = take(calloc(1, sizeof *hosts));
    const struct convoy_context_config config = {.struct_size = sizeof config};
    struct convoy_error error = CONVOY_ERROR_INIT;
    EXPECT(count <= FAKE_LINKS_MAX);
    EXPECT_OK(convoy_runtime_open(&config, &hosts->runtime, &error), &error);
    fake_links_reset();
    hosts->count = count;
    for (uint32_t i = 0; i < count; i++) {
        hosts->ids[i] = (int32_t)i;
        hosts->numbers[i] = i;
        hosts->life[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        EXPECT(hosts->life[i] >= 0);
    }
    for (uint32_t i = 0; i < count; i++) {
        make_member(hosts, i, host_of);
    }
    return hosts;
}

static void free_member(struct convoy_engine *engine)
{
    if (engine->remote->stage == CONVOY_REMOTE_RESTORED) {
        convoy_remote_discard(engine);
    } else {
        convoy_remote_close(engine, 0);
    }
    if (engine->local_index == 0) {
        convoy_segment_close(&engine->segment);
    }
    for (uint32_t i = 0; i < engine->member_count; i++) {
        if (engine->local.pidfds[i] >= 0) {
            (void)close(engine->local.pidfds[i]);
        }
    }
    convoy_memory_free(engine->local.pidfds);
    convoy_memory_free(engine->local.hosts.host_of);
    convoy_memory_free(engine->report.rows);
    convoy_memory_free(engine->poll_members);
    convoy_memory_free(engine->pollfds);
    convoy_memory_free(engine->losses);
    convoy_memory_free(engine->local_members);
    (void)pthread_mutex_destroy(&engine->report_lock);
    convoy_memory_free(engine);
}

void fake_hosts_destroy(struct fake_hosts *hosts)
{
    for (uint32_t i = hosts->count; i-- > 0;) { /* backwards: the first of a host has the segment */
        free_member(hosts->members[i].engine);
        (void)close(hosts->life[i]);
    }
    fake_links_reset();
    convoy_runtime_destroy(hosts->runtime);
    free(hosts);
}

static bool is_alive(const struct fake_hosts *hosts, uint32_t index)
{
    struct pollfd look = {.fd = hosts->life[index], .events = POLLIN};
    return poll(&look, 1, 0) == 0;
}

/* -- moving them ------------------------------------------------------------------------------------------------- */

uint32_t fake_hosts_link(const struct fake_hosts *hosts, uint32_t index)
{
    return fake_links_number(hosts->members[index].engine->remote->link);
}

int32_t fake_hosts_restore(struct fake_hosts *hosts, uint32_t index, const struct convoy_bundle_writer *bundle)
{
    struct fake_member *member = &hosts->members[index];
    struct convoy_bundle_reader reader;
    struct convoy_bundle_item item;
    struct convoy_engine *copy = take(convoy_memory_aligned(CONVOY_LINE_BYTES, sizeof *copy));
    memcpy(copy, member->engine, sizeof *copy); /* the rest of it is handed over by others */
    copy->remote = NULL;
    EXPECT_OK(convoy_bundle_read(bundle->data, bundle->used, &reader, &member->error), &member->error);
    EXPECT(convoy_bundle_next(&reader, &item));
    int32_t status = convoy_remote_restore(copy, &item, &member->error);
    if (status != CONVOY_OK) {
        EXPECT(copy->remote == NULL);
        convoy_memory_free(copy);
        return status;
    }
    member->exporter = member->engine;
    member->engine = copy;
    return CONVOY_OK;
}

int32_t fake_hosts_save(struct fake_hosts *hosts, uint32_t index, struct convoy_bundle_writer *bundle)
{
    struct fake_member *member = &hosts->members[index];
    convoy_bundle_begin(bundle);
    size_t opened = convoy_bundle_open(bundle, 1, 0);
    int32_t status = convoy_remote_save(member->engine, bundle, &member->error);
    convoy_bundle_shut(bundle, opened);
    return status == CONVOY_OK ? convoy_bundle_end(bundle, &member->error) : status;
}

void fake_hosts_import(struct fake_hosts *hosts, uint32_t index)
{
    struct fake_member *member = &hosts->members[index];
    struct convoy_bundle_writer bundle = {0};
    EXPECT(member->exporter == NULL);
    EXPECT_OK(convoy_remote_freeze(member->engine, &member->error), &member->error);
    EXPECT_OK(fake_hosts_save(hosts, index, &bundle), &member->error);
    EXPECT_OK(fake_hosts_restore(hosts, index, &bundle), &member->error);
    convoy_bundle_free(&bundle);
}

void fake_hosts_thaw(struct fake_hosts *hosts, uint32_t index)
{
    struct fake_member *member = &hosts->members[index];
    struct convoy_remote *remote = member->engine->remote;
    EXPECT_OK(convoy_remote_link_up(remote, &member->error), &member->error);
    convoy_remote_announce(remote, convoy_now_ns());
}

void fake_hosts_go_back(struct fake_hosts *hosts, uint32_t index)
{
    struct fake_member *member = &hosts->members[index];
    convoy_remote_discard(member->engine);
    convoy_memory_free(member->engine);
    member->engine = member->exporter;
    member->exporter = NULL;
    fake_hosts_thaw(hosts, index);
}

bool fake_hosts_is_left(struct fake_hosts *hosts, uint32_t index)
{
    return convoy_remote_is_left(hosts->members[index].exporter);
}

void fake_hosts_retire(struct fake_hosts *hosts, uint32_t index)
{
    struct fake_member *member = &hosts->members[index];
    convoy_remote_retire(member->exporter);
    EXPECT(member->exporter->remote == NULL);
    convoy_memory_free(member->exporter);
    member->exporter = NULL;
}

void fake_hosts_move(struct fake_hosts *hosts, uint32_t index)
{
    fake_hosts_import(hosts, index);
    fake_hosts_thaw(hosts, index);
    for (uint32_t turn = 0; !fake_hosts_is_left(hosts, index); turn++) {
        EXPECT(turn < FAKE_TURNS_MAX);
        for (uint32_t i = 0; i < hosts->count; i++) {
            if (is_alive(hosts, i)) {
                fake_hosts_look(hosts, i);
            }
        }
    }
    fake_hosts_retire(hosts, index);
}

/* -- using them -------------------------------------------------------------------------------------------------- */

void fake_hosts_start(struct fake_hosts *hosts, uint32_t index, uint8_t number)
{
    struct fake_member *member = &hosts->members[index];
    const struct convoy_contribution contribution = {.merge = &sum_ops, .merge_state = member, .payload_bytes = 1};
    uint8_t *payload = NULL;
    EXPECT_OK(convoy_engine_begin(member->engine, &payload, &member->error), &member->error);
    payload[0] = number;
    EXPECT_OK(convoy_engine_publish(member->engine, &contribution, &member->operation, &member->error), &member->error);
}

int32_t fake_hosts_test(struct fake_hosts *hosts, uint32_t index)
{
    struct fake_member *member = &hosts->members[index];
    int32_t status = convoy_engine_test(member->engine, member->operation, &member->summary, &member->error);
    member->sum = status == CONVOY_OK ? member->merged : member->sum;
    return status;
}

int32_t fake_hosts_abandon(struct fake_hosts *hosts, uint32_t index)
{
    struct fake_member *member = &hosts->members[index];
    return convoy_engine_abandon(member->engine, member->operation, &member->error);
}

int32_t fake_hosts_reopen(struct fake_hosts *hosts, uint32_t index)
{
    struct fake_member *member = &hosts->members[index];
    member->reopened = (struct convoy_reopen_result){.struct_size = sizeof member->reopened};
    return convoy_engine_reopen(member->engine, 1, &member->reopened, &member->error);
}

void fake_hosts_look(struct fake_hosts *hosts, uint32_t index)
{
    struct convoy_engine *engine = hosts->members[index].engine;
    convoy_remote_enter(engine);
    if (convoy_engine_is_open(engine) && convoy_engine_collect(engine) == CONVOY_IN_PROGRESS) {
        convoy_engine_check_peers(engine);
    } else {
        convoy_remote_check(engine, convoy_now_ns());
    }
    convoy_remote_leave(engine);
}

void fake_hosts_kill(struct fake_hosts *hosts, uint32_t index)
{
    EXPECT_EQUAL(eventfd_write(hosts->life[index], 1), 0);
    if (hosts->members[index].exporter != NULL) {
        fake_links_kill(fake_links_number(hosts->members[index].exporter->remote->link));
    }
    if (hosts->members[index].engine->remote->link != NULL) {
        fake_links_kill(fake_hosts_link(hosts, index));
    }
}

void fake_hosts_pass_time(struct fake_hosts *hosts)
{
    for (uint32_t i = 0; i < hosts->count; i++) {
        struct convoy_remote *remote = hosts->members[i].engine->remote;
        remote->reopen.sent_ns = 0;
        for (uint32_t member = 0; member < hosts->count; member++) {
            remote->paths[member].again_ns = 0;
        }
        for (uint32_t host = 0; host < remote->host_count; host++) {
            struct convoy_remote_host *one = &remote->hosts[host];
            one->retry_ns = 0;
            one->down_ns = one->down_ns != 0 && one->member_count <= 1 ? 1 : one->down_ns; /* long enough for nobody to come */
        }
    }
}

void fake_hosts_settle(struct fake_hosts *hosts)
{
    for (uint32_t turn = 0; fake_links_under_way() != 0; turn++) {
        EXPECT(turn < FAKE_TURNS_MAX);
        for (uint32_t i = 0; i < hosts->count; i++) {
            if (is_alive(hosts, i)) {
                fake_hosts_look(hosts, i);
            }
        }
    }
}

void fake_hosts_expect_round(struct fake_hosts *hosts, uint64_t round)
{
    int32_t statuses[FAKE_LINKS_MAX];
    uint32_t open = 0;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < hosts->count; i++) {
        statuses[i] = CONVOY_OK;
        if (is_alive(hosts, i)) {
            fake_hosts_start(hosts, i, (uint8_t)(i + 1));
            statuses[i] = CONVOY_IN_PROGRESS;
            sum += i + 1;
            open++;
        }
    }
    for (uint32_t turn = 0; open != 0; turn++) {
        EXPECT(turn < FAKE_TURNS_MAX);
        for (uint32_t i = 0; i < hosts->count; i++) {
            struct fake_member *member = &hosts->members[i];
            if (statuses[i] == CONVOY_IN_PROGRESS && (statuses[i] = fake_hosts_test(hosts, i)) != CONVOY_IN_PROGRESS) {
                EXPECT_OK(statuses[i], &member->error);
                EXPECT_EQUAL(member->summary.round, round);
                EXPECT_EQUAL(member->sum, sum);
                open--;
            }
        }
    }
    fake_hosts_settle(hosts);
}

/* Until then: a member that has nothing to reopen says OK and its epoch. */
static bool has_reopened(struct fake_hosts *hosts, uint32_t index, uint64_t epoch)
{
    struct fake_member *member = &hosts->members[index];
    int32_t status = fake_hosts_reopen(hosts, index);
    EXPECT(status == CONVOY_TIMED_OUT || status == CONVOY_OK);
    return status == CONVOY_OK && member->reopened.epoch >= epoch;
}

void fake_hosts_expect_reopen(struct fake_hosts *hosts, uint64_t epoch, uint64_t next_round)
{
    bool are_done[FAKE_LINKS_MAX];
    uint32_t open = 0;
    for (uint32_t i = 0; i < hosts->count; i++) {
        are_done[i] = !is_alive(hosts, i);
        open += !are_done[i];
    }
    for (uint32_t turn = 0; open != 0; turn++) {
        EXPECT(turn < FAKE_TURNS_MAX);
        if (fake_links_under_way() == 0) { /* they wait for time to pass */
            fake_hosts_pass_time(hosts);
        }
        for (uint32_t i = 0; i < hosts->count; i++) {
            if (is_alive(hosts, i)) {
                fake_hosts_look(hosts, i);
            }
            if (!are_done[i] && has_reopened(hosts, i, epoch)) {
                EXPECT_EQUAL(hosts->members[i].reopened.epoch, epoch);
                EXPECT_EQUAL(hosts->members[i].reopened.next_round, next_round);
                are_done[i] = true;
                open--;
            }
        }
    }
    fake_hosts_settle(hosts);
}
