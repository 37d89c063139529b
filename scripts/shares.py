#!/usr/bin/env python3
"""shares.py DIR: how equal the flows of a run were, from the rates.csv that `srd sim ... --out DIR` wrote.

Prints, over all samples but the first: the largest distance of a flow's rate from the mean (in percent of the mean), and
the least Jain index. How long a sample is, is the scenario's `sample.every_us`.
"""
import collections
import csv
import pathlib
import sys


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    samples = collections.defaultdict(list)
    with open(pathlib.Path(sys.argv[1]) / "rates.csv", newline="") as table:
        for row in csv.DictReader(table):
            samples[float(row["time_us"])].append(float(row["delivered_gbps"]))
    if len(samples) < 2:
        print("shares.py: two samples at least are needed: a smaller sample.every_us", file=sys.stderr)
        return 1
    worst, jain = 0.0, 1.0
    for time in sorted(samples)[1:]:
        rates = samples[time]
        mean = sum(rates) / len(rates)
        worst = max(worst, *(abs(rate / mean - 1) for rate in rates))
        jain = min(jain, sum(rates) ** 2 / len(rates) / sum(rate * rate for rate in rates))
    print(f"{len(samples) - 1} samples: flows within {100 * worst:.1f} % of their share, Jain index at least {jain:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
