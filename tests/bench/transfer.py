#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmark of staged transfer: convoy, bare copies through shared memory, pyzmq and ucx_perftest in one run.

As bench.py, with the same settings in the environment: BENCH_REPEATS interleaved repeats (default 5), BENCH_QUICK=1 to
try. Prints a table and every bar with PASS or MISS, writes build/bench/transfer.json. A case that the library refuses is
printed with its text and counts as missed.
"""
import contextlib
import json
import sys
import tempfile
import time

import bench
import transfer_report

OUTPUT = bench.ROOT / "build/bench/transfer.json"
SEGMENTS = {"UCX_TCP_TX_SEG_SIZE": "64k", "UCX_TCP_RX_SEG_SIZE": "64k"}  # what convoy sets, too
PERFTEST_COUNTS = {1 << 20: 200, 16 << 20: 20, 64 << 20: 8}
QUICK = ["--quick"] if bench.QUICK else []


def run_floor(*cases):
    return bench.run([bench.BIN / "transfer_floor", *QUICK, *cases])


def run_micro():
    return bench.run([bench.BIN / "transfer_micro", "buddy", "pool", "message", "manifest"])


def run_zmq(size):
    cases = [f"{transport}:{way}:{size}" for transport in ("tcp", "ipc") for way in ("plain", "zero-copy")]
    return bench.run(["/usr/bin/python3", "-B", bench.ROOT / "tests/bench/zmq_peer.py", *QUICK, *cases])


def run_convoy(failures, *cases):
    """Case by case: one that fails is told at the end, and the others count."""
    lines = []
    for case in cases:
        try:
            lines += bench.run([bench.BIN / "transfer_bench", *QUICK, case])
        except (SystemExit, OSError, ValueError, bench.subprocess.SubprocessError) as failure:
            failures.append(str(failure))
            lines.append({"peer": "convoy", "case": case, "refused": f"failed: {str(failure).splitlines()[-1]}"})
    return lines


# -- one host --------------------------------------------------------------------------------------------------------


def turns(peers, is_reversed):
    """What is compared lies close together, and whoever goes first in one repeat goes last in the next."""
    order = list(reversed(peers)) if is_reversed else peers
    return [line for turn in range(bench.TURNS) for peer in order for line in bench.tag(peer(), turn=turn)]


def one_copy(failures, size, is_reversed):
    return turns([lambda: run_floor(f"single:{size}:1", f"single:{size}:64"),
                  lambda: run_convoy(failures, f"view:{size}:1", f"view:{size}:64")], is_reversed)


def two_copies(failures, size, is_reversed):
    return turns([lambda: run_floor(f"chunked:{size}", f"sequence:{size}"),
                  lambda: run_convoy(failures, f"copy:{size}:1", f"broker:{size}:1")], is_reversed)


def small(failures, is_reversed):
    return turns([lambda: run_floor("flags", "single:4096:1", "single:262144:1"),
                  lambda: run_convoy(failures, "view:4096:1", "view:262144:1", "view:262144:256", "raw:262144:1",
                                     "raw:262144:256", "empty", "notice")], is_reversed)


def beside_zmq(failures, size, is_reversed):
    """mode keeps these apart from the same cases beside the floors, which were measured at another time."""
    peers = [lambda: run_zmq(size), lambda: run_convoy(failures, f"view:{size}:1", f"copy:{size}:1")]
    return bench.tag([line for peer in (reversed(peers) if is_reversed else peers) for line in peer()], mode="zmq")


def paths(failures):
    """No bars: each path by itself, where the library has it."""
    return run_convoy(failures, *[f"{path}:{1 << 20}:1" for path in ("push", "pull")])


# -- two hosts -------------------------------------------------------------------------------------------------------


def run_perftest(hosts, test, size, window):
    """window 0: all at once, as ucx_perftest does by itself."""
    options = ["-t", test, "-s", str(size), "-n", str(PERFTEST_COUNTS[size]), "-w", "2"]
    options += ["-O", str(window)] if window else []
    figures = bench.perftest_figures(hosts, options, **SEGMENTS)
    gb_s = figures[5] * 2**20 / 1e9  # the mean of the whole run, in units of 2^20 bytes
    return [{"peer": test if window == 0 else f"{test}-{window}", "case": f"stream:{size}", "hosts": 2, "gb_s": gb_s,
             "median_us": size / gb_s / 1e3 if gb_s else None}]


def run_stream(hosts, size, queued):
    case = f"stream:{size}:{queued}"
    with tempfile.TemporaryDirectory() as directory:
        return hosts.run_pair([[bench.BIN / "transfer_bench", *QUICK, "--first", side, "--directory", directory,
                                "--address", f"tcp://{hosts.addresses[side]}:0", "--settings", hosts.settings, case]
                               for side in (0, 1)])


def run_hosts(hosts, failures):
    """A run between hosts that fails is told at the end; the others count."""
    lines = []
    for size in transfer_report.SIZES:
        runs = [lambda test=test, window=window, size=size: run_perftest(hosts, test, size, window)
                for test in ("ucp_put_bw", "ucp_am_bw") for window in (0, 2)]
        runs += [lambda queued=queued, size=size: run_stream(hosts, size, queued) for queued in transfer_report.QUEUES]
        for one in runs:
            try:
                lines += one()
            except (SystemExit, bench.subprocess.SubprocessError) as failure:
                failures.append(str(failure))
    return lines


# -- the whole run ---------------------------------------------------------------------------------------------------


def one_repeat(index, hosts, failures):
    is_reversed = index % 2 == 1
    lines = bench.run([bench.BIN / "floor", "--mode", "machine"])
    lines += run_floor(f"copy:{1 << 20}", f"copy:{64 << 20}")
    lines += small(failures, is_reversed)
    for size in transfer_report.SIZES:
        lines += one_copy(failures, size, is_reversed)
        lines += two_copies(failures, size, is_reversed)
    for size in transfer_report.ZMQ_SIZES:
        lines += beside_zmq(failures, size, is_reversed)
    lines += paths(failures)
    lines += run_hosts(hosts, failures) if hosts is not None else []
    return bench.tag(lines + run_micro(), repeat=index)


def main():
    failures = []
    with contextlib.ExitStack() as stack:
        hosts, no_hosts = bench.open_hosts(stack)
        repeats = []
        for index in range(bench.REPEATS):
            start = time.monotonic()
            repeats.append(one_repeat(index, hosts, failures))
            print(f"repeat {index + 1} of {bench.REPEATS}: {time.monotonic() - start:.0f} s", flush=True)
    result = transfer_report.summarise(bench.machine(), repeats, no_hosts)
    result.update(quick=bench.QUICK, failures=failures)
    transfer_report.show(result)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written: {OUTPUT.relative_to(bench.ROOT)}" + ("; QUICK run, the figures mean nothing" if bench.QUICK else ""))
    if failures:
        sys.exit("\n".join([f"{len(failures)} runs failed:", *failures]))


if __name__ == "__main__":
    main()
