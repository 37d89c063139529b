#!/usr/bin/env python3
"""Counts what a message takes of a processor without the kernel: instructions, and cache lines of code that they lie in. Valgrind
counts, so the figures are exact and the same on any machine with the same compiler. They are compared with those of
docs/INSTRUCTIONS.md: one that is more than 3 % above fails.

    bench/instructions.py            count, compare, print
    bench/instructions.py --write    count, and write docs/INSTRUCTIONS.md
    bench/instructions.py net        these layers only, of proto, device, net, verbs, provider, lane, tcp, shm
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from harness import layout

SOURCES = layout.ROOT / "bench" / "instructions"
MEASURED = layout.TARGET / "bench" / "instructions"
DOCUMENT = layout.ROOT / "docs" / "INSTRUCTIONS.md"
LENGTHS = [8, 1024, 8192, 65536]
MOST_GROWTH = 1.03
LINE = 64


@dataclass
class Layer:
    name: str
    title: str
    messages: int
    """Messages of each length that are counted."""
    polls: int = 0
    """Polls that find nothing, after the last length."""
    program: str = ""
    """One of our own in Rust; else it is made of `source`."""
    source: str = ""
    libraries: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    ours: bool = True


FI = {"FI_PROVIDER_PATH": str(layout.PROVIDER.parent), "SRD_SHM": "off", "FI_LOG_LEVEL": "error"}
LAYERS = [
    Layer("proto", "srd-proto, in memory", 1000, program="instructions-proto"),
    Layer("device", "srd-device, in memory", 1000, program="instructions-device"),
    Layer("net", "srd-net, sockets", 300, program="instructions-net"),
    Layer("verbs", "software EFA, ibv_wr_send", 300, 300, source="verbs.c", libraries=("-lefa", "-libverbs"),
          variables={"LD_LIBRARY_PATH": str(layout.EFA_LIBRARIES)}),
    Layer("provider", "libfabric provider, fi_tsend", 300, 300, source="provider.c", libraries=("-lfabric",),
          arguments=("srd", "127.0.0.2"), variables=FI),
    Layer("lane", "the same through shared memory", 300, 300, source="provider.c", libraries=("-lfabric",),
          arguments=("srd", "127.0.0.1"), variables=FI | {"SRD_SHM": "on"}),
    Layer("tcp", "libfabric's own `tcp;ofi_rxm`, for comparison", 300, 300, source="provider.c", libraries=("-lfabric",),
          arguments=("tcp;ofi_rxm", "127.0.0.2"), variables=FI, ours=False),
    Layer("shm", "libfabric's own `shm`, for comparison", 300, 300, source="provider.c", libraries=("-lfabric",),
          arguments=("shm", "127.0.0.1"), variables=FI, ours=False),
]

# How many calls a message takes of the others depends on the kernel, too: with another one they are shown, and do not fail.
IN_MEMORY = {"proto", "device"}

# Nothing of a processor's own may choose between ways to copy: valgrind shows programs the machine that it runs on.
PLAIN_COPIES = "glibc.cpu.hwcaps=-AVX2_Usable,-AVX512F_Usable,-AVX2,-AVX512F,-AVX512VL,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM"
PROBLEM = "instructions: error:"


@dataclass
class Count:
    instructions: float
    code: int
    """Bytes of cache lines that instructions were fetched from."""


Figures = dict[tuple[str, str], Count]
"""By layer and length, or "idle"."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/INSTRUCTIONS.md instead of comparing with it")
    parser.add_argument("layers", nargs="*", metavar="LAYER", help=f"of {', '.join(layer.name for layer in LAYERS)} (default: all)")
    options = parser.parse_args()
    if unknown := set(options.layers) - {layer.name for layer in LAYERS}:
        parser.error(f"no layer is called {', '.join(sorted(unknown))}")
    if options.write and options.layers:
        parser.error("--write takes all layers")
    for tool in ["valgrind", "cc"]:
        if not shutil.which(tool):
            print(f"{PROBLEM} {tool} is missing; run: make setup", file=sys.stderr)
            return 1
    shutil.rmtree(MEASURED, ignore_errors=True)
    MEASURED.mkdir(parents=True)
    subprocess.run(["cargo", "build", "--release", "--quiet", "--package", "srd-bench"], cwd=layout.ROOT, check=True)
    chosen = [layer for layer in LAYERS if not options.layers or layer.name in options.layers]
    figures: Figures = {}
    with ThreadPoolExecutor(2) as pool:
        for counted in pool.map(count, chosen):
            figures.update(counted)
    print(table(figures, chosen))
    if options.write:
        write(figures)
        return 0
    return compare(figures, chosen)


def count(layer: Layer) -> Figures:
    if layer.program:
        program = layout.TARGET / "release" / layer.program
    else:
        program = MEASURED / f"{layer.name}.bin"
        include = ["-I", str(layout.ROOT)]
        run(["cc", "-O2", "-Wall", *include, str(SOURCES / layer.source), "-o", str(program), *layer.libraries])
    clock = MEASURED / f"{layer.name}.clock.so"
    run(["cc", "-O2", "-shared", "-fPIC", str(SOURCES / "call_clock.c"), "-o", str(clock)])
    out = MEASURED / f"{layer.name}.out"
    command = ["valgrind", "--tool=callgrind", "--collect-atstart=no", "--dump-instr=yes", f"--callgrind-out-file={out}"]
    command += [f"--toggle-collect={name}" for name in ["*one_message*", "*idle_poll*"]]
    command += ["--dump-before=*next_length*", str(program), *layer.arguments, *map(str, LENGTHS)]
    variables = {"SRD_PROGRESS": "inline", "SRD_MTU": "1500", "SRD_ADDR": "127.0.0.1", "SRD_LOG": "error"}
    if layer.source == "provider.c" or layer.name == "net":
        del variables["SRD_ADDR"] # two addresses
    variables |= {"LD_PRELOAD": str(clock), "GLIBC_TUNABLES": PLAIN_COPIES} | layer.variables
    run(command, variables)
    # A part for what went before each count, and one for the count.
    figures = {}
    names = [str(length) for length in LENGTHS] + (["idle"] if layer.polls else [])
    for number, name in enumerate(names):
        part = Path(f"{out}.{2 * number + 2}")
        total, lines = read(part)
        times = layer.polls if name == "idle" else layer.messages
        figures[layer.name, name] = Count(total / times, lines * LINE)
    return figures


def run(command: list[str], variables: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, env=os.environ | (variables or {}), capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise SystemExit(f"{tail}\n{PROBLEM} {command[0]} ended with {done.returncode}: {' '.join(command)}")


def read(part: Path) -> tuple[int, int]:
    """Instructions of a part of a callgrind file (its manual, "Callgrind Format Specification"), and lines of code."""
    total, address, called = 0, 0, False
    lines = set()
    with part.open() as text:
        for line in text:
            if line.startswith("calls="):
                called = True
                continue
            if not (match := re.match(r"(0x[0-9a-f]+|[+-]\d+|\*) \S+ (\d+)$", line)):
                continue
            place, cost = match.groups()
            if place.startswith("0x"):
                address = int(place, 16)
            elif place != "*":
                address += int(place)
            if called:
                called = False # what the call took is counted where it was spent
                continue
            total += int(cost)
            lines.add(address // LINE)
    return total, len(lines)


def columns(layers: list[Layer]) -> list[str]:
    return [str(length) for length in LENGTHS] + ["idle"]


def table(figures: Figures, layers: list[Layer]) -> str:
    heads = [f"{length} B" for length in LENGTHS] + ["a poll in vain"]
    rows = [["", *heads], ["---"] * (len(heads) + 1)]
    for layer in layers:
        cells = []
        for name in columns(layers):
            figure = figures.get((layer.name, name))
            cells.append(f"{figure.instructions:,.0f}; {figure.code / 1024:.1f} KiB" if figure else "")
        rows.append([f"{layer.title} (`{layer.name}`)", *cells])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def recorded() -> Iterator[tuple[tuple[str, str], Count]]:
    for line in DOCUMENT.read_text().splitlines():
        if not (match := re.match(r"\| .*\(`(\w+)`\) \|(.*)\|$", line)):
            continue
        for name, cell in zip(columns(LAYERS), match[2].split("|")):
            if figure := re.match(r" ([\d,]+); ([\d.]+) KiB ", cell):
                yield (match[1], name), Count(float(figure[1].replace(",", "")), int(float(figure[2]) * 1024))


def compare(figures: Figures, layers: list[Layer]) -> int:
    before, failures, passed = dict(recorded()), 0, 0
    same_kernel = f"Linux {platform.release()}." in DOCUMENT.read_text()
    ours = {layer.name for layer in layers if layer.ours}
    for (layer, name), figure in figures.items():
        if layer not in ours:
            continue
        known = before.get((layer, name))
        if not known:
            print(f"{PROBLEM} {layer}, {name}: docs/INSTRUCTIONS.md has no figure; run: bench/instructions.py --write")
            failures += 1
            continue
        if figure.instructions > known.instructions * MOST_GROWTH:
            growth = 100 * (figure.instructions / known.instructions - 1)
            if not same_kernel and layer not in IN_MEMORY:
                print(f"instructions: {layer}, {name}: {growth:.1f} % above docs/INSTRUCTIONS.md, with another kernel")
                continue
            print(f"{PROBLEM} {layer}, {name}: {figure.instructions:,.0f} instructions, {growth:.1f} % above {known.instructions:,.0f}"
                  " of docs/INSTRUCTIONS.md; make it cheaper, or say why and run: bench/instructions.py --write")
            failures += 1
        else:
            passed += 1
    print(f"{passed} passed, {failures} failed")
    return 1 if failures else 0


def write(figures: Figures) -> None:
    text = DOCUMENT.read_text()
    begin, end = "<!-- instructions -->", "<!-- instructions end -->"
    head, rest = text.split(begin, 1)
    tail = rest.split(end, 1)[1]
    kernel = f"Linux {platform.release()}."
    DOCUMENT.write_text(f"{head}{begin}\n{kernel}\n\n{table(figures, LAYERS)}\n{end}{tail}")
    print(f"instructions: {DOCUMENT.relative_to(layout.ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
