/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Throughput of bulk between two network namespaces, beside ucx_perftest over the same wire with the same TCP segment
 * sizes, interleaved in one run. Prints GB/s: medians over the repeats, and the ratio. Needs root and ucx_perftest.
 *
 *   bulk_bw [REPEATS [WINDOW]]
 */
#include "core/clock.h"
#include "tests/lib/bulknode.h"
#include "tests/lib/hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1u << 20)
#define REPEATS_MAX 25
#define OUTSTANDING 4u /* streams under way, each of the whole size */
#define TOTAL_BYTES (512ull * MIB)

struct measure {
    size_t bytes;
    uint32_t window;
    bool in_pieces; /* of 1 KiB */
};

static double median(double *values, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        for (uint32_t k = i; k > 0 && values[k] < values[k - 1]; k--) {
            double swapped = values[k];
            values[k] = values[k - 1];
            values[k - 1] = swapped;
        }
    }
    return values[count / 2];
}

/* -- bulk ---------------------------------------------------------------------------------------------------------- */

static void start(struct bulknode *node, const struct measure *measure, const struct convoy_bulk_piece *pieces,
                  uint32_t piece_count, uint64_t number)
{
    uint64_t stream;
    const struct convoy_bulk_send send = {.peer = 1,
                                          .transfer = 1,
                                          .generation = 1,
                                          .pieces = pieces,
                                          .piece_count = piece_count,
                                          .cookie = number};
    (void)measure;
    EXPECT_OK(convoy_bulk_send(node->bulk, &send, &stream, NULL), NULL);
}

static void send_all(struct bulknode *node, const struct measure *measure)
{
    uint64_t count = TOTAL_BYTES / measure->bytes;
    count = count > BULKNODE_COOKIES ? BULKNODE_COOKIES : count;
    size_t each = measure->in_pieces ? 1024 : measure->bytes;
    uint32_t piece_count = (uint32_t)(measure->bytes / each);
    struct convoy_bulk_piece *pieces = calloc(piece_count, sizeof *pieces);
    uint8_t *data = malloc(measure->bytes);
    memset(data, 1, measure->bytes);
    for (uint32_t i = 0; i < piece_count; i++) {
        pieces[i] = (struct convoy_bulk_piece){data + i * each, each};
    }
    uint64_t started = 0;
    uint64_t start_ns = convoy_now_ns();
    while (node->ended < count) {
        while (started < count && started < node->ended + OUTSTANDING) {
            start(node, measure, pieces, piece_count, started++);
        }
        convoy_bulk_sleep(node->bulk, CONVOY_DEADLINE_NEVER);
    }
    node->shared->numbers[0] = (uint64_t)((double)count * (double)measure->bytes * 1e3 /
                                          (double)(convoy_now_ns() - start_ns)); /* MB/s */
    free(data);
    free(pieces);
}

static void bulk_rank(const struct rank *rank, void *argument)
{
    const struct measure *measure = argument;
    const struct convoy_bulk_options options = {.window = measure->window};
    struct bulknode node;
    hosts_enter(rank->index);
    bulknode_open(&node, rank, measure->bytes, &options);
    bulknode_connect(&node, 1 - rank->index);
    rank_barrier(rank);
    if (rank->index == 0) {
        send_all(&node, measure);
        EXPECT_EQUAL(bulknode_frame(&node, 1, 0, 16), CONVOY_OK);
    } else {
        while (node.frames == 0) {
            convoy_bulk_sleep(node.bulk, CONVOY_DEADLINE_NEVER);
        }
    }
    (void)bulknode_close(&node, CONVOY_NS_PER_S);
}

static double measure_bulk(struct measure measure)
{
    struct ranks *ranks = ranks_create(2, sizeof(struct bulknode_shared));
    const struct bulknode_shared *shared = ranks_shared(ranks);
    ranks_start(ranks, bulk_rank, &measure, 0);
    ranks_await_exit(ranks, 0);
    ranks_await_exit(ranks, 1);
    double mb = (double)shared->numbers[0];
    ranks_finish(ranks);
    return mb / 1e3;
}

/* -- ucx_perftest -------------------------------------------------------------------------------------------------- */

/* The last line of a run: the overall bandwidth is its sixth column, in MiB/s. */
static double measure_perftest(const char *test, size_t bytes)
{
    char line[1024];
    char environment[] = "UCX_TLS=tcp UCX_TCP_TX_SEG_SIZE=64k UCX_TCP_RX_SEG_SIZE=64k UCX_LOG_LEVEL=fatal "
                         "UCX_WARN_UNUSED_ENV_VARS=n";
    bool is_slow = strcmp(test, "ucp_put_bw") == 0 && bytes > MIB; /* 1.13 collapses there: a little must do */
    unsigned long count = is_slow ? 2 : (unsigned long)(TOTAL_BYTES / bytes);
    (void)snprintf(line, sizeof line,
                   "ip netns exec %s env %s ucx_perftest -p 13399 >/dev/null 2>&1 & sleep 0.3; "
                   "timeout 20 ip netns exec %s env %s ucx_perftest %s -p 13399 -t %s -s %zu -n %lu -w 2 -f 2>/dev/null "
                   "| tail -1; wait",
                   hosts_name(1), environment, hosts_name(0), environment, hosts_address(1), test, bytes, count);
    FILE *pipe = popen(line, "r");
    double columns[8] = {0};
    if (pipe != NULL && fgets(line, sizeof line, pipe) != NULL) {
        (void)sscanf(line, "%lf %lf %lf %lf %lf %lf %lf", &columns[0], &columns[1], &columns[2], &columns[3],
                     &columns[4], &columns[5], &columns[6]);
    }
    if (pipe != NULL) {
        (void)pclose(pipe);
    }
    return columns[5] * MIB / 1e9;
}

/* -- all ----------------------------------------------------------------------------------------------------------- */

static void compare(size_t bytes, uint32_t repeats, uint32_t window)
{
    double bulk[REPEATS_MAX];
    double messages[REPEATS_MAX];
    double puts[REPEATS_MAX];
    const struct measure measure = {.bytes = bytes, .window = window};
    for (uint32_t i = 0; i < repeats; i++) {
        bulk[i] = measure_bulk(measure);
        messages[i] = measure_perftest("ucp_am_bw", bytes);
        puts[i] = measure_perftest("ucp_put_bw", bytes);
    }
    double ours = median(bulk, repeats);
    double theirs = median(messages, repeats);
    double other = median(puts, repeats);
    double best = theirs > other ? theirs : other;
    printf("%4zu MiB  bulk %.3f  ucp_am_bw %.3f  ucp_put_bw %.3f GB/s  ratio %.2f\n", bytes / MIB, ours, theirs, other,
           best > 0 ? ours / best : 0);
    (void)fflush(stdout);
}

static void compare_pieces(uint32_t repeats, uint32_t window)
{
    double pieces[REPEATS_MAX];
    double block[REPEATS_MAX];
    for (uint32_t i = 0; i < repeats; i++) {
        pieces[i] = measure_bulk((struct measure){.bytes = 256 * 1024, .window = window, .in_pieces = true});
        block[i] = measure_bulk((struct measure){.bytes = 256 * 1024, .window = window});
    }
    printf("256 x 1 KiB %.3f  256 KiB %.3f GB/s\n", median(pieces, repeats), median(block, repeats));
}

int main(int argc, char **argv)
{
    const size_t sizes[] = {MIB, 16 * MIB, 64 * MIB};
    uint32_t repeats = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 5;
    uint32_t window = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    repeats = repeats < 1 ? 1 : repeats > REPEATS_MAX ? REPEATS_MAX : repeats;
    if (!hosts_create(2)) {
        return 77;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        compare(sizes[i], repeats, window);
    }
    compare_pieces(repeats, window);
    hosts_destroy();
    return 0;
}
