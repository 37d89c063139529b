#!/usr/bin/env python3
"""shares.py DIR [EVERY_US]: how equal the flows of a run were, from the rates.csv that `srd sim ... --out DIR` wrote.

Prints, over all samples but the first: the largest distance of a flow's rate from the mean (in percent of the mean), and
the least Jain index. How long a sample is, is the scenario's `sample.every_us`.

With EVERY_US, the time between two changes of who sends: the longest time from a change to the end of the first sample
from which on every flow that sends has at least 90 % of the mean, up to the next change.
"""
import collections
import csv
import pathlib
import sys


def settled(samples: dict[float, list[float]], every: float) -> float:
    """See EVERY_US above."""
    longest = min(samples)
    for time in sorted(samples):
        rates = [rate for rate in samples[time] if rate > 0]
        if rates and min(rates) < 0.9 * sum(rates) / len(rates):
            step = min(samples)
            longest = max(longest, (time - step) % every + 2 * step)
    return longest


def main() -> int:
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    samples = collections.defaultdict(list)
    with open(pathlib.Path(sys.argv[1]) / "rates.csv", newline="") as table:
        for row in csv.DictReader(table):
            samples[float(row["time_us"])].append(float(row["delivered_gbps"]))
    if len(samples) < 2:
        print("shares.py: two samples at least are needed: a smaller sample.every_us", file=sys.stderr)
        return 1
    if len(sys.argv) == 3:
        print(f"every flow has 90 % of its share at most {settled(samples, float(sys.argv[2])):.0f} us after a change")
        return 0
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
