# SPDX-License-Identifier: Apache-2.0
"""Ratios, bars and the table of the benchmark of staged transfer (see transfer.py)."""
import re

import report

SIZES = [1 << 20, 16 << 20, 64 << 20]
ZMQ_SIZES = [1 << 20, 64 << 20]
QUEUES = [1, 4, 8]
PERFTESTS = ["ucp_put_bw", "ucp_put_bw-2", "ucp_am_bw", "ucp_am_bw-2"]
WARM = ["floor-memcpy", "floor-stream"]
COLD = ["cold-memcpy", "cold-stream"]
MACHINE = ["machine-memcpy", "machine-stream"]
ZMQ = [f"zmq-{transport}-{way}" for transport in ("tcp", "ipc") for way in ("plain", "zero-copy")]
# The floors on the machine that the bars were set on, and what explains them: what one thread needs to copy as much.
REFERENCE = [("one copy", f"single:{1 << 20}:1", 37.0, f"copy:{1 << 20}", 38.0),
             ("two copies by chunks", f"chunked:{64 << 20}", 5900.0, f"copy:{64 << 20}", 5000.0)]
FRESH_REFERENCE_US = {1 << 20: 262, 64 << 20: 31000}
TOLERANCE = report.FLOOR_TOLERANCE


def size_text(size):
    for unit, text in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {text}"
    return f"{size} bytes"


class Figures(report.Figures):
    """Refused cases apart from the measured ones."""

    def __init__(self, repeats):
        super().__init__([[line for line in lines if "refused" not in line] for lines in repeats])
        self.refused = {line["case"]: line["refused"] for lines in repeats for line in lines if "refused" in line}

    @staticmethod
    def key(peer, case, mode="-", hosts=1):
        return peer, case, mode, 0, hosts

    def best(self, peers, case, mode="-", hosts=1):
        """The key of the fastest of these peers, or None."""
        keys = [self.key(peer, case, mode, hosts) for peer in peers]
        keys = [key for key in keys if self.median(key) is not None]
        return min(keys, key=self.median, default=None)

    def over(self, case, other, mode="-"):
        """How many times as long convoy takes; None where one of both was not measured."""
        return None if other is None else self.ratio(self.key("convoy", case, mode), other)

    def under(self, case, other, mode="-"):
        """How many times as long the other takes."""
        return None if other is None else self.ratio(other, self.key("convoy", case, mode))


def bar(figures, cases, name, value, limit, unit="x", at_least=False):
    """As report.bar; says why it was not measured."""
    line = report.bar(name, value, limit, unit, at_least)
    if value is None:
        line["why"] = next((figures.refused[case] for case in cases if case in figures.refused), "a run is missing")
    return line


# -- bars ------------------------------------------------------------------------------------------------------------


def one_copy_bars(figures, size):
    floor = figures.best(WARM, f"single:{size}:1")
    return [bar(figures, [case], f"view, {size_text(size)}, {tensors}: to the best single copy",
                figures.over(case, floor), limit)
            for case, tensors, limit in ((f"view:{size}:1", "one tensor", 1.15), (f"view:{size}:64", "64 tensors", 1.3))]


def two_copies_bars(figures, size):
    copy, broker = f"copy:{size}:1", f"broker:{size}:1"
    bars = [bar(figures, [broker], f"copy through a broker, {size_text(size)}: to two copies in sequence",
                figures.over(broker, figures.key("floor", f"sequence:{size}")), 1.15)]
    if size == SIZES[-1]:
        bars.append(bar(figures, [copy], f"copy in direct mode, {size_text(size)}: to two copies by chunks",
                        figures.over(copy, figures.key("floor", f"chunked:{size}")), 1.3))
    return bars


def small_bars(figures):
    empty = "empty"
    pieces = [bar(figures, [f"{kind}:262144:256", f"{kind}:262144:1"], f"256 {what} of 1 KiB: to one of 256 KiB",
                  figures.over(f"{kind}:262144:256", figures.key("convoy", f"{kind}:262144:1")), 2.0)
              for kind, what in (("view", "tensors"), ("raw", "pieces by address"))]
    return [bar(figures, ["view:4096:1"], "view, 4 KiB, with notice", figures.median(figures.key("convoy", "view:4096:1")),
                3.0, "us"),
            *pieces,
            bar(figures, [empty], "no payload: from reserve to ready", figures.median(figures.key("convoy", empty)), 10.0,
                "us")]


def zmq_bars(figures):
    """Who copies out is compared with a load that copies, who looks at frames in place with one that looks in place."""
    bars = []
    for size, limit in zip(ZMQ_SIZES, (8.0, 12.0)):
        for transport in ("tcp", "ipc"):
            case = f"copy:{size}:1"
            other = figures.key(f"zmq-{transport}-plain", f"hand:{size}", "zmq")
            bars.append(bar(figures, [case], f"copy, {size_text(size)}: faster than pyzmq over {transport}",
                            figures.under(case, other, "zmq"), limit, at_least=True))
    case = f"view:{ZMQ_SIZES[-1]}:1"
    for transport in ("tcp", "ipc"):
        other = figures.key(f"zmq-{transport}-zero-copy", f"hand:{ZMQ_SIZES[-1]}", "zmq")
        bars.append(bar(figures, [case], f"view, {size_text(ZMQ_SIZES[-1])}: faster than zero-copy frames over {transport}",
                        figures.under(case, other, "zmq"), 4.0, at_least=True))
    return bars


def host_bars(figures, size):
    """Against the better of both tests, each as it comes and with two puts at a time: it collapses by itself."""
    cases = [f"stream:{size}:{queued}" for queued in QUEUES]
    rates = [figures.median(figures.key("convoy", case, hosts=2), "gb_s") for case in cases]
    peer = figures.best(PERFTESTS, f"stream:{size}", hosts=2)
    best = figures.best(["convoy"], max(zip(rates, cases))[1], hosts=2) if None not in rates else None
    ratio = figures.ratio(best, peer, "gb_s") if best and peer else None
    spread = min(rates) / max(rates) if None not in rates else None
    text = f"two hosts, {size_text(size)}"
    return [bar(figures, cases, f"{text}: rate to ucx_perftest's", ratio, 0.9, at_least=True),
            bar(figures, cases, f"{text}: slowest rate to the fastest, {', '.join(map(str, QUEUES))} queued", spread, 0.5,
                at_least=True)]


def counted(figures):
    """Lines of convoy with a payload of 1 MiB and more that was staged."""
    return [line for (peer, *_), lines in figures.lines.items() if peer == "convoy" for line in lines
            if line.get("expected_bytes", 0) >= 1 << 20 and not line["case"].startswith("raw")]


def control_share(line):
    """Bytes with control, over the payload; None where the library does not count them."""
    counters = (line.get("stats") or {}).get("counters", {})
    if "control_bytes" not in counters or not line["sends"]:
        return None
    return 1 + counters["control_bytes"] / line["sends"] / line["expected_bytes"]


def wire_bars(figures):
    lines = counted(figures)
    cases = [f"view:{size}:1" for size in SIZES]
    wrong = [line for line in lines if line["payload_bytes"] != line["expected_bytes"] or
             line["sent_bytes"] != line["sends"] * line["expected_bytes"]]
    shares = [control_share(line) for line in lines]
    exact = bar(figures, cases, "runs whose bytes are exactly the manifest's", 1 - len(wrong) / len(lines) if lines else None,
                1.0, at_least=True)
    share = bar(figures, cases, "bytes with control, to the payload", max(shares) if shares and None not in shares else None,
                1.01)
    if lines and share["value"] is None:
        share["why"] = "the library's statistics have no counter control_bytes"
    return [exact, share]


def micro_bars(figures):
    def ns(case):
        value = figures.median(figures.key("convoy", case))
        return None if value is None else value * 1000
    message = figures.ratio(figures.key("convoy", "message"), figures.key("jansson", "message"))
    return [bar(figures, [], "a block of a pool: free and allocate, 10,000 live", ns("buddy"), 150.0, "ns"),
            bar(figures, [], "staged message of 20 tensors: to bare jansson", message, 2.5),
            bar(figures, [], "manifest of 20 tensors as bytes", figures.median(figures.key("convoy", "manifest")), 5.0,
                "us")]


# -- the machine -----------------------------------------------------------------------------------------------------


def floor_check(figures):
    """Is the floor of this machine the one that the bars were set on? If not, does its speed of copying explain it."""
    checks = []
    for name, case, reference_us, cause, cause_reference_us in REFERENCE:
        floor, copy = figures.best([*WARM, "floor"], case), figures.best(MACHINE, cause)
        if floor is None or copy is None:
            continue
        ratio = figures.median(floor) / reference_us
        cause_ratio = figures.median(copy) / cause_reference_us
        checks.append({"name": name, "case": case, "floor_us": figures.median(floor), "reference_us": reference_us,
                       "ratio": round(ratio, 2), "is_comparable": 1 / TOLERANCE <= ratio <= TOLERANCE,
                       "cause_us": figures.median(copy), "cause_reference_us": cause_reference_us,
                       "cause_ratio": round(cause_ratio, 2),
                       "is_explained": 1 / TOLERANCE <= ratio / cause_ratio <= TOLERANCE})
    return checks


def summarise(machine, repeats, no_hosts):
    figures = Figures(repeats)
    machine.update(report.numbers(figures.lines.pop(("machine", "machine", "-", 0, 1))))
    bars = [one for size in SIZES for one in one_copy_bars(figures, size)]
    bars += [one for size in SIZES for one in two_copies_bars(figures, size)]
    bars += small_bars(figures) + zmq_bars(figures)
    bars += [one for size in SIZES for one in host_bars(figures, size)]
    bars += wire_bars(figures) + micro_bars(figures)
    measurements = [{"peer": peer, "case": case, "mode": mode, "hosts": hosts, **report.numbers(lines), "repeats": lines}
                    for (peer, case, mode, _, hosts), lines in figures.lines.items()]
    return {"family": "transfer", "machine": machine, "repeat_count": len(repeats), "no_hosts": no_hosts,
            "refused": figures.refused, "floor_check": floor_check(figures), **report.judge(bars),
            "measurements": measurements}


# -- printing --------------------------------------------------------------------------------------------------------


def case_name(case):
    kind, _, rest = case.partition(":")
    size, _, pieces = rest.partition(":")
    parts = [kind] + ([size_text(int(size))] if size else [])
    if pieces not in ("", "1"):
        parts.append(f"{pieces} queued" if kind == "stream" else f"{pieces} pieces")
    return ", ".join(parts)


def cell(line):
    p99 = line.get("p99_us")
    return report.short(line["median_us"]) + ("" if p99 is None else f" ({report.short(p99)})")


def show_table(result):
    print("\nmedian (p99), us; for streams also GB/s")
    for line in sorted(result["measurements"], key=lambda one: (one["hosts"], one["mode"])):
        more = f"  {line['gb_s']:.3g} GB/s" if line["case"].startswith("stream") else ""
        if "chunk" in line and line["case"].startswith("chunked"):
            more = f"  chunks of {size_text(int(line['chunk']))}, window {line['window']:.0f}"
        where = {"zmq": "beside pyzmq"}.get(line["mode"], "two hosts" if line["hosts"] == 2 else "")
        print(f"  {case_name(line['case']):<28}{line['peer']:<20}{cell(line):>20}  {where}{more}")


def show_floor(result):
    print("\nfloor here against the machine that the bars were set on (2 vCPUs, Xeon of the Sapphire Rapids class)")
    for check in result["floor_check"]:
        verdict = f"within {TOLERANCE}x" if check["is_comparable"] else "ANOTHER MACHINE"
        why = "which explains it" if check["is_explained"] else "which does NOT explain it"
        print(f"  {check['name']}: {check['floor_us']:.4g} us, there {check['reference_us']:g} us, {check['ratio']}x: "
              f"{verdict}")
        print(f"    one thread alone copies as much in {check['cause_us']:.4g} us, there {check['cause_reference_us']:g} us, "
              f"{check['cause_ratio']}x" + ("" if check["is_comparable"] else f": {why}"))
    for size in (1 << 20, 64 << 20):
        fresh = [line["median_us"] for line in result["measurements"]
                 if (line["peer"], line["case"]) == ("machine-fresh", f"copy:{size}")]
        print(f"  {size_text(size)} into pages that were never touched, as pyzmq does: {report.short(fresh[0]) if fresh else '-'} "
              f"us, there {FRESH_REFERENCE_US[size]} us")
    machine = result["machine"]
    print(f"  {machine['cpu']}, {machine['cores']} cores, kernel {machine['kernel']}; clock read "
          f"{machine['clock_read_us']} us (two are in every sample)")


def show(result):
    show_table(result)
    alike = {}
    for case, text in result["refused"].items():  # addresses and numbers of one run aside
        alike.setdefault(re.sub(r"[0-9a-f]*[0-9][0-9a-f]*", "", text), (text, []))[1].append(case_name(case))
    for text, cases in alike.values():
        print(f"  convoy, not measured: {text}\n    {'; '.join(cases)}")
    show_floor(result)
    report.show_bars(result)
