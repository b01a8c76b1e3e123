#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The collective benchmark: convoy, Open MPI, torch gloo and the bare floor in one interleaved run.

Runs every program BENCH_REPEATS times (default 5) in turns, prints a table and every bar with PASS or MISS, and writes
build/bench/collectives.json. BENCH_QUICK=1: one short repeat, to see that everything works; its figures mean nothing.
The machine must be otherwise quiet. Two hosts are two network namespaces, which needs root.
"""
import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

import report

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("BENCH_BIN", ROOT / "build/release/tests/bench"))
OUTPUT = ROOT / "build/bench/collectives.json"
QUICK = os.environ.get("BENCH_QUICK", "0") == "1"
REPEATS = int(os.environ.get("BENCH_REPEATS", "1" if QUICK else "5"))
LIMIT_S = 180
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1", "--mca",
          "btl", "self,vader"]
CASES = ["poll:8", "poll:64", "poll:256", "row:8"]
OWN_CASES = ["lists:64", "keyed:64", "fresh:64"]
RANKS = [2, 4, 8]
TURNS = 1 if QUICK else 3
CORES = len(os.sched_getaffinity(0))


def b2b(cases):
    return [f"{case}:b2b" for case in cases]


def paced(cases):
    return [f"{case}:paced" for case in cases]


def rounds(back_to_back, pace):
    if QUICK:
        back_to_back, pace = max(20, back_to_back // 10), max(20, pace // 10)
    return ["--rounds", str(back_to_back), "--paced-rounds", str(pace)]


def parse_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def run(command, **environment):
    """The JSON lines that a program prints; its failure ends the benchmark."""
    command = [str(part) for part in command]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=LIMIT_S,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nfailed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return parse_lines(done.stdout)


def tag(lines, **fields):
    return [{**line, **fields} for line in lines]


def run_floor(ranks, cases):
    lines = []
    for policy in ["pauses", "yield"] + (["spin"] if ranks <= CORES else []):  # spinning collapses with ranks > cores
        lines += run([BIN / "floor", "--ranks", ranks, "--policy", policy, *rounds(10000, 300), *cases])
    return lines


def run_convoy(ranks, cases):
    return run([BIN / "convoy_bench", "--ranks", ranks, *rounds(10000, 300), *cases])


def run_openmpi(ranks, cases):
    return run([*MPIRUN, "-n", ranks, BIN / "mpi_peer", "--ranks", ranks, *rounds(10000, 300), *cases])


def run_gloo(ranks, cases):
    return run(["/usr/bin/python3", ROOT / "tests/bench/gloo_peer.py", "--ranks", ranks, *rounds(200, 100), *cases])


def run_other():
    """What is not an exchange: opening, the segment, calls through table and handle."""
    return (run([BIN / "convoy_costs", "--ranks", 4, "--mode", "open"]) +
            run([BIN / "convoy_costs", "--ranks", 8, "--mode", "open"]) +
            run([BIN / "convoy_costs", "--mode", "calls"]))


# -- two hosts: two network namespaces with one link between them ----------------------------------------------------


class Hosts:
    """Two namespaces; both call their end of the link veth0. Made and removed by ip(8)."""

    def __init__(self):
        self.names = [f"convoy-bench-{os.getpid()}-{side}" for side in "ab"]
        subnet = os.getpid() % 250
        self.addresses = [f"10.213.{subnet}.{host}" for host in (1, 2)]
        self.settings = json.dumps({"ucx_tls": "tcp", "ucx_net_devices": "veth0"})

    def open(self):
        for name in self.names:
            self.ip("netns", "add", name)
        self.ip("link", "add", "veth0", "netns", self.names[0], "type", "veth", "peer", "name", "veth0", "netns",
                self.names[1])
        for name, address in zip(self.names, self.addresses):
            self.ip("-n", name, "addr", "add", f"{address}/24", "dev", "veth0")
            self.ip("-n", name, "link", "set", "veth0", "up")
            self.ip("-n", name, "link", "set", "lo", "up")
        deadline = time.monotonic() + 10
        while not all("LOWER_UP" in self.ip("-n", name, "link", "show", "veth0") for name in self.names):
            if time.monotonic() > deadline:
                raise OSError("the link between the namespaces does not come up")

    def close(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    @staticmethod
    def ip(*arguments):
        return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout

    def start(self, side, command, **environment):
        environment = {**os.environ, "UCX_TLS": "tcp", "UCX_NET_DEVICES": "veth0", **environment}
        return subprocess.Popen(["ip", "netns", "exec", self.names[side], *[str(part) for part in command]],
                                env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run_pair(self, commands):
        """One program on each host; the lines of both."""
        running = [self.start(side, command) for side, command in enumerate(commands)]
        outputs = [process.communicate(timeout=LIMIT_S) for process in running]
        if any(process.returncode != 0 for process in running):
            sys.exit("\n".join(f"host {side}: {process.args}\nended with {process.returncode}:\n{output}{errors}"
                               for side, (process, (output, errors)) in enumerate(zip(running, outputs))))
        return tag([line for output, _ in outputs for line in parse_lines(output)], hosts=2)


def run_am_floor(hosts):
    with tempfile.TemporaryDirectory() as directory:
        return hosts.run_pair([[BIN / "am_floor", "--first", side, "--directory", directory, *rounds(10000, 1),
                                *b2b(CASES)] for side in (0, 1)])


def run_convoy_hosts(hosts, ranks):
    local = ranks // 2
    with tempfile.TemporaryDirectory() as directory, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        rendezvous = f"tcp://{hosts.addresses[0]}:{probe.getsockname()[1]}"
        return hosts.run_pair([[BIN / "convoy_bench", "--ranks", ranks, "--first", side * local, "--local", local,
                                "--rendezvous", rendezvous, "--settings", hosts.settings, "--directory", directory,
                                *rounds(10000, 1), *b2b(CASES)] for side in (0, 1)])


def perftest_size(case):
    kind, n = case.split(":")
    return int(n) * (8 if kind == "row" else 1)


def perftest_figures(hosts, options, **environment):
    """The numbers behind "Final:" in what ucx_perftest prints on the first host; the second one serves."""
    server = hosts.start(1, ["taskset", "-c", min(1, CORES - 1), "ucx_perftest", *options], **environment)
    try:
        for _ in range(100):  # the client does not wait for the server to listen
            client = hosts.start(0, ["taskset", "-c", "0", "ucx_perftest", hosts.addresses[1], *options], **environment)
            try:
                output, errors = client.communicate(timeout=LIMIT_S)
            finally:
                client.kill()
            if client.returncode == 0:
                break
            time.sleep(0.1)
        else:
            sys.exit(f"ucx_perftest failed:\n{output}{errors}")
        server.communicate(timeout=LIMIT_S)
    finally:
        server.kill()
    figures = re.search(r"Final:\s+(.*)", output)
    if figures is None:
        sys.exit(f"ucx_perftest printed no figures:\n{output}")
    return [float(figure) for figure in figures.group(1).split()]


def run_perftest(hosts, case):
    """One-way latency as ucx_perftest prints it; the line holds twice that, the round trip."""
    _, median_us, mean_us, *_ = perftest_figures(hosts, ["-t", "ucp_am_lat", "-s", str(perftest_size(case)), "-n",
                                                         "1000" if QUICK else "20000", "-w", "500"])
    return {"peer": "ucx_perftest", "case": case, "mode": "b2b", "ranks": 4, "hosts": 2,
            "median_us": 2 * (median_us or mean_us), "p99_us": None, "period_us": 2 * mean_us}


def run_hosts(hosts, failures):
    """A run between hosts that fails is told at the end; the others count."""
    lines = []
    runs = [lambda: run_am_floor(hosts), lambda: run_convoy_hosts(hosts, 2), lambda: run_convoy_hosts(hosts, 4)]
    runs += [lambda case=case: [run_perftest(hosts, case)] for case in CASES]
    for one in runs * TURNS:
        try:
            lines += one()
        except SystemExit as failure:
            failures.append(str(failure))
    return lines


# -- the whole run ---------------------------------------------------------------------------------------------------


def back_to_back(ranks, is_reversed):
    """Case by case and in turns, so that what is compared lies close together: virtual cores move, and figures with
    them."""
    lines = []
    for case in b2b(CASES + OWN_CASES):
        peers = [run_openmpi, run_floor, run_convoy]
        if case not in b2b(CASES):
            peers.remove(run_openmpi)
        if case in b2b(OWN_CASES[1:]):
            peers.remove(run_floor)
        if is_reversed:
            peers.reverse()
        for turn in range(TURNS):
            for peer in peers:
                lines += tag(peer(ranks, [case]), turn=turn)
    return lines


def paced_turns(ranks, is_reversed):
    peers = [run_openmpi, run_convoy, run_floor]
    if is_reversed:
        peers.reverse()
    return [line for case in paced(CASES) for turn in range(TURNS) for peer in peers
            for line in tag(peer(ranks, [case]), turn=turn)]


def one_repeat(index, hosts, failures):
    is_reversed = index % 2 == 1  # drift of the machine must not favour who always runs first
    lines = run([BIN / "floor", "--mode", "machine"])
    for ranks in RANKS:
        lines += back_to_back(ranks, is_reversed)
        lines += paced_turns(ranks, is_reversed)
        lines += run_gloo(ranks, b2b(CASES) + paced(CASES))
    lines += run_hosts(hosts, failures) if hosts is not None else []
    return tag(lines + run_other(), repeat=index)


def open_hosts(stack):
    hosts = Hosts()
    stack.callback(hosts.close)
    try:
        hosts.open()
    except (OSError, subprocess.CalledProcessError) as error:
        return None, f"no network namespaces: {getattr(error, 'stderr', None) or error}".strip()
    return hosts, None


def machine():
    model = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return {"cpu": model.group(1) if model else "unknown", "kernel": os.uname().release, "cores": CORES}


def main():
    failures = []
    with contextlib.ExitStack() as stack:
        hosts, no_hosts = open_hosts(stack)
        repeats = []
        for index in range(REPEATS):
            start = time.monotonic()
            repeats.append(one_repeat(index, hosts, failures))
            print(f"repeat {index + 1} of {REPEATS}: {time.monotonic() - start:.0f} s", flush=True)
    result = report.summarise(machine(), repeats, no_hosts)
    result.update(quick=QUICK, failures=failures)
    report.show(result)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written: {OUTPUT.relative_to(ROOT)}" + ("; QUICK run, the figures mean nothing" if QUICK else ""))
    if failures:
        sys.exit("\n".join([f"{len(failures)} runs between hosts failed:", *failures]))


if __name__ == "__main__":
    main()
