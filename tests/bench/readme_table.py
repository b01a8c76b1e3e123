#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the numbers of a benchmark into README.md, between its two marks: what was measured, misses included.

Usage: readme_table.py [FILE], FILE is what bench.py wrote (default build/bench/collectives.json), or transfer.py
(build/bench/transfer.json), whose numbers have marks of their own.
"""
import datetime
import json
import os
import sys

import readme_python
import readme_transfer

MARKS = {"collectives": ("<!-- numbers: written by tests/bench/readme_table.py -->", "<!-- end of numbers -->"),
         "transfer": ("<!-- transfer: written by tests/bench/readme_table.py -->", "<!-- end of transfer -->"),
         "python": ("<!-- python: written by tests/bench/readme_table.py -->", "<!-- end of python -->")}
FLOORS = ["floor-spin", "floor-pauses", "floor-yield"]
NAMES = {"poll:8": "poll, 8 states", "poll:64": "poll, 64 states", "poll:256": "poll, 256 states",
         "row:8": "gather, 8 columns", "lists:64": "poll, 3 lists of 64", "keyed:64": "poll, 64 keyed",
         "fresh:64": "poll, 64 keyed, fresh order"}


def short(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def index(result, mode, hosts):
    return {(line["peer"], line["case"], line["ranks"]): line for line in result["measurements"]
            if line["mode"] == mode and line["hosts"] == hosts}


def figure(lines, peer, case, ranks, field="median_us"):
    return lines.get((peer, case, ranks), {}).get(field)


def with_p99(lines, peer, case, ranks):
    p99 = figure(lines, peer, case, ranks, "p99_us")
    return short(figure(lines, peer, case, ranks)) + ("" if p99 is None else f" ({short(p99)})")


def ratio(result, start):
    """The bar whose name starts so, as "1.52 (bar 1.6)", in bold when it was missed."""
    for bar in result["bars"]:
        if bar["name"].startswith(start):
            if bar["value"] is None:
                return "not measured"
            text = f"{bar['value']:.3g}x (bar {bar['limit']:g})"
            return text if bar["result"] == "PASS" else f"**{text}**"
    return "-"


def floor_start(case, ranks):
    return f"3 lists of 64, {ranks} ranks: to the floor" if case == "lists:64" else f"{case}, {ranks} ranks: to the floor"


def one_host(result):
    lines = index(result, "b2b", 1)
    yield "| call | ranks | convoy | floor | convoy to floor | Open MPI | torch gloo |"
    yield "|---|---|---|---|---|---|---|"
    for case, name in NAMES.items():
        for ranks in sorted(key[2] for key in lines if key[:2] == ("convoy", case)):
            floors = [value for value in (figure(lines, floor, case, ranks) for floor in FLOORS) if value is not None]
            yield (f"| {name} | {ranks} | {with_p99(lines, 'convoy', case, ranks)} | "
                   f"{short(min(floors, default=None))} | {ratio(result, floor_start(case, ranks))} | "
                   f"{with_p99(lines, 'openmpi', case, ranks)} | {short(figure(lines, 'gloo', case, ranks))} |")


def two_hosts(result):
    lines = index(result, "b2b", 2)
    rows = sorted({key[1:] for key in lines if key[0] == "convoy"}, key=lambda key: (key[1], list(NAMES).index(key[0])))
    if not rows:
        return
    yield ""
    yield "| two hosts (UCX over TCP) | ranks | convoy | bare exchange | `ucx_perftest`, round trip | convoy to it |"
    yield "|---|---|---|---|---|---|"
    for case, ranks in rows:
        bar = f"{case}, 2 hosts x {ranks // 2} rank"
        yield (f"| {NAMES[case]} | {ranks} | {with_p99(lines, 'convoy', case, ranks)} | "
               f"{short(figure(lines, 'ucx-am', case, ranks))} | {short(figure(lines, 'ucx_perftest', case, ranks))} | "
               f"{ratio(result, bar)} |")


def floors(result):
    """Why this machine's floor is another than the one that the bars were set on."""
    for check in result["floor_check"]:
        if not check["is_comparable"]:
            cause = check["cause"][:-3].replace("_", " ")
            yield (f"- the floor of {check['ranks']} ranks is {check['ratio']:.3g} times that of the machine that the bars were "
                   f"set on ({check['reference_us']:g} us): {cause} takes {check['cause_us']:.3g} us here, "
                   f"{check['cause_reference_us']:.3g} us there")
        if check["ranks"] == 2:
            yield (f"- paced, the floor itself takes {check['paced_span_us']:.3g} us at 2 ranks from the last entry to the "
                   f"last exit: after a sleep everything is cold, and the processor has to be woken")


def other(result):
    missed = [bar for bar in result["bars"] if bar["result"] != "PASS"]
    rest = [bar for bar in missed if "to the floor" not in bar["name"] and "2 hosts" not in bar["name"]]
    yield ""
    yield (f"{len(result['bars']) - len(missed)} of {len(result['bars'])} bars were met."
           + (" Missed beside those in bold, and what else to know:" if rest else ""))
    yield ""
    for bar in rest:
        bound = "at least" if bar["at_least"] else "at most"
        unit = "" if bar["unit"] == "x" else " " + bar["unit"]
        value = "not measured" if bar["value"] is None else f"{bar['value']:.3g}{unit or ' times'}"
        note = f"; {bar['note']}" if bar.get("note") else ""
        yield f"- {bar['name']}: {value} ({bound} {bar['limit']:g}{unit}){note}"
    yield from floors(result)
    for failure in result.get("failures", []):
        yield f"- failed: {failure.splitlines()[0][:100]}"


def text(result, date):
    machine = result["machine"]
    yield (f"Read on {date} on a virtual machine with {machine['cores']} cores ({machine['cpu']}, Linux "
           f"{machine['kernel']}), medians of {result['repeat_count']} interleaved repeats"
           + (", a quick trial only" if result.get("quick") else "") + ". Microseconds a call, back to back, median (99th")
    yield "percentile). A figure in bold misses its bar."
    yield ""
    yield from one_host(result)
    yield from two_hosts(result)
    yield from other(result)


def main():
    top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(top, "build/bench/collectives.json")
    with open(path, encoding="utf-8") as file:
        result = json.load(file)
    date = datetime.date.fromtimestamp(os.path.getmtime(path)).isoformat()
    family = result.get("family", "collectives")
    begin, end = MARKS[family]
    lines = {"transfer": readme_transfer.text, "python": readme_python.text}.get(family, text)(result, date)
    readme = os.path.join(top, "README.md")
    with open(readme, encoding="utf-8") as file:
        before, found, rest = file.read().partition(begin + "\n")
    if not found or end not in rest:
        sys.exit(f"README.md has no lines \"{begin}\" and \"{end}\" to write between")
    with open(readme + ".new", "w", encoding="utf-8") as file:
        file.write(before + begin + "\n" + "\n".join(lines) + "\n" + end + rest.split(end, 1)[1])
    os.rename(readme + ".new", readme)


if __name__ == "__main__":
    main()
