# SPDX-License-Identifier: Apache-2.0
"""The part of README.md's numbers that is about staged transfer (see readme_table.py): every bar, misses included."""
import transfer_report

IN_TABLES = (": to the best single copy", ": to two copies", ": faster than", ": rate to ucx_perftest")
SIZES = transfer_report.SIZES


def short(value):
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


class Lines:
    """Medians by peer and case."""

    def __init__(self, result):
        self.lines = {(line["peer"], line["case"], line["mode"], line["hosts"]): line for line in result["measurements"]}

    def figure(self, peer, case, mode="-", hosts=1, field="median_us"):
        return self.lines.get((peer, case, mode, hosts), {}).get(field)

    def fastest(self, peers, case, mode="-"):
        values = [self.figure(peer, case, mode) for peer in peers]
        return min((value for value in values if value is not None), default=None)

    def with_p99(self, case, mode="-"):
        p99 = self.figure("convoy", case, mode, field="p99_us")
        return short(self.figure("convoy", case, mode)) + ("" if p99 is None else f" ({short(p99)})")


def verdict(result, name):
    """The bar of this name, as "1.08x (bar 1.15)", in bold when it was missed."""
    bar = next(one for one in result["bars"] if one["name"] == name)
    if bar["value"] is None:
        return "**not measured**"
    text = f"{bar['value']:.3g}x (bar {bar['limit']:g})"
    return text if bar["result"] == "PASS" else f"**{text}**"


def one_host(result, lines):
    yield "| one host, us | size | convoy | floor | convoy to floor |"
    yield "|---|---|---|---|---|"
    for size in SIZES:
        text = transfer_report.size_text(size)
        floor = lines.fastest(transfer_report.WARM, f"single:{size}:1")
        for pieces, tensors in ((1, "one tensor"), (64, "64 tensors")):
            yield (f"| stage, lend, read in place; {tensors} | {text} | {lines.with_p99(f'view:{size}:{pieces}')} | "
                   f"{short(floor)} | {verdict(result, f'view, {text}, {tensors}: to the best single copy')} |")
        yield (f"| stage, descriptor, load by copy | {text} | {lines.with_p99(f'broker:{size}:1')} | "
               f"{short(lines.figure('floor', f'sequence:{size}'))} | "
               f"{verdict(result, f'copy through a broker, {text}: to two copies in sequence')} |")
    size, text = SIZES[-1], transfer_report.size_text(SIZES[-1])
    yield (f"| send and accept by copy | {text} | {lines.with_p99(f'copy:{size}:1')} | "
           f"{short(lines.figure('floor', f'chunked:{size}'))} | "
           f"{verdict(result, f'copy in direct mode, {text}: to two copies by chunks')} |")


def beside_zmq(result, lines):
    yield ""
    yield "| beside pyzmq, us | size | convoy | tcp | convoy faster | ipc | convoy faster |"
    yield "|---|---|---|---|---|---|---|"
    rows = [(size, "copy", "plain", "pyzmq") for size in transfer_report.ZMQ_SIZES]
    rows.append((transfer_report.ZMQ_SIZES[-1], "view", "zero-copy", "zero-copy frames"))
    for size, kind, way, name in rows:
        text = transfer_report.size_text(size)
        cells = [f"{short(lines.figure(f'zmq-{transport}-{way}', f'hand:{size}', 'zmq'))} | "
                 f"{verdict(result, f'{kind}, {text}: faster than {name} over {transport}')}" for transport in ("tcp", "ipc")]
        yield f"| {name}, {kind} | {text} | {lines.with_p99(f'{kind}:{size}:1', 'zmq')} | {' | '.join(cells)} |"


def two_hosts(result, lines):
    yield ""
    yield "| two hosts (UCX over TCP), GB/s | convoy, " + ", ".join(f"{queued}" for queued in transfer_report.QUEUES) + \
        " queued | `ucx_perftest`, put | active messages | convoy to the better |"
    yield "|---|---|---|---|---|"
    for size in SIZES:
        text = transfer_report.size_text(size)
        own = [short(lines.figure("convoy", f"stream:{size}:{queued}", hosts=2, field="gb_s"))
               for queued in transfer_report.QUEUES]
        peers = [max((lines.figure(peer, f"stream:{size}", hosts=2, field="gb_s") or 0)
                     for peer in transfer_report.PERFTESTS if peer.startswith(test)) for test in ("ucp_put_bw", "ucp_am_bw")]
        yield (f"| {text} | {', '.join(own)} | {short(peers[0])} | {short(peers[1])} | "
               f"{verdict(result, f'two hosts, {text}: rate to ucx_perftest' + chr(39) + 's')} |")


def floors(result):
    for check in result["floor_check"]:
        if not check["is_comparable"]:
            yield (f"- the floor of {check['name']} is {check['ratio']:.3g} times that of the machine that the bars were set on "
                   f"({check['reference_us']:g} us): one thread alone copies as much in {check['cause_us']:.3g} us here, "
                   f"{check['cause_reference_us']:g} us there"
                   + ("" if check["is_explained"] else ", which does not explain it"))


def other(result):
    missed = [bar for bar in result["bars"] if bar["result"] != "PASS"]
    rest = [bar for bar in missed if not any(part in bar["name"] for part in IN_TABLES)]
    yield ""
    yield (f"{len(result['bars']) - len(missed)} of {len(result['bars'])} bars were met."
           + (" Missed beside those in bold, and what else to know:" if rest else ""))
    yield ""
    for bar in rest:
        bound = "at least" if bar["at_least"] else "at most"
        unit = "x" if bar["unit"] == "x" else f" {bar['unit']}"
        value = "not measured" if bar["value"] is None else f"{bar['value']:.3g}{unit}"
        yield f"- {bar['name']}: {value} ({bound} {bar['limit']:g}{unit})"
    yield from floors(result)
    for failure in result.get("failures", []):
        yield f"- failed: {failure.splitlines()[0][:100]}"


def text(result, date):
    machine, lines = result["machine"], Lines(result)
    yield (f"Read on {date} on a virtual machine with {machine['cores']} cores ({machine['cpu']}, Linux "
           f"{machine['kernel']}), medians of {result['repeat_count']} interleaved repeats"
           + (", a quick trial only" if result.get("quick") else "") + ". From the start of the stage until the sender knows")
    yield "that the receiver has it; median (99th percentile). A figure in bold misses its bar."
    yield ""
    yield from one_host(result, lines)
    yield from beside_zmq(result, lines)
    yield from two_hosts(result, lines)
    yield from other(result)
