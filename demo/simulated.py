"""Benchmarks of MPI (benchmarks.c) and the same LAMMPS, as they are, on 64 simulated hosts of 400 Gb/s, in the simulation's time
(docs/VIRTUAL.md): over SRD, TCP and RoCE, on a healthy fabric and on one of which an uplink of sixteen runs at a tenth of its rate."""

import re
import subprocess
from pathlib import Path

from harness import layout
from job import MPI

RANKS = 64
STEPS = 10
CELLS = 16
TRANSPORTS = ("srd", "tcp", "roce")
FABRIC = layout.ROOT / "scenarios/fabrics/limping-uplink.toml"
FABRICS = {"healthy": ("--set", "fault.0.share=1"), "limping": ()}
LOOP = re.compile(r"^Loop time of ([0-9.e-]+)", re.MULTILINE)
BENCHMARK = re.compile(r"^(.*, \d+ (?:KB|bytes)): ([0-9.]+) us", re.MULTILINE)


def run(output: Path) -> str:
    """A table of how long they take, in microseconds; a page for each program and fabric goes into `output`."""
    rows = [("", "", *TRANSPORTS)]
    benchmarks, lammps = MPI.compile(Path(__file__).with_name("benchmarks.c")), ["lmp", "-in", layout.ROOT / "demo/melt.lmp"]
    lammps += ["-log", "none", "-var", "cells", str(CELLS), "-var", "steps", str(STEPS)]
    for fabric, options in FABRICS.items():
        told: dict[str, list[float]] = {}
        for name, us in BENCHMARK.findall(_output(output / f"benchmarks-{fabric}", options, [benchmarks])):
            told.setdefault(name, []).append(float(us))
        loops = LOOP.findall(_output(output / fabric, options, lammps))
        told["LAMMPS' loop"] = [1e6 * float(seconds) for seconds in loops]
        rows += [(fabric, name, *(f"{us:.{2 if us < 100 else 0}f}" for us in all_us)) for name, all_us in told.items()]
    title = f"Microseconds; {RANKS} ranks on as many simulated hosts of 400 Gb/s; LAMMPS: {4 * CELLS**3:,} atoms, {STEPS} steps"
    lines = (f"  {row[0]:10}{row[1]:20}" + "".join(f"{cell:>8}" for cell in row[2:]) for row in rows)
    return "\n".join([title, *lines])


def _output(output: Path, options: tuple[str, ...], program: list[str | Path]) -> str:
    line = [layout.SRD, "sim", "mpirun", "-n", str(RANKS), "--mpi", "ompi", "--prefix", layout.VENV / "ompi"]
    line += ["--fabric", FABRIC, *options, "--transport", ",".join(TRANSPORTS), "--out", output, "--", *program]
    done = subprocess.run(line, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=600)
    return done.stdout
