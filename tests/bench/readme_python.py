# SPDX-License-Identifier: Apache-2.0
"""The part of README.md's numbers that is about the Python package (see readme_table.py): every bar, misses included."""

NAMES = {"poll:8": "poll, 8 states", "poll:64": "poll, 64 states", "poll:256": "poll, 256 states", "row:8": "gather, 8 columns"}
RANKS = (2, 4, 8)


def short(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cell(line, bars):
    """"1.94 us, 431x", in bold when it was missed."""
    text = f"{short(line['convoy_us'])}, {short(line['ratio'])}x of {short(line['gloo_us'])}"
    name = f"{line['case']} at {line['ranks']} ranks, list to list: times as fast as gloo"
    return text if next(bar for bar in bars if bar["name"] == name)["passed"] else f"**{text}**"


def text(result, date):
    lines = {(line["case"], line["ranks"]): line for line in result["comparisons"]}
    yield (f"Read on {date} on {result['cores']} cores with Python {result['python']} and torch {result['torch']}, medians of "
           f"{result['repeats']} interleaved blocks. Microseconds a")
    yield ("call from a Python list to a Python list, how many times as fast as the same on torch gloo, and gloo's microseconds "
           "(bars: 30x at 2")
    yield "ranks, 50x at 4 and 8)."
    yield ""
    yield "| call | 2 ranks | 4 ranks | 8 ranks |"
    yield "|---|---|---|---|"
    for case, name in NAMES.items():
        yield f"| {name} | " + " | ".join(cell(lines[case, ranks], result["bars"]) for ranks in RANKS) + " |"
    alone = result["alone_us"]
    yield ""
    yield (f"A whole call in a group of one, C part included (bar for what is prepared: 3 us): prepared reduce of 64 "
           f"{alone['reducer(64)']:.2f} us, prepared")
    yield (f"gather {alone['gatherer()']:.2f} us, tensor of 64 in place {alone['all_reduce_min(tensor of 64)']:.2f} us, list of 64 "
           f"to list {alone['list of 64 to list']:.2f} us.")
    missed = [bar for bar in result["bars"] if not bar["passed"]]
    yield f"{len(result['bars']) - len(missed)} of {len(result['bars'])} bars were met."
    for bar in missed:
        yield f"- {bar['name']}: {bar['value']:.3g} (bar {bar['limit']:g})"
