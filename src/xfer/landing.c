/* SPDX-License-Identifier: Apache-2.0 */
#include "xfer/landing.h"

#include "core/fault.h"
#include "core/memory.h"

#include <pthread.h>

struct range {
    uint8_t *memory;
    uint64_t bytes;
    uint64_t done; /* landed: the next chunk must begin here */
};

struct landing {
    bool is_open;
    bool is_busy;    /* a chunk is on its way into it */
    bool is_closing; /* it was closed meanwhile: quiet once the chunk is there */
    bool is_told; /* that it is whole */
    uint32_t peer;
    uint64_t generation;
    uint64_t owner;
    struct range note;
    struct range payload;
};

struct convoy_landings {
    pthread_mutex_t lock;
    uint32_t count;
    uint32_t open_count;
    uint32_t whole_count; /* not told yet */
    uint32_t quiet_count; /* closing, and not busy any more */
    uint32_t hint;        /* where to look for a free one */
    uint64_t generations;
    uint64_t landed_bytes;
    uint64_t refused;
    struct landing *all;
};

struct convoy_landings *convoy_landings_create(uint32_t count)
{
    struct convoy_landings *landings = convoy_memory_zalloc(sizeof *landings);
    struct landing *all = convoy_memory_array(count, sizeof *all);
    if (landings == NULL || all == NULL) {
        convoy_memory_free(landings);
        convoy_memory_free(all);
        return NULL;
    }
    (void)pthread_mutex_init(&landings->lock, NULL);
    landings->count = count;
    landings->all = all;
    return landings;
}

void convoy_landings_destroy(struct convoy_landings *landings)
{
    if (landings != NULL) {
        (void)pthread_mutex_destroy(&landings->lock);
        convoy_memory_free(landings->all);
        convoy_memory_free(landings);
    }
}

static bool is_whole(const struct landing *landing)
{
    return landing->note.done == landing->note.bytes && landing->payload.done == landing->payload.bytes;
}

static struct landing *find_free(struct convoy_landings *landings)
{
    for (uint32_t i = 0; landings->open_count < landings->count && i < landings->count; i++) {
        struct landing *landing = &landings->all[(landings->hint + i) % landings->count];
        if (!landing->is_open && !landing->is_closing) {
            landings->hint = (landings->hint + i + 1) % landings->count;
            return landing;
        }
    }
    return NULL;
}

uint64_t convoy_landing_open(struct convoy_landings *landings, const struct convoy_landing_place *place,
                             uint64_t *generation_out)
{
    uint64_t number = CONVOY_LANDING_NONE;
    (void)pthread_mutex_lock(&landings->lock);
    struct landing *landing = find_free(landings);
    if (landing != NULL) {
        *landing = (struct landing){
            .is_open = true,
            .peer = place->peer,
            .generation = ++landings->generations,
            .owner = place->owner,
            .note = {.memory = place->note, .bytes = place->note_bytes},
            .payload = {.memory = place->payload, .bytes = place->payload_bytes},
        };
        landings->open_count++;
        landings->whole_count += is_whole(landing);
        *generation_out = landing->generation;
        number = (uint64_t)(landing - landings->all) + 1;
    }
    (void)pthread_mutex_unlock(&landings->lock);
    return number;
}

bool convoy_landing_renew(struct convoy_landings *landings, uint64_t number, uint64_t *generation_out)
{
    (void)pthread_mutex_lock(&landings->lock);
    struct landing *landing = &landings->all[number - 1];
    bool may_renew = landing->is_open && !landing->is_busy && !is_whole(landing);
    if (may_renew) {
        landing->generation = ++landings->generations;
        landing->note.done = landing->payload.done = 0;
        *generation_out = landing->generation;
    }
    (void)pthread_mutex_unlock(&landings->lock);
    return may_renew;
}

bool convoy_landing_is_whole(struct convoy_landings *landings, uint64_t number)
{
    (void)pthread_mutex_lock(&landings->lock);
    bool is_all_there = is_whole(&landings->all[number - 1]);
    (void)pthread_mutex_unlock(&landings->lock);
    return is_all_there;
}

void convoy_landing_fill(struct convoy_landings *landings, uint64_t number)
{
    (void)pthread_mutex_lock(&landings->lock);
    struct landing *landing = &landings->all[number - 1];
    landings->whole_count += !is_whole(landing); /* one without any byte counts already */
    landing->note.done = landing->note.bytes;
    landing->payload.done = landing->payload.bytes;
    (void)pthread_mutex_unlock(&landings->lock);
}

uint64_t convoy_landings_generation(struct convoy_landings *landings)
{
    (void)pthread_mutex_lock(&landings->lock);
    uint64_t generation = landings->generations;
    (void)pthread_mutex_unlock(&landings->lock);
    return generation;
}

void convoy_landings_continue(struct convoy_landings *landings, uint64_t generation)
{
    (void)pthread_mutex_lock(&landings->lock);
    landings->generations = generation > landings->generations ? generation : landings->generations;
    (void)pthread_mutex_unlock(&landings->lock);
}

bool convoy_landing_close(struct convoy_landings *landings, uint64_t number)
{
    (void)pthread_mutex_lock(&landings->lock);
    struct landing *landing = &landings->all[number - 1];
    landings->whole_count -= is_whole(landing) && !landing->is_told;
    landing->is_open = false;
    landing->is_closing = landing->is_busy && !CONVOY_MUTATED(landing_closed_busy);
    landings->open_count -= !landing->is_closing;
    bool is_quiet = !landing->is_closing;
    (void)pthread_mutex_unlock(&landings->lock);
    return is_quiet;
}

/* The range that a chunk is for, if it is what must come next there. */
static struct range *find_range(struct convoy_landings *landings, const struct convoy_landing_chunk *chunk)
{
    struct landing *landing =
        chunk->number - 1 < landings->count ? &landings->all[chunk->number - 1] : NULL;
    if (landing == NULL || !landing->is_open || landing->generation != chunk->generation ||
        landing->peer != chunk->peer || is_whole(landing)) {
        return NULL;
    }
    bool is_payload = chunk->offset >= CONVOY_LANDING_PAYLOAD;
    struct range *range = is_payload ? &landing->payload : &landing->note;
    uint64_t offset = is_payload ? chunk->offset - CONVOY_LANDING_PAYLOAD : chunk->offset;
    return offset == range->done && chunk->bytes <= range->bytes - offset && chunk->bytes != 0 ? range : NULL;
}

void *convoy_landing_resolve(struct convoy_landings *landings, const struct convoy_landing_chunk *chunk)
{
    (void)pthread_mutex_lock(&landings->lock);
    const struct range *range = find_range(landings, chunk);
    void *to = range != NULL ? range->memory + range->done : NULL;
    landings->refused += range == NULL;
    if (range != NULL) {
        landings->all[chunk->number - 1].is_busy = true;
    }
    (void)pthread_mutex_unlock(&landings->lock);
    return to;
}

void convoy_landing_landed(struct convoy_landings *landings, const struct convoy_landing_chunk *chunk)
{
    (void)pthread_mutex_lock(&landings->lock);
    struct landing *landing = &landings->all[chunk->number - 1]; /* resolve has checked that there is one */
    struct range *range = find_range(landings, chunk);
    landing->is_busy = false;
    if (range != NULL) { /* else it was closed meanwhile */
        range->done += chunk->bytes;
        landings->landed_bytes += chunk->bytes;
        landings->whole_count += is_whole(landing);
    }
    landings->quiet_count += landing->is_closing;
    (void)pthread_mutex_unlock(&landings->lock);
}

bool convoy_landing_put(struct convoy_landings *landings, uint32_t peer, uint64_t number, uint64_t generation, uint64_t bytes)
{
    const struct convoy_landing_chunk chunk = {
        .peer = peer, .number = number, .generation = generation, .offset = CONVOY_LANDING_PAYLOAD, .bytes = bytes};
    (void)pthread_mutex_lock(&landings->lock);
    struct range *range = find_range(landings, &chunk);
    bool is_all = range != NULL && range->bytes == bytes;
    if (is_all) {
        range->done = bytes;
        landings->landed_bytes += bytes;
        landings->whole_count += is_whole(&landings->all[number - 1]);
    }
    (void)pthread_mutex_unlock(&landings->lock);
    return is_all;
}

bool convoy_landing_whole(struct convoy_landings *landings, uint64_t *owner_out, uint64_t *number_out)
{
    bool is_found = false;
    (void)pthread_mutex_lock(&landings->lock);
    for (uint32_t i = 0; landings->whole_count != 0 && !is_found && i < landings->count; i++) {
        struct landing *landing = &landings->all[i];
        is_found = landing->is_open && !landing->is_told && is_whole(landing);
        if (is_found) {
            landing->is_told = true;
            landings->whole_count--;
            *owner_out = landing->owner;
            *number_out = i + 1;
        }
    }
    (void)pthread_mutex_unlock(&landings->lock);
    return is_found;
}

bool convoy_landing_quiet(struct convoy_landings *landings, uint64_t *owner_out, uint64_t *number_out)
{
    bool is_found = false;
    (void)pthread_mutex_lock(&landings->lock);
    for (uint32_t i = 0; landings->quiet_count != 0 && !is_found && i < landings->count; i++) {
        struct landing *landing = &landings->all[i];
        is_found = landing->is_closing && !landing->is_busy;
        if (is_found) {
            landing->is_closing = false;
            landings->quiet_count--;
            landings->open_count--;
            *owner_out = landing->owner;
            *number_out = i + 1;
        }
    }
    (void)pthread_mutex_unlock(&landings->lock);
    return is_found;
}

void convoy_landing_figures(struct convoy_landings *landings, struct convoy_landing_figures *figures_out)
{
    (void)pthread_mutex_lock(&landings->lock);
    *figures_out = (struct convoy_landing_figures){
        .landed_bytes = landings->landed_bytes, .refused = landings->refused, .open = landings->open_count};
    (void)pthread_mutex_unlock(&landings->lock);
}
