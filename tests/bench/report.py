# SPDX-License-Identifier: Apache-2.0
"""Medians, ratios, bars and the table of the collective benchmark (see bench.py)."""
import statistics

POLICIES = ["floor-spin", "floor-pauses", "floor-yield"]
CASES = ["poll:8", "poll:64", "poll:256", "row:8"]
RANKS = [2, 4, 8]
FLOOR_BAR = {2: 1.6, 4: 1.4, 8: 1.4}
# What the floor was on the machine that the bars were set on: 2 virtual cores of a Xeon, Sapphire Rapids class.
REFERENCE_FLOOR_US = {2: 0.24, 4: 1.5, 8: 3.2}
REFERENCE = {"line_round_trip_us": 0.28, "yield_round_trip_us": 1.18}
FLOOR_TOLERANCE = 1.3
MISSES_ALLOWED = 2
MISS_FACTOR = 1.5


class Figures:
    """All measurements of a run: (peer, case, mode, ranks, hosts) -> one line per repeat."""

    def __init__(self, repeats):
        self.lines = {}
        for lines in repeats:
            for line in lines:
                key = (line["peer"], line["case"], line.get("mode", "-"), line.get("ranks", 0), line.get("hosts", 1))
                self.lines.setdefault(key, []).append(line)

    def values(self, key, field="median_us"):
        return [line[field] for line in self.lines.get(key, []) if line.get(field) is not None]

    def median(self, key, field="median_us"):
        values = self.values(key, field)
        return statistics.median(values) if values else None

    def by_repeat(self, key, field):
        """Repeat -> its values, in turn."""
        values = {}
        for line in self.lines.get(key, []):
            values.setdefault(line["repeat"], []).append(line[field])
        return values

    def ratio(self, key, other, field="median_us"):
        """Median of the ratios within each turn, or within each repeat where only one of both took turns."""
        own, peer = self.by_repeat(key, field), self.by_repeat(other, field)
        ratios = []
        for repeat in sorted(own.keys() & peer.keys()):
            left, right = own[repeat], peer[repeat]
            if len(left) != len(right):
                left, right = [statistics.median(left)], [statistics.median(right)]
            ratios += [mine / theirs for mine, theirs in zip(left, right)]
        return statistics.median(ratios) if ratios else None

    def floor(self, case, ranks, mode="b2b"):
        """The key of the best waiting policy."""
        keys = [(policy, case, mode, ranks, 1) for policy in POLICIES]
        return min((key for key in keys if key in self.lines), key=self.median)


def bar(name, value, limit, unit="x", at_least=False):
    """One bar: value must be at most (or at least) limit. excess: how far it is over, 1 = exactly at the bar."""
    line = {"name": name, "value": value, "limit": limit, "unit": unit, "at_least": at_least, "result": "NOT MEASURED",
            "excess": None}
    if value is not None:
        part, whole = (limit, value) if at_least else (value, limit)
        line.update(value=round(value, 3), excess=round(part / whole, 3) if whole else None,
                    result="PASS" if part <= whole else "MISS")
    return line


def one_host_bars(figures, case, ranks):
    own = ("convoy", case, "b2b", ranks, 1)
    floor = figures.floor(case, ranks)
    mpi = ("openmpi", case, "b2b", ranks, 1)
    where = f"{case}, {ranks} ranks"
    bars = [bar(f"{where}: to the floor ({floor[0][6:]})", figures.ratio(own, floor), FLOOR_BAR[ranks])]
    must_lead = 1.5 * FLOOR_BAR[ranks] * figures.median(floor) < figures.median(mpi)
    lead = 1.5 if must_lead else 1.0
    bars.append(bar(f"{where}: faster than Open MPI", figures.ratio(mpi, own), lead, at_least=True))
    gloo = ("gloo", case, "b2b", ranks, 1)
    bars.append(bar(f"{where}: faster than torch gloo", figures.ratio(gloo, own), 300.0, at_least=True))
    if bars[-1]["result"] == "MISS":
        bars[-1]["note"] = f"the bare floor itself is {figures.ratio(gloo, floor):.0f}x faster here"
    return bars


def paced_bars(figures, case, ranks):
    own = ("convoy", case, "paced", ranks, 1)
    where = f"{case}, {ranks} ranks, paced"
    period = figures.ratio(own, ("openmpi", case, "paced", ranks, 1), "period_us")
    bars = [bar(f"{where}: period to Open MPI's", period, 1.03)]
    if ranks == 2:
        bars.append(bar(f"{where}: span", figures.median(own), 1.0, "us"))
    return bars


def list_bars(figures, ranks):
    lists = ("convoy", "lists:64", "b2b", ranks, 1)
    keyed = ("convoy", "keyed:64", "b2b", ranks, 1)
    positional = ("convoy", "poll:64", "b2b", ranks, 1)
    return [bar(f"3 lists of 64, {ranks} ranks: to the floor", figures.ratio(lists, figures.floor("lists:64", ranks)),
                1.6),
            bar(f"keyed 64, {ranks} ranks, order unchanged: to positional", figures.ratio(keyed, positional), 3.0)]


def host_bars(figures, case):
    one = figures.ratio(("convoy", case, "b2b", 2, 2), ("ucx-am", case, "b2b", 2, 2))
    two = figures.ratio(("convoy", case, "b2b", 4, 2), ("ucx_perftest", case, "b2b", 4, 2))
    return [bar(f"{case}, 2 hosts x 1 rank: to a bare active-message exchange", one, 1.6),
            bar(f"{case}, 2 hosts x 2 ranks: to ucx_perftest's round trip", two, 1.6)]


def other_bars(figures):
    opened = figures.median(("convoy", "open", "paced", 4, 1))
    segment = figures.median(("convoy", "segment", "-", 8, 1), "bytes")
    return [bar("call through the table, over a direct call", figures.median(("convoy", "table", "-", 0, 1), "ns"), 5.0,
                "ns"),
            bar("call through the loader's handle, over the table",
                figures.median(("convoy", "handle", "-", 0, 1), "ns"), 5.0, "ns"),
            bar("context_open and group_open, 4 local ranks", opened / 1000 if opened else None, 20.0, "ms"),
            bar("shared segment of 8 members", segment / 2**20 if segment else None, 1.0, "MiB")]


def floor_check(figures, machine):
    """Is the floor of this machine the one that the bars were set on? If not, what explains the difference."""
    checks = []
    for ranks, reference in REFERENCE_FLOOR_US.items():
        key = figures.floor("poll:8", ranks)
        seen = figures.median(key)
        cause = "line_round_trip_us" if ranks <= machine["cores"] else "yield_round_trip_us"
        paced = figures.floor("poll:8", ranks, "paced")
        checks.append({"ranks": ranks, "policy": key[0][6:], "paced_span_us": round(figures.median(paced), 3), "floor_us": round(seen, 3), "reference_us": reference,
                       "ratio": round(seen / reference, 2),
                       "is_comparable": 1 / FLOOR_TOLERANCE <= seen / reference <= FLOOR_TOLERANCE,
                       "cause": cause, "cause_us": machine[cause], "cause_reference_us": REFERENCE[cause]})
    return checks


def numbers(lines):
    """The medians of all numeric fields."""
    fields = [field for field, value in lines[0].items() if isinstance(value, (int, float)) and
              field not in ("ranks", "hosts", "rounds", "turn", "repeat", "cores")]
    return {field: round(statistics.median(line[field] for line in lines), 3) for field in fields}


def judge(bars):
    """The bars, how many of them are missed, and whether that is good enough."""
    missed = [one for one in bars if one["result"] != "PASS"]
    far = [one for one in missed if one["excess"] is None or one["excess"] > MISS_FACTOR]
    return {"bars": bars, "missed": len(missed), "is_good": len(missed) <= MISSES_ALLOWED and not far}


def summarise(machine, repeats, no_hosts):
    figures = Figures(repeats)
    machine.update(numbers(figures.lines.pop(("machine", "machine", "-", 0, 1))))
    bars = [one for case in CASES for ranks in RANKS for one in one_host_bars(figures, case, ranks)]
    bars += [one for case in CASES for ranks in RANKS for one in paced_bars(figures, case, ranks)]
    bars += [one for ranks in RANKS for one in list_bars(figures, ranks)]
    bars += [one for case in CASES for one in host_bars(figures, case)]
    bars += other_bars(figures)
    measurements = []
    for (peer, case, mode, ranks, hosts), lines in figures.lines.items():
        measurements.append({"peer": peer, "case": case, "mode": mode, "ranks": ranks, "hosts": hosts,
                             **numbers(lines), "repeats": lines})
    return {"machine": machine, "repeat_count": len(repeats), "no_hosts": no_hosts,
            "floor_check": floor_check(figures, machine), **judge(bars), "measurements": measurements}


# -- printing --------------------------------------------------------------------------------------------------------


def short(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def cell(line):
    if line is None:
        return "-"
    p99 = "" if line.get("p99_us") is None else f" ({short(line['p99_us'])})"
    return f"{short(line['median_us'])}{p99} / {short(line['period_us'])}"


def case_order(row):
    case, ranks = row
    kind, n = case.split(":")
    return ranks, ["poll", "row", "lists", "keyed", "fresh"].index(kind), int(n)


def show_table(result, title, mode, hosts, columns):
    index = {(line["peer"], line["case"], line["ranks"]): line for line in result["measurements"]
             if line["mode"] == mode and line["hosts"] == hosts and line["case"] != "open"}
    rows = sorted({(case, ranks) for _, case, ranks in index}, key=case_order)
    if not rows:
        return
    print(f"\n{title}: median (p99) / period, us")
    print(f"  {'case':<10}{'ranks':>5}  " + "".join(f"{peer:>24}" for peer in columns))
    for case, ranks in rows:
        cells = "".join(f"{cell(index.get((peer, case, ranks))):>24}" for peer in columns)
        print(f"  {case:<10}{ranks:>5}  {cells}")


def show_floor(result):
    print("\nfloor here against the machine that the bars were set on (2 vCPUs, Xeon of the Sapphire Rapids class)")
    for check in result["floor_check"]:
        verdict = f"within {FLOOR_TOLERANCE}x" if check["is_comparable"] else "ANOTHER MACHINE"
        cause = check["cause"][:-3].replace("_", " ")
        print(f"  {check['ranks']} ranks ({check['policy']}): {check['floor_us']} us, there {check['reference_us']} "
              f"us, {check['ratio']}x: {verdict}; {cause} {check['cause_us']} us, there "
              f"{check['cause_reference_us']} us")
        print(f"    paced, the floor's own span is {check['paced_span_us']} us")
    machine = result["machine"]
    print(f"  {machine['cpu']}, {machine['cores']} cores, kernel {machine['kernel']}; sched_yield alone "
          f"{machine['yield_alone_us']} us, clock read {machine['clock_read_us']} us (two are in every call)")


def show_bars(result):
    print(f"\nbars ({result['repeat_count']} repeats, ratios within each, medians)")
    for one in result["bars"]:
        value = "-" if one["value"] is None else f"{one['value']:g}"
        bound = "at least" if one["at_least"] else "at most"
        print(f"  {one['result']:<13}{value:>9} {one['unit']:<4}{bound:>9} {one['limit']:<6g} {one['name']}")
        if one.get("why"):
            print(f"  {'':<13}not measured: {one['why']}")
        if one.get("note"):
            print(f"  {'':<13}{one['note']}")
    if result["no_hosts"]:
        print(f"  not measured between hosts: {result['no_hosts']}")
    print(f"{len(result['bars']) - result['missed']} of {len(result['bars'])} bars met (at most {MISSES_ALLOWED} may "
          f"be missed, none by more than {MISS_FACTOR}x: {'met' if result['is_good'] else 'NOT MET'})")


def show(result):
    peers = ["convoy", *POLICIES, "openmpi", "gloo"]
    show_table(result, "one host, back to back (mean call of all ranks)", "b2b", 1, peers)
    show_table(result, "one host, paced (last entry to last exit)", "paced", 1, peers)
    show_table(result, "two hosts, back to back", "b2b", 2, ["convoy", "ucx-am", "ucx_perftest"])
    show_floor(result)
    show_bars(result)
