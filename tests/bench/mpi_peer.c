/* SPDX-License-Identifier: Apache-2.0 */
/* Open MPI as a peer: MPI_Allreduce MIN over unsigned bytes, MPI_Allgather of rows. Started by mpirun. */
#include "tests/bench/bench.h"

#include <mpi.h>
#include <stdlib.h>

static void reduce(void *state, uint32_t pattern, const uint8_t *input, uint8_t *output)
{
    const struct bench_work *work = state;
    (void)pattern;
    (void)MPI_Allreduce(input, output, (int)work->input_bytes, MPI_UNSIGNED_CHAR, MPI_MIN, MPI_COMM_WORLD);
}

static void gather(void *state, uint32_t pattern, const uint8_t *input, uint8_t *output)
{
    const struct bench_work *work = state;
    int columns = (int)work->which->n;
    (void)pattern;
    (void)MPI_Allgather(input, columns, MPI_INT64_T, output, columns, MPI_INT64_T, MPI_COMM_WORLD);
}

/* Every rank stamps into its own row of a whole table; rank 0 collects the rows. */
static void run_case(const struct bench_options *options, const struct bench_case *which, int rank)
{
    struct bench_work work;
    struct bench_stamps own;
    struct bench_stamps all;
    uint32_t rounds = bench_rounds(options, which);
    void *own_memory = calloc(1, bench_stamps_bytes(options->ranks, rounds));
    void *all_memory = calloc(1, bench_stamps_bytes(options->ranks, rounds));
    if (own_memory == NULL || all_memory == NULL) {
        bench_die("out of memory");
    }
    bench_work_init(&work, which, options->ranks);
    bench_stamps_place(&own, options->ranks, rounds, own_memory);
    bench_stamps_place(&all, options->ranks, rounds, all_memory);
    (void)MPI_Barrier(MPI_COMM_WORLD);
    bench_measure(&work, (uint32_t)rank, &own, which->kind == BENCH_ROW ? gather : reduce, &work);
    size_t offset = (size_t)rank * rounds;
    (void)MPI_Gather(own.enter + offset, (int)rounds, MPI_UINT64_T, all.enter, (int)rounds, MPI_UINT64_T, 0,
                     MPI_COMM_WORLD);
    (void)MPI_Gather(own.leave + offset, (int)rounds, MPI_UINT64_T, all.leave, (int)rounds, MPI_UINT64_T, 0,
                     MPI_COMM_WORLD);
    if (rank == 0) {
        bench_print("openmpi", which, &all);
    }
    bench_work_fini(&work);
    free(own_memory);
    free(all_memory);
}

int main(int argc, char **argv)
{
    struct bench_options options;
    int rank = 0;
    int ranks = 0;
    (void)MPI_Init(&argc, &argv);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    bench_parse(argc, argv, &options);
    if ((uint32_t)ranks != options.ranks) {
        bench_die("--ranks %u, but mpirun started %d", options.ranks, ranks);
    }
    bench_pin((uint32_t)rank);
    for (uint32_t i = 0; i < options.case_count; i++) {
        run_case(&options, &options.cases[i], rank);
    }
    (void)MPI_Finalize();
    return 0;
}
