#!/usr/bin/env python3
"""One process with many threads, each with an endpoint, that sends to the threads of another process of this host over sockets: how much
more it gets done with several engines (SRD_ENGINES). The numbers of engines take turns; medians and quartiles over the rounds are printed.

    bench/threads.py                                  4 threads, with 1, 2 and 4 engines
    bench/threads.py --threads 1                       what engines cost a single thread
    bench/threads.py --calls                          also system calls a message that wait for locks or give way (strace)
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from harness import layout

SOURCE = layout.ROOT / "bench" / "threads.c"
PROGRAM = layout.TARGET / "bench" / "threads"
SHAPES = {"rate": ("messages/s", 64_000), "latency": ("us", 1_000)}
WAITS = ("futex", "sched_yield")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--engines", type=int, nargs="+", default=[1, 2, 4], metavar="N")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", action="store_true", help="count system calls, too")
    parser.add_argument("--provider", type=Path, default=layout.PROVIDER.parent, help="directory of libsrd-fi.so")
    options = parser.parse_args()
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cc", "-O2", "-Wall", str(SOURCE), "-o", str(PROGRAM), "-lfabric", "-lpthread"], check=True)
    print(f"{options.threads} threads, medians of {options.rounds} rounds (quartiles; least, greatest)")
    for shape, (unit, messages) in SHAPES.items():
        figures: dict[int, list[float]] = {engines: [] for engines in options.engines}
        for _ in range(options.rounds):
            for engines, of_these in figures.items():
                of_these.append(float(run(options, shape, engines, messages)))
        first = statistics.median(figures[options.engines[0]])
        for engines, of_these in figures.items():
            median = statistics.median(of_these)
            low, high = sorted(of_these)[len(of_these) // 4], sorted(of_these)[3 * len(of_these) // 4]
            spread = f"{low:,.1f}, {high:,.1f}; {min(of_these):,.1f}, {max(of_these):,.1f}"
            line = f"{shape}, {engines} engines: {median:,.1f} {unit} ({spread}), {median / first:.2f} of the first"
            if options.calls:
                line += "; a message " + ", ".join(f"{calls:.3f} {name}" for name, calls in waits(options, shape, engines).items())
            print(line)


def run(options: argparse.Namespace, shape: str, engines: int, messages: int, before: list[str] | None = None) -> str:
    variables = {"FI_PROVIDER_PATH": str(options.provider), "SRD_SHM": "off", "SRD_ENGINES": str(engines)}
    command = [*(before or []), str(PROGRAM), shape, "srd", str(options.threads), str(messages)]
    done = subprocess.run(command, env={"SRD_ADDR": "127.0.0.1"} | os.environ | variables, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"threads: error: {' '.join(command)} ended with {done.returncode}\n{done.stderr}")
    return done.stdout


def waits(options: argparse.Namespace, shape: str, engines: int) -> dict[str, float]:
    """Calls that wait for a lock, or for another thread to have run, for each message of both sides."""
    messages, counts = 6_400, PROGRAM.with_suffix(".calls")
    run(options, shape, engines, messages, ["strace", "-f", "-c", "-o", str(counts), "-e", f"trace={','.join(WAITS)}"])
    found = {name: 0 for name in WAITS}
    for line in counts.read_text().splitlines():
        if match := re.match(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", line):
            found[match[2]] = int(match[1]) if match[2] in found else 0
    return {name: found[name] / (messages * options.threads) for name in WAITS}


if __name__ == "__main__":
    main()
