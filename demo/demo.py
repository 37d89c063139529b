#!/usr/bin/env python3
"""The demonstration: an unmodified MPI program on four hosts of a leaf-spine fabric, one spine of which silently drops
everything for three seconds; over OpenSRD, by its software EFA and by its libfabric provider, and then over the kernel's
TCP.

    demo/demo.py                       OpenSRD's software EFA and its libfabric provider against kernel TCP
    demo/demo.py --transport srd       the libfabric provider alone against it (or efa: the software EFA alone)
    demo/demo.py --steps 100 --seconds 8     a shorter one

The programs are Debian's LAMMPS on Open MPI 5, and a steady small exchange (steady.c) that measures stalls. Prints a
table and writes target/demo/index.html. Then LAMMPS and benchmarks of MPI (benchmarks.c) run on 64 simulated hosts, over SRD, TCP and RoCE. The fabric is a lab of network namespaces (`srd lab`). Where those are not
allowed it runs over loopback, and nothing fails there.
"""

import argparse
import contextlib
import shutil
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import page
import simulated
from harness import hosts, layout, physics, processes, scheduling, transport
from job import MPI, RANKS, Carrier, Fault, Happened, run
from lab import NAME, Lab
from results import Melt, Side, as_text, read_steady

HERE = Path(__file__).resolve().parent
OUTPUT = layout.TARGET / "demo"
KERNEL_TCP = Carrier("kernel TCP (Open MPI btl/tcp)", "kernel-tcp", None)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--transport", choices=("efa", "srd"), action="append", help="may be given several times"
    )
    parser.add_argument("--steps", type=int, default=240, help="LAMMPS time steps (default 240)")
    parser.add_argument(
        "--cells", type=int, default=20, help="LAMMPS box: 4 cells^3 atoms (default 20: 32,000 atoms)"
    )
    parser.add_argument(
        "--seconds", type=float, default=10, help="length of the steady exchange (default 10)"
    )
    parser.add_argument(
        "--bytes", type=int, default=4096, help="message of the steady exchange (default 4096)"
    )
    parser.add_argument(
        "--host-mbps", type=float, default=200, help="rate of the hosts' links in Mbit/s (default 200)"
    )
    parser.add_argument(
        "--uplink-mbps", type=float, default=100, help="rate of the spines' links in Mbit/s (default 100)"
    )
    return parser.parse_args()


class Progress:
    """Tells a waiting person what goes on: one line per run, kept up to date on a terminal."""

    def __init__(self, what: str):
        self.what = what
        self.live = sys.stdout.isatty()
        print(f"  {what} …", end="" if self.live else "\n", flush=True)

    def update(self, state: str) -> None:
        if self.live:
            print(f"\r\033[K  {self.what} … {state}", end="", flush=True)

    def done(self, result: str) -> None:
        print(f"\r\033[K  {self.what}: {result}" if self.live else f"    {result}", flush=True)


class Demo:
    def __init__(self, options: argparse.Namespace, lab: Lab | None):
        self.options = options
        self.lab = lab
        self.melt_program = [
            "lmp",
            "-in",
            str(HERE / "melt.lmp"),
            "-log",
            "none",
            "-var",
            "cells",
            str(options.cells),
            "-var",
            "steps",
            str(options.steps),
        ]
        self.steady_program = MPI.compile(HERE / "steady.c")
        self.reference: dict[int, physics.Row] = {}

    def compute_reference(self) -> None:
        progress = Progress("LAMMPS on one process, for its physics")
        outcome = processes.run(
            processes.Command(self.melt_program, MPI.environment()), 300, OUTPUT / "reference.log"
        )
        self.reference = physics.rows(outcome.output.splitlines())
        if outcome.status != 0 or not self.reference:
            raise RuntimeError(f"LAMMPS failed on one process: see {OUTPUT / 'reference.log'}")
        progress.done(f"{outcome.seconds:.1f} s")

    def side(self, carrier: Carrier) -> Side:
        print(f"{carrier.title}:")
        side = Side(carrier, self.melt(carrier, None))
        if self.lab:
            side.melt_with_fault = self.melt(carrier, Fault(begin="0 "))
        side.steady = self.steady(carrier, Fault(begin="steady: exchanging") if self.lab else None)
        return side

    def melt(self, carrier: Carrier, fault: Fault | None) -> Melt:
        progress = Progress(f"LAMMPS on {RANKS} {self.places()}{', a spine silent for 3 s' if fault else ''}")

        def on_line(line: str) -> None:
            if (step := physics.step_of(line)) is not None:
                progress.update(f"step {step} of {self.options.steps}")

        happened = run(
            carrier, self.melt_program, self.lab, self.directory(carrier, "melt", fault), fault, on_line
        )
        self.keep_output(happened, self.directory(carrier, "melt", fault))
        melt = Melt(
            happened, physics.compare(self.reference, physics.rows(line for _, line in happened.lines))
        )
        if happened.status != 0:
            raise RuntimeError(
                f"LAMMPS failed over {carrier.title}; its last lines:\n  "
                + "\n  ".join(line for _, line in happened.lines[-10:])
            )
        self.require_evidence(carrier, happened)
        silent = f", spine {happened.failed_spine} was silent" if happened.fault else ""
        progress.done(
            f"{happened.wall_s:.1f} s, longest pause {melt.longest_pause_s:.2f} s{silent}; physics {melt.comparison}"
        )
        return melt

    def steady(self, carrier: Carrier, fault: Fault | None):
        progress = Progress(
            f"steady exchange on {RANKS} {self.places()}{', a spine silent for 3 s' if fault else ''}"
        )
        directory = self.directory(carrier, "steady", fault)
        directory.mkdir(parents=True, exist_ok=True)
        program = [
            str(self.steady_program),
            str(self.options.seconds),
            str(self.options.bytes),
            str(directory / "bins"),
        ]
        happened = run(carrier, program, self.lab, directory, fault, lambda _line: None)
        self.keep_output(happened, directory)
        steady = read_steady(happened, directory / "bins")
        self.require_evidence(carrier, happened)
        progress.done(
            f"{steady.summary['iterations']} iterations, longest stall {steady.summary['longest_us'] / 1000:.0f} ms"
        )
        return steady

    @staticmethod
    def require_evidence(carrier: Carrier, happened: Happened) -> None:
        """Every rank has left counters, and its messages are in them."""
        if not carrier.is_ours:
            return
        counted = happened.counted
        if counted.processes < RANKS or not counted.moved_messages:
            raise RuntimeError(
                f"the messages did not go over {carrier.title}: counters of {counted.processes} ranks of {RANKS}, "
                f"{counted.sent_packets} packets sent"
            )

    def places(self) -> str:
        return "hosts" if self.lab else "ranks of this host"

    @staticmethod
    def directory(carrier: Carrier, program: str, fault: Fault | None) -> Path:
        return OUTPUT / f"{program}-{carrier.key}{'-fault' if fault else ''}"

    @staticmethod
    def keep_output(happened: Happened, directory: Path) -> None:
        (directory / "output.log").write_text(
            "\n".join(f"{at - happened.started:8.3f} {line}" for at, line in happened.lines) + "\n"
        )

    def setting(self) -> str:
        if not self.lab:
            return f"{RANKS} ranks on one host over loopback: this machine allows no network namespaces, so nothing fails here."
        return (
            f"{self.lab.hosts} hosts ({self.lab.host_mbps:g} Mbit/s) on 2 leaves and {self.lab.spines} spines ({self.lab.uplink_mbps:g} Mbit/s per link), made of Linux network "
            f"namespaces that route by a hash of the 5-tuple. Open MPI 5 and LAMMPS are the distributions' own. The spine that fails is the one that carries most at that "
            f"moment; it drops every packet for 3 s and tells nobody."
        )


def main() -> int:
    options = arguments()
    ours = [transport.BY_NAME[name] for name in dict.fromkeys(options.transport or ("efa", "srd"))]
    for reason in filter(None, (carrier.why_unusable() for carrier in ours)):
        sys.exit(f"demo: error: {reason}")
    for what, program in (("Open MPI 5", MPI.mpirun()), ("LAMMPS", "lmp")):
        if not shutil.which(program):
            sys.exit(f"demo: error: {what} is missing ({program}); run: make setup")
    carriers = [*(Carrier(carrier.title, carrier.name, carrier) for carrier in ours), KERNEL_TCP]

    if reason := hosts.why_impossible():
        print(f"demo: no fabric: {reason}. Running over loopback, where nothing can be made to fail.")
        fabric = contextlib.nullcontext()
    else:
        fabric = Lab(host_mbps=options.host_mbps, uplink_mbps=options.uplink_mbps)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    with fabric as lab:
        if lab:
            print(
                f"demo: a fabric of {lab.hosts} hosts, 2 leaves, {lab.spines} spines is up (look: srd lab status --lab {NAME})"
            )
        demo = Demo(options, lab)
        with scheduling.one_group("opensrd-demo") as reason:
            if reason:
                print(f"demo: warning: the ranks are scheduled by session: {reason}")
            demo.compute_reference()
            sides = [demo.side(carrier) for carrier in carriers]
    print(f"\n{as_text(sides)}\n")
    progress = Progress("LAMMPS and benchmarks on 64 simulated hosts")
    on_simulated = simulated.run(OUTPUT / "simulated")
    progress.done("done")
    print(f"\n{on_simulated}\n")
    page.write(OUTPUT / "index.html", sides, demo.setting(), on_simulated)
    print(f"figures: {OUTPUT / 'index.html'}")
    melts = [melt for side in sides for melt in (side.melt, side.melt_with_fault) if melt]
    return 0 if all(melt.comparison.same for melt in melts) else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # tidy up then, too
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\ndemo: interrupted; the fabric and all processes are gone")
    except (RuntimeError, subprocess.CalledProcessError) as error:
        sys.exit(f"\ndemo: error: {error}")
