/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/handover.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUDGET_BYTES (UINT64_C(2) << 30) /* that a case may move */
#define ROUNDS_MIN 30u
#define ROUNDS_MAX 10000u
#define QUICK_DIVISOR 8u
#define SPINS 20000u /* before a processor that is shared is given away; far more than a hand-over of 4 KiB takes */

void handover_parse(const char *text, struct handover_case *case_out)
{
    unsigned long long bytes = 0;
    *case_out = (struct handover_case){.pieces = 1};
    (void)snprintf(case_out->text, sizeof case_out->text, "%s", text);
    if (sscanf(text, "%15[a-z-]:%llu:%u", case_out->kind, &bytes, &case_out->pieces) < 1 || case_out->pieces == 0 ||
        (bytes != 0 && bytes / case_out->pieces < 2 * sizeof(uint64_t))) {
        bench_die("\"%s\" is not KIND[:BYTES[:PIECES]] with pieces of at least 16 bytes", text);
    }
    case_out->bytes = (size_t)bytes;
}

uint32_t handover_rounds(size_t bytes, bool is_quick)
{
    uint64_t rounds = BUDGET_BYTES / (bytes + 1);
    rounds = rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    rounds = is_quick ? rounds / QUICK_DIVISOR : rounds;
    return rounds < ROUNDS_MIN ? ROUNDS_MIN : (uint32_t)rounds;
}

void handover_deadline(void)
{
    (void)alarm(HANDOVER_ALARM_S);
}

void handover_await(const struct handover_word *word, uint64_t at_least)
{
    for (uint32_t spins = 0; __atomic_load_n(&word->value, __ATOMIC_ACQUIRE) < at_least; spins++) {
        if (spins < SPINS) {
            handover_relax();
        } else {
            (void)sched_yield();
        }
    }
}

void handover_fill(void *memory, size_t bytes)
{
    uint64_t value = 88172645463325252u;
    for (size_t at = 0; at + sizeof value <= bytes; at += sizeof value) {
        value ^= value << 13;
        value ^= value >> 7;
        value ^= value << 17;
        (void)memcpy((char *)memory + at, &value, sizeof value);
    }
}

void handover_stamp(void *piece, size_t bytes, uint64_t round)
{
    (void)memcpy(piece, &round, sizeof round);
    (void)memcpy((char *)piece + bytes - sizeof round, &round, sizeof round);
}

void handover_check(const void *piece, size_t bytes, uint64_t round, const char *what)
{
    uint64_t first = 0;
    uint64_t last = 0;
    (void)memcpy(&first, piece, sizeof first);
    (void)memcpy(&last, (const char *)piece + bytes - sizeof last, sizeof last);
    if (first != round || last != round) {
        bench_die("%s: round %llu brought what belongs to %llu and %llu", what, (unsigned long long)round,
                  (unsigned long long)first, (unsigned long long)last);
    }
}

uint64_t handover_median_ns(uint64_t *samples_ns, uint32_t count)
{
    uint32_t first = count / 10;
    qsort(samples_ns + first, count - first, sizeof *samples_ns, bench_compare_u64);
    return samples_ns[first + (count - first) / 2];
}

void handover_print(const char *peer, const char *text, uint64_t *samples_ns, uint32_t count, const char *more)
{
    uint32_t first = count / 10;
    size_t last = first + (size_t)(count - first) * 99 / 100;
    double median_us = (double)handover_median_ns(samples_ns, count) / 1e3;
    double p99_us = (double)samples_ns[last] / 1e3;
    (void)printf("{\"peer\": \"%s\", \"case\": \"%s\", \"median_us\": %.3f, \"p99_us\": %.3f, \"rounds\": %u%s}\n", peer,
                 text, median_us, p99_us, count - first, more);
    (void)fflush(stdout);
}
