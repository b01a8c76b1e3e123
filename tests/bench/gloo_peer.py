#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""torch gloo as a peer, called exactly as hosts call it today.

poll:N  torch.tensor(list, uint8), all_reduce MIN, tolist()
row:N   torch.tensor(row, int64), all_gather into a list of views of one table, tolist() of two columns, min and max
Options, cases and the line of JSON are those of tests/bench/bench.h; forked ranks, pinned, gloo over loopback TCP.
"""
import argparse
import json
import mmap
import os
import random
import socket
import statistics
import struct
import sys
import time

import torch
import torch.distributed as dist

PATTERNS = 16


def make_work(kind, n, ranks):
    """Inputs [pattern][rank] and expected results [pattern]."""
    rng = random.Random(20240607)
    if kind == "row":
        inputs = [[[rng.randrange(8192) for _ in range(n)] for _ in range(ranks)] for _ in range(PATTERNS)]
        outputs = [([row[0] for row in rows], [row[1] for row in rows], min(row[2] for row in rows),
                    max(row[3] for row in rows)) for rows in inputs]
        return inputs, outputs
    inputs = [[[rng.choice((1, 2, 2, 2, 3, 3, 3)) for _ in range(n)] for _ in range(ranks)] for _ in range(PATTERNS)]
    return inputs, [[min(states) for states in zip(*lists)] for lists in inputs]


def reduce_states(states):
    tensor = torch.tensor(states, dtype=torch.uint8)
    dist.all_reduce(tensor, op=dist.ReduceOp.MIN)
    return tensor.tolist()


def gather_row(row, ranks):
    local = torch.tensor(row, dtype=torch.int64)
    table = torch.empty((ranks, len(row)), dtype=torch.int64)
    dist.all_gather(list(table), local)
    return table[:, 0].tolist(), table[:, 1].tolist(), table[:, 2].min().item(), table[:, 3].max().item()


def measure(kind, n, is_paced, rank, ranks, rounds, stamps):
    inputs, outputs = make_work(kind, n, ranks)
    rng = random.Random(77 + rank)
    now = time.monotonic_ns
    for index in range(rounds):
        mine = inputs[index % PATTERNS][rank]
        if is_paced:
            time.sleep(rng.uniform(250e-6, 750e-6))
        enter = now()
        result = gather_row(mine, ranks) if kind == "row" else reduce_states(mine)
        leave = now()
        if result != outputs[index % PATTERNS]:
            sys.exit(f"rank {rank}, round {index} of {kind}:{n}: wrong result")
        struct.pack_into("QQ", stamps, 16 * (rank * rounds + index), enter, leave)


def report(kind, n, is_paced, ranks, rounds, stamps):
    first = rounds // 10
    pairs = [[struct.unpack_from("QQ", stamps, 16 * (rank * rounds + index)) for rank in range(ranks)]
             for index in range(first, rounds)]
    if is_paced:
        samples = sorted(max(leave for _, leave in one) - max(enter for enter, _ in one) for one in pairs)
    else:
        samples = sorted(sum(leave - enter for enter, leave in one) / ranks for one in pairs)
    period = (pairs[-1][0][1] - pairs[0][0][1]) / (len(pairs) - 1)
    print(json.dumps({"peer": "gloo", "case": f"{kind}:{n}", "mode": "paced" if is_paced else "b2b", "ranks": ranks,
                      "median_us": round(statistics.median(samples) / 1e3, 3),
                      "p99_us": round(samples[len(samples) * 99 // 100] / 1e3, 3),
                      "period_us": round(period / 1e3, 3), "rounds": len(samples)}), flush=True)


def run_rank(rank, options, port, stamps):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=options.ranks)
    for case in options.cases:
        kind, n, mode = case.split(":")
        is_paced = mode == "paced"
        rounds = options.paced_rounds if is_paced else options.rounds
        dist.barrier()
        measure(kind, int(n), is_paced, rank, options.ranks, rounds, stamps)
        dist.barrier()
        if rank == 0:
            report(kind, int(n), is_paced, options.ranks, rounds, stamps)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--paced-rounds", type=int, default=200)
    parser.add_argument("cases", nargs="+")
    options = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    stamps = mmap.mmap(-1, 16 * options.ranks * max(options.rounds, options.paced_rounds))
    port = free_port()
    children = []
    for rank in range(options.ranks):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                run_rank(rank, options, port, stamps)
                code = 0
            except SystemExit as stop:
                print(stop.code, file=sys.stderr)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        children.append(pid)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0 for pid in children))


if __name__ == "__main__":
    main()
