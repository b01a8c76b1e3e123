/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staged transfer through convoy, from the start of the stage until the sender knows that the receiver has it.
 *
 *   view:BYTES:PIECES     one payload of PIECES tensors; send and accept, the receiver reads in place
 *   copy:BYTES:PIECES     send and accept, the receiver copies into memory of its own
 *   push:..., pull:...    the same by that path
 *   broker:BYTES:PIECES   stage, descriptor, a word in shared memory in the place of the host's broker, load by copy
 *   empty                 a request without payload, into a slot that the receiver reserves: from reserve to ready
 *   notice                a request without payload, by the path that the library picks
 *   raw:BYTES:PIECES      by addresses: PIECES that lie apart in the sender's pool, into memory that the receiver registered
 *   stream:BYTES:QUEUED   one staged payload sent over and over, QUEUED at a time; what counts is bytes by time
 *
 * Usage: transfer_bench [--quick] [--first RANK --directory DIR] [--address tcp://HOST:0] [--settings JSON] CASE...
 * With --first only that rank is started, and the two meet in DIR: one program in each network namespace.
 */
#include "tests/bench/transfer_kinds.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POOL_BYTES_MIN (UINT64_C(256) << 20)

struct options {
    bool is_quick;
    bool is_split; /* one rank only, the other is another program */
    uint32_t first;
    const char *directory;
    const char *address;
    const char *settings;
};

struct job {
    const struct options *options;
    const struct handover_case *which;
    struct side_shared *shared;
    uint32_t rounds;
};

/* Only figures: what cannot be asked stays 0, and the bars that need it are not met. */
static void keep_counters(struct side *side)
{
    struct convoy_peer_info info = {.struct_size = sizeof info};
    struct convoy_text_buffer text = {.struct_size = sizeof text,
                                      .data = side->shared->stats,
                                      .capacity = sizeof side->shared->stats};
    if (side->table->peer_info(side->engine, side->peer, &info, &side->error) == CONVOY_OK) {
        side->shared->sent_bytes = info.sent_bytes;
    }
    if (side->table->engine_describe(side->engine, CONVOY_TOPIC_STATS, &text, &side->error) != CONVOY_OK) {
        side->shared->stats[0] = '\0';
    }
    for (char *at = side->shared->stats; *at != '\0'; at++) {
        *at = *at == '\n' ? ' ' : *at; /* a line of output is a line of JSON */
    }
}

static void run_rank(uint32_t rank, void *context)
{
    const struct job *job = context;
    const struct transfer_kind *kind = transfer_kind_of(job->which);
    struct side side = {.which = job->which, .shared = job->shared};
    uint64_t room = 4 * (uint64_t)job->which->bytes;
    if (strcmp(kind->name, "stream") == 0) {
        room = 2 * job->which->bytes * ((uint64_t)transfer_queued(&side) + 1);
    }
    const struct side_options options = {.rank = rank,
                                         .address = job->options->address,
                                         .settings = job->options->settings,
                                         .pool_bytes = room < POOL_BYTES_MIN ? POOL_BYTES_MIN : room};
    side_open(&side, &options);
    if (rank == 0) {
        kind->send(&side, kind, job->rounds);
        keep_counters(&side);
    } else {
        kind->receive(&side, kind, job->rounds);
    }
}

static void print_refusal(const struct job *job)
{
    (void)printf("{\"peer\": \"convoy\", \"case\": \"%s\", \"refused\": \"", job->which->text);
    for (const char *at = job->shared->refusal; *at != '\0'; at++) {
        (void)putchar(*at == '"' || *at == '\\' || (unsigned char)*at < ' ' ? '\'' : *at);
    }
    (void)printf("\"}\n");
    (void)fflush(stdout);
}

static void print_case(const struct job *job)
{
    static char more[sizeof job->shared->stats + 512];
    const struct side_shared *shared = job->shared;
    const struct side side = {.which = job->which, .stride = (job->which->bytes / job->which->pieces + 511) / 512 * 512};
    bool is_stream = strcmp(job->which->kind, "stream") == 0;
    uint64_t expected = is_stream ? job->which->bytes : job->which->bytes == 0 ? 0 : side_payload_bytes(&side);
    uint32_t first = job->rounds / 10 + (is_stream ? 2 * job->which->pieces : 0); /* until every slot was touched once */
    uint64_t total_ns = 0;
    for (uint32_t i = first; i < job->rounds; i++) {
        total_ns += shared->handover.samples_ns[i];
    }
    double gb_s = (double)(expected * (job->rounds - first)) / (double)(total_ns + 1);
    (void)snprintf(more, sizeof more,
                   ", \"gb_s\": %.3f, \"path\": %u, \"expected_bytes\": %llu, \"payload_bytes\": %llu, "
                   "\"moved_bytes\": %llu, \"sent_bytes\": %llu, \"sends\": %u, \"stats\": %s",
                   gb_s, shared->path, (unsigned long long)expected, (unsigned long long)shared->payload_bytes,
                   (unsigned long long)shared->moved_bytes, (unsigned long long)shared->sent_bytes, job->rounds,
                   shared->stats[0] == '\0' ? "null" : shared->stats);
    handover_print("convoy", job->which->text, job->shared->handover.samples_ns, job->rounds, more);
}

static void run_case(const struct options *options, const char *text, uint32_t index)
{
    struct handover_case which;
    char path[256];
    handover_parse(text, &which);
    (void)transfer_kind_of(&which);
    (void)snprintf(path, sizeof path, "%s/transfer-%u", options->is_split ? options->directory : "", index);
    struct job job = {.options = options, .which = &which, .rounds = handover_rounds(which.bytes, options->is_quick)};
    if (strcmp(which.kind, "stream") == 0) {
        job.rounds += 3 * which.pieces; /* until every slot was touched */
    }
    job.shared = bench_share(sizeof *job.shared, options->is_split ? path : NULL);
    bench_fork(options->first, options->is_split ? 1 : 2, run_rank, &job);
    if (options->first != 0) {
        return;
    }
    if (job.shared->has_refused != 0) {
        print_refusal(&job);
    } else {
        print_case(&job);
    }
}

static struct options parse(int argc, char **argv)
{
    static const struct option names[] = {{"quick", no_argument, NULL, 'q'},
                                          {"first", required_argument, NULL, 'f'},
                                          {"directory", required_argument, NULL, 'd'},
                                          {"address", required_argument, NULL, 'a'},
                                          {"settings", required_argument, NULL, 's'},
                                          {NULL, 0, NULL, 0}};
    struct options options = {0};
    for (int option = 0; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (option) {
        case 'q': options.is_quick = true; break;
        case 'f': options.is_split = true, options.first = strcmp(optarg, "0") == 0 ? 0 : 1; break;
        case 'd': options.directory = optarg; break;
        case 'a': options.address = optarg; break;
        case 's': options.settings = optarg; break;
        default: bench_die("unknown option");
        }
    }
    if (options.is_split && options.directory == NULL) {
        bench_die("--first needs --directory");
    }
    return options;
}

int main(int argc, char **argv)
{
    struct options options = parse(argc, argv);
    for (int i = optind; i < argc; i++) {
        run_case(&options, argv[i], (uint32_t)i);
    }
    return 0;
}
