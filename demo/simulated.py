"""The same LAMMPS, as it is, on 64 simulated hosts of 400 Gb/s, in the simulation's time (docs/VIRTUAL.md): over SRD, TCP and RoCE, on a healthy
fabric and on one of which an uplink of sixteen runs at a tenth of its rate."""

import re
import subprocess
from pathlib import Path

from harness import layout

RANKS = 64
STEPS = 10
CELLS = 16
TRANSPORTS = ("srd", "tcp", "roce")
FABRIC = layout.ROOT / "scenarios/fabrics/limping-uplink.toml"
FABRICS = {"healthy": ("--set", "fault.0.share=1"), "limping": ()}
LOOP = re.compile(r"^Loop time of ([0-9.e-]+)", re.MULTILINE)


def run(output: Path) -> str:
    """A table of how long LAMMPS' loop takes, in microseconds; a page for each fabric goes into `output`."""
    took = {fabric: _loops(output / fabric, options) for fabric, options in FABRICS.items()}
    rows = [("", *TRANSPORTS), *((fabric, *(f"{1e6 * s:.0f} us" for s in loops)) for fabric, loops in took.items())]
    title = f"LAMMPS, {4 * CELLS**3:,} atoms, {STEPS} steps, {RANKS} ranks on as many simulated hosts of 400 Gb/s:"
    return "\n".join([title, *("  " + "".join(f"{cell:>10}" for cell in row) for row in rows)])


def _loops(output: Path, options: tuple[str, ...]) -> list[float]:
    line = [layout.SRD, "sim", "mpirun", "-n", str(RANKS), "--mpi", "ompi", "--prefix", layout.VENV / "ompi"]
    line += ["--fabric", FABRIC, *options, "--transport", ",".join(TRANSPORTS), "--out", output, "--"]
    line += ["lmp", "-in", layout.ROOT / "demo/melt.lmp", "-log", "none"]
    line += ["-var", "cells", str(CELLS), "-var", "steps", str(STEPS)]
    done = subprocess.run(line, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=600)
    return [float(seconds) for seconds in LOOP.findall(done.stdout)]
