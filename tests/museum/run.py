#!/usr/bin/env python3
"""Bugs that only EFA shows, found by others on rented instances, each staged here in seconds: with the version or the program that
had it (red), and with the one that mended it (green).

    tests/museum/run.py             every exhibit, both ways
    tests/museum/run.py nixl-1862   these only, with their commands
    tests/museum/run.py --list

The last line says `N passed, N failed`; an exhibit passes if it shows its bug, and passes again if it shows that it is gone.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from harness import layout, processes, stacks
from harness.processes import Command, Outcome
from harness.transport import EFA

HERE = Path(__file__).resolve().parent
BUILT = layout.TARGET / "museum"
LONGEST_S = 300
"""After that a program hangs, on a busy machine, too."""

NEWEST = layout.VENV / "mpich/lib/mpich"
"""A libfabric that knows the newest device: that of MPICH's wheel."""


@dataclass(frozen=True)
class Side:
    what: str
    """Version or program."""
    command: Callable[[], Command]
    shows: str
    """What its output must say."""
    counter: tuple[str, bool] | None = None
    """A counter of the device, and whether it has counted."""


@dataclass(frozen=True)
class Exhibit:
    name: str
    where: str
    title: str
    red: Side
    green: Side


def program(source: str, *libraries: str) -> Path:
    built = BUILT / Path(source).stem
    if not built.exists() or built.stat().st_mtime < (HERE / source).stat().st_mtime:
        BUILT.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["gcc", "-O2", "-Wall", "-D_GNU_SOURCE", HERE / source, "-o", built, *libraries], check=True
        )
    return built


def rma(*arguments: str, **variables: str) -> Callable[[], Command]:
    def command() -> Command:
        argv = [*EFA.wrapper, str(program("rma.c", "-lfabric")), *arguments]
        return Command(argv, {"LD_LIBRARY_PATH": str(NEWEST), "FI_EFA_ENABLE_SHM_TRANSFER": "0", **variables})

    return command


def reads_by_api(minor: int, by_device: bool) -> Side:
    command = rma("read", str(minor), SRD_EFA_PROFILE="gen2")
    return Side(f"API 1.{minor}", command, r"10 of 10 completed", ("rdma_read_wrs", by_device))


def full_queue(mode: str) -> Callable[[], Command]:
    return lambda: Command([*EFA.wrapper, str(program("full_queue.c", "-lefa", "-libverbs")), mode])


def mpich_rma(stack: stacks.Stack) -> Callable[[], Command]:
    """The matrix's program with one-sided operations, over the MPICH of another wheel."""

    def command() -> Command:
        check = stack.compile(layout.ROOT / "tests" / "consumers" / "mpi_check.c")
        argv, variables = stack.launch(EFA, 2, [str(check), "--rma"], one_sided=True)
        return Command(argv, variables)

    return command


EXHIBITS = [
    Exhibit(
        "mpich-7853",
        "pmodels/mpich#7853",
        "MPI_Put and MPI_Get abort on EFA: an offset went where an address and the device's key belong",
        Side("MPICH 5.0.1", mpich_rma(stacks.MPICH_5_0_1), r"(?s)OFI poll failed"),
        Side("MPICH 5.0.2", mpich_rma(stacks.MPICH), r"mpi_check: ok"),
    ),
    Exhibit(
        "nixl-1862",
        "ai-dynamo/nixl#1862, #1921",
        "Small transfers never arrive: the last write of a batch says that more will come (FI_MORE), so no doorbell is rung",
        Side("the last write with FI_MORE", rma("more", "10", "open"), r"0 of 10 completed, 0 seen"),
        Side("the last without, as from nixl#1924 on", rma("more", "10", "closed"), r"10 of 10 completed, 10 seen"),
    ),
    Exhibit(
        "mooncake-2041",
        "kvcache-ai/Mooncake#2041",
        "Who asks for an API before libfabric's 1.18 gets emulated RDMA on devices up to 0xefa1, without a word",
        reads_by_api(14, by_device=False),
        reads_by_api(18, by_device=True),
    ),
    Exhibit(
        "monarch-2721",
        "meta-pytorch/monarch#2721",
        "The send queue fills faster than it empties, and its ENOMEM is taken for fatal",
        Side("gives up", full_queue("hurry"), r"after 128 writes: failed: ibv_wr_complete: Cannot allocate memory"),
        Side("polls and posts again", full_queue("patient"), r"1000 of 1000 writes completed.*the memory is the same"),
    ),
    Exhibit(
        "monarch-2721-cq",
        "meta-pytorch/monarch#2721",
        "Each write asks for a completion, and a burst of them overflows the completion queue: some never come",
        Side("a queue for a quarter of them", full_queue("short"), r"(?m)^\d{1,2} of 128 writes completed"),
        Side("a queue for all", full_queue("long"), r"128 of 128 writes completed.*the memory is the same"),
    ),
]


def problem(side: Side, outcome: Outcome, statistics: Path) -> str | None:
    if outcome.status is None:
        return f"still running after {LONGEST_S} s"
    if not re.search(side.shows, outcome.output):
        return f"its output does not say {side.shows!r}"
    if side.counter:
        name, counts = side.counter
        count = sum(json.loads(file.read_text())["device"].get(name, 0) for file in statistics.glob("*.json"))
        if (count > 0) != counts:
            return f"{name} is {count}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="list the exhibits")
    parser.add_argument("names", nargs="*", help="exhibits to show (default: all)")
    options = parser.parse_args()
    if unknown := set(options.names) - {exhibit.name for exhibit in EXHIBITS}:
        parser.error(f"no such exhibit: {', '.join(sorted(unknown))} (--list shows them)")
    if options.list:
        for exhibit in EXHIBITS:
            print(f"{exhibit.name:16} {exhibit.where}: {exhibit.title}")
        return 0
    if reason := EFA.why_unusable():
        sys.exit(f"museum: error: {reason}")
    passed = failed = 0
    for exhibit in EXHIBITS:
        if options.names and exhibit.name not in options.names:
            continue
        print(f"{exhibit.where}: {exhibit.title}")
        for colour, side in (("red", exhibit.red), ("green", exhibit.green)):
            statistics = BUILT / f"{exhibit.name}.{colour}"
            statistics.mkdir(parents=True, exist_ok=True)
            for old in statistics.glob("*.json"):
                old.unlink()
            made = side.command()
            command = Command(made.argv, {**EFA.environment("127.0.0.1", statistics), **made.environment})
            outcome = processes.run(command, LONGEST_S, BUILT / f"{exhibit.name}.{colour}.log")
            wrong = problem(side, outcome, statistics)
            passed, failed = (passed, failed + 1) if wrong else (passed + 1, failed)
            print(f"  {colour:6} {side.what:44} {'FAILED: ' + wrong if wrong else 'ok'}  {outcome.seconds:.1f} s")
            if wrong or options.names:
                print(f"    {command.line()}")
            if wrong:
                print("    " + "\n    ".join(outcome.output.splitlines()[-15:]))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
