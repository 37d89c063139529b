"""Reads LAMMPS' thermodynamic output and says whether two runs computed the same physics."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

# Step, temperature, pair energy, molecular energy, total energy, pressure.
ROW = re.compile(r"^\s*(\d+)((?:\s+-?[\d.]+(?:e[-+]?\d+)?){5})\s*$")

# Ranks add forces in another order than one process does, and a liquid is chaotic: a difference in the last bit grows
# with the steps. At the demo's size and length every printed digit (8) has been the same; longer runs drift apart. A
# ghost atom that is lost, doubled or stale is a difference of 1e-4 and more at once.
TOLERANCE = 2e-5


@dataclass(frozen=True)
class Row:
    step: int
    temperature: float
    pair_energy: float
    total_energy: float


def step_of(line: str) -> int | None:
    match = ROW.match(line)
    return int(match[1]) if match else None


def rows(lines: Iterable[str]) -> dict[int, Row]:
    found = {}
    for line in lines:
        if match := ROW.match(line):
            temperature, pair, _molecular, total, _pressure = (float(word) for word in match[2].split())
            found[int(match[1])] = Row(int(match[1]), temperature, pair, total)
    return found


@dataclass(frozen=True)
class Comparison:
    steps: int
    identical: int
    """Rows equal in every printed digit."""
    largest_difference: float
    """Largest relative difference of an energy or temperature."""
    complete: bool

    @property
    def same(self) -> bool:
        return self.complete and self.largest_difference <= TOLERANCE

    def __str__(self) -> str:
        if not self.complete:
            return f"INCOMPLETE: {self.steps} rows"
        if self.identical == self.steps:
            return f"same: all {self.steps} rows equal in every digit"
        verdict = "same" if self.same else "DIFFERENT"
        return f"{verdict}: {self.identical} of {self.steps} rows equal in every digit, largest difference {self.largest_difference:.1e}"


def compare(reference: dict[int, Row], run: dict[int, Row]) -> Comparison:
    largest, identical = 0.0, 0
    for step, wanted in reference.items():
        got = run.get(step)
        if got is None:
            continue
        identical += got == wanted
        for value, true in (
            (got.temperature, wanted.temperature),
            (got.pair_energy, wanted.pair_energy),
            (got.total_energy, wanted.total_energy),
        ):
            largest = max(largest, abs(value - true) / abs(true))
    return Comparison(len(run), identical, largest, bool(reference) and run.keys() == reference.keys())
