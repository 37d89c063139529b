"""What the demo measured, and the table that sums it up."""

import json
from dataclasses import dataclass
from pathlib import Path

from harness import physics
from job import Carrier, Happened


@dataclass
class Melt:
    """A LAMMPS run."""

    happened: Happened
    comparison: physics.Comparison

    @property
    def progress(self) -> list[tuple[float, int]]:
        return [(at, step) for at, line in self.happened.lines if (step := physics.step_of(line)) is not None]

    @property
    def longest_pause_s(self) -> float:
        """Longest time between two reports of progress."""
        times = [at for at, _ in self.progress]
        return max((later - earlier for earlier, later in zip(times, times[1:])), default=0.0)


@dataclass
class Steady:
    """A run of the steady exchange."""

    happened: Happened
    summary: dict
    bins: list[tuple[float, int, float]]
    """Seconds since the first iteration, iterations, longest of them in microseconds; per 20 ms."""

    @property
    def began(self) -> float:
        return next(at for at, line in self.happened.lines if line.startswith("steady: exchanging"))


def read_steady(happened: Happened, bins: Path) -> Steady:
    summary = next((json.loads(line) for _, line in happened.lines if line.startswith("{")), None)
    if happened.status != 0 or summary is None:
        raise RuntimeError(
            "the steady exchange did not finish; its last lines:\n  "
            + "\n  ".join(line for _, line in happened.lines[-10:])
        )
    rows = [line.split() for line in bins.read_text().splitlines()]
    return Steady(happened, summary, [(float(at), int(count), float(longest)) for at, count, longest in rows])


@dataclass
class Side:
    """All runs over one carrier."""

    carrier: Carrier
    melt: Melt
    melt_with_fault: Melt | None = None
    steady: Steady | None = None

    def resent(self, happened: Happened) -> str:
        """By OpenSRD's own counters, or by those of the hosts' kernels (which a run over loopback does not have)."""
        if self.carrier.is_ours:
            return f"{happened.counted.retransmitted_packets} packets"
        return f"{happened.tcp_retransmissions} packets" if happened.spines else "not counted"

    def carried(self, happened: Happened) -> str:
        """What proves that OpenSRD carried the messages: counters of its instances, one in each rank."""
        counted = happened.counted
        return f"{counted.sent_packets} packets, {counted.processes} ranks" if self.carrier.is_ours else "none"


def table(sides: list[Side]) -> list[tuple[str, list[str]]]:
    """Rows of the summary: a name, and a value per side."""
    rows: list[tuple[str, list[str]]] = []

    def row(name: str, value) -> None:
        rows.append((name, [value(side) for side in sides]))

    row("LAMMPS, healthy fabric: wall time", lambda side: f"{side.melt.happened.wall_s:.1f} s")
    row("  longest pause", lambda side: f"{side.melt.longest_pause_s:.2f} s")
    row("  physics against one process", lambda side: str(side.melt.comparison))
    row("  sent by OpenSRD, as it counts", lambda side: side.carried(side.melt.happened))
    row("  sent again", lambda side: side.resent(side.melt.happened))
    if all(side.melt.happened.spines for side in sides):
        row("  bytes through each spine", lambda side: megabytes(side.melt.happened.spines.bytes_per_spine()))
    if all(side.melt_with_fault for side in sides):
        row(
            "LAMMPS, a spine silent for 3 s: wall time",
            lambda side: f"{side.melt_with_fault.happened.wall_s:.1f} s",
        )
        row("  longest pause", lambda side: f"{side.melt_with_fault.longest_pause_s:.2f} s")
        row("  physics against one process", lambda side: str(side.melt_with_fault.comparison))
        row("  sent again", lambda side: side.resent(side.melt_with_fault.happened))
        row(
            "  bytes through each spine",
            lambda side: megabytes(side.melt_with_fault.happened.spines.bytes_per_spine()),
        )
    if any(side.melt.happened.counted.path_bytes for side in sides):
        row("  bytes per path (sum over peers)", path_spread)
    if all(side.steady for side in sides):
        fault = ", a spine silent for 3 s" if sides[0].steady.happened.fault else ""
        row(f"Steady exchange{fault}: iterations", lambda side: f"{side.steady.summary['iterations']}")
        row("  median iteration", lambda side: milliseconds(side.steady.summary["p50_us"]))
        row("  99th percentile", lambda side: milliseconds(side.steady.summary["p99_us"]))
        row("  longest stall", lambda side: milliseconds(side.steady.summary["longest_us"]))
        row("  sent again", lambda side: side.resent(side.steady.happened))
    return rows


def megabytes(values: list[int]) -> str:
    return " / ".join(f"{value / 1e6:.0f}" for value in values) + " MB"


def milliseconds(microseconds: float) -> str:
    value = microseconds / 1000
    return f"{value:.2f} ms" if value < 10 else f"{value:.0f} ms"


def path_spread(side: Side) -> str:
    happened = (side.melt_with_fault or side.melt).happened
    carried = sorted(happened.counted.path_bytes.values())
    if not carried:
        return "one path per connection"
    return f"{len(carried)} paths, {carried[0] / 1e6:.1f} to {carried[-1] / 1e6:.1f} MB each"


def as_text(sides: list[Side]) -> str:
    header = [side.carrier.title for side in sides]
    rows = table(sides)
    name_width = max(len(name) for name, _ in rows)
    widths = [max(len(title), *(len(values[k]) for _, values in rows)) for k, title in enumerate(header)]
    lines = [" " * name_width + "".join(f"  {title:>{width}}" for title, width in zip(header, widths))]
    lines += [
        f"{name:{name_width}}" + "".join(f"  {value:>{width}}" for value, width in zip(values, widths))
        for name, values in rows
    ]
    return "\n".join(lines)
