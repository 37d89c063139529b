#!/usr/bin/env python3
"""Writes what the benchmarks have measured (target/bench) into the tables of docs/RESULTS.md.

    bench/tables.py                       each table of which there are measurements; the others stay as they are
    bench/tables.py --print datapath      that table, to standard output instead

A table stands between `<!-- bench NAME -->` and `<!-- bench end -->`.
"""

import argparse
import json
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from harness import layout

MEASURED = layout.TARGET / "bench"
RESULTS = layout.ROOT / "docs" / "RESULTS.md"
Rows = list[list[str]]

LINKS = {
    "mtu1500": "MTU 1500",
    "mtu9000": "MTU 9000",
    "mtu1500-nooffload": "MTU 1500, offloads off",
    "mtu1500-packet": "MTU 1500, packet sockets",
    "mtu9000-packet": "MTU 9000, packet sockets",
    "mtu1500-xdp": "MTU 1500, AF_XDP sockets",
    "loopback": "loopback",
    "nooffload": "MTU 1500, offloads off",
    "one-host": "one host",
}
MPI_TESTS = {
    "latency": ("us", 1.0),
    "allreduce": ("us", 1.0),
    "message_rate": ("k/s", 1e-3),
    "bandwidth": ("MB/s", 1.0),
}
LAB_FIGURES = {
    "last_by_ideal": "last by ideal",
    "last_by_first": "last by first",
    "of_possible": "of what is possible",
    "slowest_of_share": "slowest by its share",
    "longest_stall_ms": "longest stall, ms",
    "settled_ms": "settled after, ms",
    "beside_mbps": "beside it, Mbit/s",
    "mean_us": "an operation alone, us",
    "mean_by_alone": "beside the flows, by that alone",
    "mean_elsewhere_by_alone": "with those flows in another lab, by that alone",
    "alone_s": "the program alone, s",
    "by_alone": "with the fault, by that alone",
    "again_percent": "sent again, %",
    "cpu_percent": "processors busy, %",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--print", action="store_true", help="to standard output, and leave the file alone")
    parser.add_argument("--measured", type=Path, default=MEASURED, help="where measurements are (default: target/bench)")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which tables, of {', '.join(TABLES)} (default: all)")
    options = parser.parse_args()
    if unknown := set(options.names) - set(TABLES):
        parser.error(f"no table is called {', '.join(sorted(unknown))}; there are {', '.join(TABLES)}")
    text = RESULTS.read_text()
    for name in options.names or TABLES:
        table = TABLES[name](options.measured)
        if table is None:
            print(f"tables: nothing measured for {name!r}; its table stays as it is", file=sys.stderr)
        elif options.print:
            print(f"\n{table}")
        else:
            text = replaced(text, name, table)
    if not options.print:
        RESULTS.write_text(text)
        print(f"tables: {RESULTS.relative_to(layout.ROOT)}")
    return 0


def replaced(text: str, name: str, table: str) -> str:
    mark, end = f"<!-- bench {name} -->", "<!-- bench end -->"
    pattern = re.compile(re.escape(mark) + r".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(text):
        sys.exit(f"tables: error: {RESULTS.name} has no place for {name!r}: write {mark} and {end} where it is to stand")
    return pattern.sub(lambda _: f"{mark}\n\n{table}\n\n{end}", text)


def circumstances(directory: Path, files: Iterable[Path]) -> str:
    """When, of what and on what the measurements of a directory were taken."""
    day = time.strftime("%Y-%m-%d", time.localtime(max(file.stat().st_mtime for file in files)))
    noted = directory / "commit"  # by bench.sh, before it measures
    commit = noted.read_text().strip() if noted.exists() else "unknown"
    models = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    model = models[0] if models else platform.machine()
    return f"{day}, commit {commit}, Linux {platform.release()}, {os.cpu_count()} processors ({model})."


def markdown(head: list[str], rows: Rows) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def ratio(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.2f}"


def verdict(value: float, bound: dict[str, float]) -> str:
    met = bound.get("at_least", value) <= value <= bound.get("at_most", value)
    words = [f"{name.replace('_', ' ')} {limit:g}" for name, limit in bound.items()]
    return " and ".join(words) + (": met" if met else ": MISSED")


# ---- the datapath ----


def datapath(directory: Path) -> str | None:
    files = sorted(directory.glob("*-clear-latency.json"))
    names = [name for name in LINKS if directory / f"{name}-clear-latency.json" in files]
    if not names:
        return None
    figures: list[tuple[str, str, Callable[[dict], float], str]] = [
        ("latency", "8 B half round trip, us", lambda m: m["half_rtt_us"]["p50"], ".2f"),
        ("bandwidth", "8 KiB messages, Gb/s", lambda m: m["gbps"], ".1f"),
        ("msgrate", "8 B messages/s, thousands", lambda m: m["msgs_per_s"] / 1e3, ".0f"),
        ("asleep", "processor time, sleeping sides, ns per KiB", lambda m: m["cpu_us_per_msg"] * 125, ".0f"),
    ]
    rows: Rows = []
    for name in names:
        for sealing in ("clear", "sealed"):
            row = [LINKS[name] + (", sealed" if sealing == "sealed" else "")]
            for test, _, figure, form in figures:
                file = directory / f"{name}-{sealing}-{test}.json"
                if not file.exists():
                    row.append("")
                    continue
                measured = json.loads(file.read_text())
                ours, theirs = figure(measured), figure(measured["tcp"])
                row.append(f"{ours:{form}} / {theirs:{form}} = {ratio(ours, theirs)}")
            rows.append(row)
    head = ["SRD / kernel TCP", *(title for _, title, _, _ in figures)]
    return f"{circumstances(directory, files)}\n\n{markdown(head, rows)}"


# ---- MPI over libfabric's providers ----


def mpi(directory: Path) -> str | None:
    file = directory / "mpi.json"
    if not file.exists():
        return None
    everything = json.loads(file.read_text())
    medians = [
        {
            provider: {
                (figure["test"], figure["bytes"]): statistics.median(figure["rounds"])
                for figure in one["figures"]
            }
            for provider, one in document["providers"].items()
        }
        for document in everything
    ]
    tests = sorted(
        {test for document in medians for one in document.values() for test in one},
        key=lambda test: (list(MPI_TESTS).index(test[0]), test[1]),
    )
    rows: Rows = []
    for test, count in tests:
        unit, scale = MPI_TESTS[test]
        row = [f"{test.replace('_', ' ')} {size(count)}, {unit}"]
        for document in medians:
            ours = next((one for name, one in document.items() if name.startswith("srd")), {}).get((test, count))
            if ours is None:
                row.append("")
                continue
            beside = [
                f"{ratio(ours, one[(test, count)])} {name}"
                for name, one in document.items()
                if not name.startswith("srd") and (test, count) in one
            ]
            row.append(", ".join([f"{ours * scale:.4g}", *beside]))
        rows.append(row)
    head = ["", *(f"{LINKS[document['configuration']]}, {document['stack']}" for document in everything)]
    return f"{circumstances(directory, [file])}\n\n{markdown(head, rows)}"


def size(count: int) -> str:
    for unit, power in (("MB", 20), ("KB", 10)):
        if count >= 1 << power:
            return f"{count >> power} {unit}"
    return f"{count} B"


# ---- the lab ----


def lab(directory: Path) -> str | None:
    files = sorted((directory / "lab").glob("*/report.json"))
    if not files:
        return None
    reports = [json.loads(file.read_text()) for file in files]
    discarded = sum(report["discarded"] for report in reports)
    unlimited = all(report["experiment"]["most_cpu_percent"] >= 100 for report in reports)
    busy = "However busy processors were" if unlimited else f"{discarded} runs discarded because processors were too busy"
    parts = [f"{circumstances(directory, files)} {busy}."]
    return "\n\n".join(parts + [part for report in reports for part in of_experiment(report)])


def of_experiment(report: dict) -> Iterable[str]:
    """What the cells of an experiment's table are, and the table: a row for each case."""
    plans = {plan["name"]: plan for plan in report["experiment"]["case"]}
    summaries = {
        (result["case"], result["transport"]): dict(result["summary"]) for result in report["results"]
    }
    shown = [name for name in LAB_FIGURES if any(name in summary for summary in summaries.values())]
    transports = report["experiment"]["transports"]
    rows: Rows = []
    for case, plan in plans.items():
        row = [case]
        for transport in transports:
            summary = summaries[(case, transport)]
            row.append(", ".join(short(summary[name]["median"]) if name in summary else "-" for name in shown))
        srd = summaries.get((case, "srd"), {})
        bounds = plan.get("wanted", {}).items()
        wanted = (f"{LAB_FIGURES[name]} {verdict(srd[name]['median'], bound)}" for name, bound in bounds if name in srd)
        row.append("; ".join(wanted))
        rows.append(row)
    repeats = report["experiment"]["repeats"]
    runs = "one run of each" if repeats == 1 else f"medians of {repeats} runs"
    yield f"**{report['experiment']['name']}**, {runs}: {'; '.join(LAB_FIGURES[name] for name in shown)}."
    yield markdown(["", *transports, "wanted of SRD"], rows)


def short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


TABLES: dict[str, Callable[[Path], str | None]] = {"datapath": datapath, "mpi": mpi, "lab": lab}

if __name__ == "__main__":
    sys.exit(main())
