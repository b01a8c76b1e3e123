# SPDX-License-Identifier: Apache-2.0
"""Medians, ratios, bars and the table of the collective benchmark (see bench.py)."""
import statistics

POLICIES = ["floor-spin", "floor-pauses", "floor-yield"]
CASES = ["poll:8", "poll:64", "poll:256", "row:8"]
RANKS = [2, 4, 8]
FLOOR_BAR = {2: 1.6, 4: 1.4, 8: 1.4}
# What the floor was on the machine that the bars were set on: 2 virtual cores of a Xeon, Sapphire Rapids class.
REFERENCE_FLOOR_US = {2: 0.24, 4: 1.5, 8: 3.2}
REFERENCE = {"cache_line_round_trip_us": 0.28, "yield_switch_us": 0.6}
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

    def ratio(self, key, other, field="median_us"):
        """Median over the repeats of the ratio within each repeat."""
        pairs = list(zip(self.values(key, field), self.values(other, field)))
        return statistics.median(own / peer for own, peer in pairs) if pairs else None

    def floor(self, case, ranks, mode="b2b"):
        """The key of the best waiting policy."""
        keys = [(policy, case, mode, ranks, 1) for policy in POLICIES]
        return min((key for key in keys if key in self.lines), key=self.median)


def bar(name, value, limit, unit="x"):
    """One bar: value must be at most limit. `excess` is how far it is over, 1.0 = exactly at the bar."""
    if value is None:
        return {"name": name, "value": None, "limit": limit, "unit": unit, "result": "NOT MEASURED", "excess": None}
    return {"name": name, "value": round(value, 3), "limit": limit, "unit": unit,
            "result": "PASS" if value <= limit else "MISS", "excess": round(value / limit, 3)}


def one_host_bars(figures, case, ranks):
    own = ("convoy", case, "b2b", ranks, 1)
    floor = figures.floor(case, ranks)
    mpi = ("openmpi", case, "b2b", ranks, 1)
    where = f"{case}, {ranks} ranks"
    bars = [bar(f"{where}: to the floor ({floor[0][6:]})", figures.ratio(own, floor), FLOOR_BAR[ranks])]
    is_well_above = 1.5 * FLOOR_BAR[ranks] * figures.median(floor) < figures.median(mpi)
    limit = round(1 / 1.5, 3) if is_well_above else 1.0
    bars.append(bar(f"{where}: to Open MPI", figures.ratio(own, mpi), limit))
    bars.append(bar(f"{where}: to torch gloo", figures.ratio(own, ("gloo", case, "b2b", ranks, 1)), round(1 / 300, 5)))
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


def floor_check(figures, machine, cores):
    """Is the floor of this machine the one that the bars were set on? If not, what explains the difference."""
    checks = []
    for ranks, reference in REFERENCE_FLOOR_US.items():
        key = figures.floor("poll:8", ranks)
        seen = figures.median(key)
        cause = "cache_line_round_trip_us" if ranks <= cores else "yield_switch_us"
        checks.append({"ranks": ranks, "policy": key[0][6:], "floor_us": round(seen, 3), "reference_us": reference,
                       "ratio": round(seen / reference, 2),
                       "is_comparable": 1 / FLOOR_TOLERANCE <= seen / reference <= FLOOR_TOLERANCE,
                       "cause": cause, "cause_ratio": round(machine[cause] / REFERENCE[cause], 2)})
    return checks


def summarise(machine, repeats, cores, no_hosts):
    figures = Figures(repeats)
    bars = [one for case in CASES for ranks in RANKS for one in one_host_bars(figures, case, ranks)]
    bars += [one for case in CASES for ranks in RANKS for one in paced_bars(figures, case, ranks)]
    bars += [one for ranks in RANKS for one in list_bars(figures, ranks)]
    bars += [one for case in CASES for one in host_bars(figures, case)]
    bars += other_bars(figures)
    measurements = []
    for (peer, case, mode, ranks, hosts), lines in figures.lines.items():
        middle = {field: statistics.median(line[field] for line in lines) for field in lines[0]
                  if isinstance(lines[0][field], (int, float)) and field not in ("ranks", "hosts", "rounds")}
        measurements.append({"peer": peer, "case": case, "mode": mode, "ranks": ranks, "hosts": hosts, **middle,
                             "repeats": lines})
    missed = [one for one in bars if one["result"] != "PASS"]
    far = [one for one in missed if one["excess"] is None or one["excess"] > MISS_FACTOR]
    return {"machine": machine, "cores": cores, "repeat_count": len(repeats), "no_hosts": no_hosts,
            "floor_check": floor_check(figures, machine, cores), "bars": bars, "missed": len(missed),
            "is_good": len(missed) <= MISSES_ALLOWED and not far, "measurements": measurements}


# -- printing ------------------------------------------------------------------------------------------------------------


def cell(line):
    if line is None:
        return "-"
    p99 = "" if line.get("p99_us") is None else f" ({line['p99_us']:.4g})"
    return f"{line['median_us']:.4g}{p99} / {line['period_us']:.4g}"


def show_table(result, title, mode, hosts, columns):
    index = {(line["peer"], line["case"], line["ranks"]): line for line in result["measurements"]
             if line["mode"] == mode and line["hosts"] == hosts}
    rows = sorted({(case, ranks) for _, case, ranks in index if case != "open"}, key=lambda row: (row[1], row[0]))
    if not rows:
        return
    print(f"\n{title}: median (p99) / period, us")
    print(f"  {'case':<10}{'ranks':>5}  " + "".join(f"{peer:>28}" for peer in columns))
    for case, ranks in rows:
        cells = "".join(f"{cell(index.get((peer, case, ranks))):>28}" for peer in columns)
        print(f"  {case:<10}{ranks:>5}  {cells}")


def show_floor(result):
    print("\nfloor of this machine against the machine that the bars were set on (poll:8, back to back)")
    for check in result["floor_check"]:
        verdict = "comparable" if check["is_comparable"] else "DIFFERENT MACHINE"
        print(f"  {check['ranks']} ranks: {check['floor_us']} us ({check['policy']}), there {check['reference_us']} us: "
              f"{check['ratio']}x, {verdict}; {check['cause'][:-3]} is {check['cause_ratio']}x of that machine's")
    machine = result["machine"]
    print(f"  here: {machine['cpu']}, {result['cores']} cores, kernel {machine['kernel']}; cache line round trip "
          f"{machine['cache_line_round_trip_us']} us, yield to another process {machine['yield_switch_us']} us, yield "
          f"alone {machine['yield_alone_us']} us, clock read {machine['clock_read_us']} us")


def show(result):
    peers = ["convoy", *POLICIES, "openmpi", "gloo"]
    show_table(result, "one host, back to back (mean call of all ranks)", "b2b", 1, peers)
    show_table(result, "one host, paced (last entry to last exit)", "paced", 1, peers)
    show_table(result, "two hosts, back to back", "b2b", 2, ["convoy", "ucx-am", "ucx_perftest"])
    show_floor(result)
    print(f"\nbars ({result['repeat_count']} repeats, ratios within each, medians)")
    for one in result["bars"]:
        value = "-" if one["value"] is None else f"{one['value']:g}"
        print(f"  {one['result']:<13}{value:>9} {one['unit']:<4} at most {one['limit']:<8g} {one['name']}")
    if result["no_hosts"]:
        print(f"  not measured between hosts: {result['no_hosts']}")
    print(f"{len(result['bars']) - result['missed']} of {len(result['bars'])} bars met")
