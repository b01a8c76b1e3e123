/* SPDX-License-Identifier: Apache-2.0 */
#include "xfer/ring.h"

#include "core/fault.h"
#include "core/memory.h"

#include <assert.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

struct ring_counter {
    _Alignas(CONVOY_LINE_BYTES) _Atomic uint32_t value;
};

struct ring_slot {
    _Alignas(CONVOY_LINE_BYTES) _Atomic uint32_t number;
    uint16_t type;
    uint16_t length;
    uint8_t data[CONVOY_RING_DATA_BYTES];
};

struct convoy_ring_queue {
    struct ring_counter produced;
    struct ring_counter consumed;
    struct ring_counter sleeping;
    struct ring_slot slots[CONVOY_RING_ENTRIES];
};

static_assert(2 * sizeof(struct convoy_ring_queue) == CONVOY_RING_BYTES, "the layout is what the header says");
static_assert(sizeof(struct ring_slot) == CONVOY_LINE_BYTES, "an entry is one cache line");

void convoy_ring_init(struct convoy_ring *ring, void *memory, uint32_t side)
{
    struct convoy_ring_queue *queues = memory;
    *ring = (struct convoy_ring){.out = &queues[side & 1], .in = &queues[~side & 1]};
}

enum convoy_ring_status convoy_ring_put(struct convoy_ring *ring, const struct convoy_ring_entry *entry,
                                        bool *must_wake_out)
{
    struct convoy_ring_queue *queue = ring->out;
    uint32_t waiting = ring->put - atomic_load_explicit(&queue->consumed.value, memory_order_acquire);
    if (ring->is_malformed || waiting > CONVOY_RING_ENTRIES) {
        ring->is_malformed = true;
        return CONVOY_RING_MALFORMED;
    }
    if (waiting == CONVOY_RING_ENTRIES) {
        return CONVOY_RING_FULL;
    }
    struct ring_slot *slot = &queue->slots[ring->put % CONVOY_RING_ENTRIES];
    if (CONVOY_MUTATED(number_before_entry)) {
        atomic_store_explicit(&slot->number, ring->put + 1, memory_order_release);
        (void)sched_yield(); /* long enough for a reader to come */
    }
    slot->type = entry->type;
    slot->length = entry->length;
    memcpy(slot->data, entry->data, entry->length < CONVOY_RING_DATA_BYTES ? entry->length : CONVOY_RING_DATA_BYTES);
    ring->put++;
    atomic_store_explicit(&slot->number, ring->put, memory_order_release);
    atomic_store_explicit(&queue->produced.value, ring->put, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* between the entry and the look at the sleeper: convoy_ring_doze */
    *must_wake_out = atomic_load_explicit(&queue->sleeping.value, memory_order_relaxed) != 0;
    return CONVOY_RING_OK;
}

/* Whether the next entry is there. Numbers only ever grow by the ring's size, so that any other one was not put. */
static enum convoy_ring_status look(struct convoy_ring *ring)
{
    const struct ring_slot *slot = &ring->in->slots[ring->taken % CONVOY_RING_ENTRIES];
    uint32_t number = atomic_load_explicit(&slot->number, memory_order_acquire);
    bool is_told = CONVOY_MUTATED(produced_believed) && atomic_load(&ring->in->produced.value) > ring->taken;
    if (!ring->is_malformed && (number == ring->taken + 1 || is_told)) {
        return CONVOY_RING_OK;
    }
    bool is_old = number == ring->taken + 1 - CONVOY_RING_ENTRIES || (number == 0 && ring->taken < CONVOY_RING_ENTRIES);
    ring->is_malformed = ring->is_malformed || !is_old;
    return ring->is_malformed ? CONVOY_RING_MALFORMED : CONVOY_RING_EMPTY;
}

enum convoy_ring_status convoy_ring_take(struct convoy_ring *ring, struct convoy_ring_entry *entry_out)
{
    enum convoy_ring_status status = look(ring);
    if (status != CONVOY_RING_OK) {
        return status;
    }
    const volatile struct ring_slot *slot = &ring->in->slots[ring->taken % CONVOY_RING_ENTRIES];
    uint16_t length = slot->length; /* read once: what is checked is what is used */
    if (length > CONVOY_RING_DATA_BYTES) {
        ring->is_malformed = true;
        return CONVOY_RING_MALFORMED;
    }
    entry_out->type = slot->type;
    entry_out->length = length;
    memcpy(entry_out->data, (const uint8_t *)(uintptr_t)slot->data, length);
    ring->taken++;
    atomic_store_explicit(&ring->in->consumed.value, ring->taken, memory_order_release);
    return CONVOY_RING_OK;
}

bool convoy_ring_doze(struct convoy_ring *ring)
{
    atomic_store_explicit(&ring->in->sleeping.value, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* either this side sees the entry, or the peer sees the sleeper */
    if (look(ring) == CONVOY_RING_EMPTY) {
        return true;
    }
    convoy_ring_awake(ring);
    return false;
}

void convoy_ring_awake(struct convoy_ring *ring)
{
    atomic_store_explicit(&ring->in->sleeping.value, 0, memory_order_relaxed);
}
