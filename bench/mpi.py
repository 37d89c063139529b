#!/usr/bin/env python3
"""MPI over OpenSRD's libfabric provider beside libfabric's own: two ranks on two hosts (network namespaces joined by
a veth pair), then two ranks on one host.

    bench/mpi.py                                  everything (some ten minutes)
    bench/mpi.py --quick                          one short round, to see that it works
    bench/mpi.py --configurations mtu9000 one-host --stacks ompi --rounds 5

In each configuration and with each MPI the providers take turns, and medians over the rounds count. A ratio stands
beside its target; where there is no figure, the table says why. All figures go to mpi.json (--out DIR, by
default target/bench).
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from harness import hosts, layout, processes, scheduling, stacks, transport
from harness.transport import Transport

PROGRAM = Path(__file__).resolve().parent / "mpi_bench.c"
RANKS = 2
MAX_FAILURES = 2
"""What fails twice would take its time limit in every round."""
STACKS = {stack.name: stack for stack in (stacks.OPEN_MPI_5, stacks.MPICH)}

Measurement = tuple[str, int]
LATENCY_8, LATENCY_1K, LATENCY_8K = ("latency", 8), ("latency", 1024), ("latency", 8192)
ALLREDUCE, RATE = ("allreduce", 8), ("message_rate", 8)
BANDWIDTHS = (("bandwidth", 65536), ("bandwidth", 1 << 20), ("bandwidth", 4 << 20))
MEASUREMENTS: tuple[Measurement, ...] = (LATENCY_8, LATENCY_1K, LATENCY_8K, ALLREDUCE, RATE, *BANDWIDTHS)
UNITS = {
    "latency": ("us", "us"),
    "allreduce": ("us", "us"),
    "message_rate": ("messages_per_s", "msg/s"),
    "bandwidth": ("megabytes_per_s", "MB/s"),
}


@dataclass(frozen=True)
class Configuration:
    name: str
    title: str
    ours: Transport
    rivals: tuple[Transport, ...]
    mtu: int = 1500
    offloads: bool = True
    one_host: bool = False
    bandwidth_of_tcp: float = 0
    """Least share of the tcp provider's bandwidth."""

    def target(self, rival: Transport, measurement: Measurement) -> tuple[str, float] | None:
        """The sign and the value that our ratio to a rival should meet."""
        if rival is transport.TCP:
            fixed = {LATENCY_8: ("<=", 0.9), LATENCY_8K: ("<=", 1.0), ALLREDUCE: ("<=", 1.0), RATE: (">=", 1.5)}
            if measurement in BANDWIDTHS:
                return ">=", self.bandwidth_of_tcp
            return fixed.get(measurement)
        if rival is transport.RXD and measurement in BANDWIDTHS:
            return ">=", 2.0
        return None


ACROSS = (transport.TCP, transport.RXD)
CONFIGURATIONS = {
    configuration.name: configuration
    for configuration in (
        Configuration("mtu1500", "MTU 1500", transport.SRD, ACROSS, bandwidth_of_tcp=0.5),
        Configuration("mtu9000", "MTU 9000", transport.SRD, ACROSS, mtu=9000, bandwidth_of_tcp=0.7),
        Configuration(
            "nooffload", "MTU 1500, offloads off", transport.SRD, ACROSS, offloads=False, bandwidth_of_tcp=0.9
        ),
        Configuration("mtu1500-packet", "MTU 1500, packet sockets", transport.SRD_PACKET, ACROSS, bandwidth_of_tcp=0.5),
        Configuration(
            "mtu9000-packet", "MTU 9000, packet sockets", transport.SRD_PACKET, ACROSS, mtu=9000, bandwidth_of_tcp=0.7
        ),
        Configuration("mtu1500-xdp", "MTU 1500, AF_XDP sockets", transport.SRD_XDP, ACROSS, bandwidth_of_tcp=0.5),
        Configuration("one-host", "one host", transport.SRD_SHM, (transport.SHM,), one_host=True),
    )
}


@dataclass
class Series:
    """What one provider did in all rounds."""

    figures: dict[Measurement, list[float]] = field(default_factory=dict)
    problem: str | None = None
    """Why it has no figures, or not all."""
    failures: int = 0

    def median(self, measurement: Measurement) -> float | None:
        values = self.figures.get(measurement)
        return statistics.median(values) if values else None


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--configurations", nargs="+", choices=CONFIGURATIONS, default=list(CONFIGURATIONS))
    parser.add_argument("--stacks", nargs="+", choices=STACKS, default=list(STACKS))
    parser.add_argument("--rivals", nargs="+", choices=("tcp", "rxd", "shm", "srd"), help="only these, or srd alone")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.4, help="length of one measurement (default 0.4)")
    parser.add_argument("--timeout", type=float, default=60, help="limit of one run in seconds (default 60)")
    parser.add_argument("--quick", action="store_true", help="one round of 0.1 s measurements")
    parser.add_argument("--out", type=Path, default=layout.TARGET / "bench", help="directory for figures and logs")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 0.1
    return options


def main() -> int:
    options = arguments()
    if reason := hosts.why_impossible():
        sys.exit(f"bench: error: {reason}")
    options.out.mkdir(parents=True, exist_ok=True)
    everything = []
    with scheduling.one_group("srd-bench") as trouble:
        if trouble:
            print(f"bench: {trouble}", file=sys.stderr)
        for configuration in (CONFIGURATIONS[name] for name in options.configurations):
            for stack in (STACKS[name] for name in options.stacks):
                series = measure(configuration, stack, options)
                print(table(configuration, stack, series), flush=True)
                everything.append(as_document(configuration, stack, series))
    (options.out / "mpi.json").write_text(json.dumps(everything, indent=1) + "\n")
    return 0


def measure(
    configuration: Configuration, stack: stacks.Stack, options: argparse.Namespace
) -> dict[Transport, Series]:
    carriers = [
        carrier
        for carrier in (*configuration.rivals, configuration.ours)
        if not options.rivals or ("srd" if carrier is configuration.ours else carrier.name) in options.rivals
    ]
    series = {carrier: Series(problem=carrier.why_unusable()) for carrier in carriers}
    program = [str(stack.compile(PROGRAM)), "--seconds", str(options.seconds)]
    with hosts.HostPair(configuration.mtu, configuration.offloads) as pair:
        for number in range(options.rounds):
            for carrier in carriers:
                one = series[carrier]
                if carrier.why_unusable() or one.failures >= MAX_FAILURES:
                    continue
                print(
                    f"bench: {configuration.name} {stack.name} {carrier.name},"
                    f" round {number + 1} of {options.rounds}",
                    file=sys.stderr,
                )
                command = job(configuration, stack, carrier, pair, program)
                log = options.out.resolve() / "logs" / f"{configuration.name}.{stack.name}.{carrier.name}.log"
                outcome = processes.run(command, options.timeout, log)
                if problem := take(one, outcome, log, options.timeout):
                    one.problem = problem
                    one.failures += 1
    return series


def job(
    configuration: Configuration,
    stack: stacks.Stack,
    carrier: Transport,
    pair: hosts.HostPair,
    program: list[str],
) -> processes.Command:
    variables = {**pair.variables, **carrier.environment(hosts.INTERFACE)}
    if configuration.one_host:
        return stack.on_one_host(carrier, pair.names[0], RANKS, program, variables)
    return stack.on_hosts(carrier, pair.names, program, variables)


def take(series: Series, outcome: processes.Outcome, log: Path, timeout_s: float) -> str | None:
    """Adds a run's figures; returns what was wrong with it."""
    for line in outcome.output.splitlines():
        if line.startswith('{"test"'):
            figure = json.loads(line)
            value = figure[UNITS[figure["test"]][0]]
            series.figures.setdefault((figure["test"], figure["bytes"]), []).append(value)
    where = os.path.relpath(log)
    if outcome.status is None:
        return f"not done after {timeout_s:.0f} s ({where})"
    if outcome.status != 0:
        return f"exit status {outcome.status} ({where})"
    return None


# ---- the table ----


def size(count: int) -> str:
    for unit, power in (("MB", 20), ("KB", 10)):
        if count >= 1 << power:
            return f"{count >> power} {unit}"
    return f"{count} B"


def table(configuration: Configuration, stack: stacks.Stack, series: dict[Transport, Series]) -> str:
    rivals = [carrier for carrier in series if carrier is not configuration.ours]
    lines = [f"\n{configuration.title}, {stack.title}"]
    heads = [f"{carrier.provider:>12}" for carrier in series] + [f"{'/ ' + r.provider:>26}" for r in rivals]
    lines.append(f"  {'':28}" + "".join(heads))
    for measurement in MEASUREMENTS:
        test, count = measurement
        row = f"  {test.replace('_', ' ') + ' ' + size(count) + ', ' + UNITS[test][1]:28}"
        for one in series.values():
            median = one.median(measurement)
            row += f"{'-' if median is None else figure_text(median):>12}"
        row += "".join(f"{ratio_text(configuration, series, rival, measurement):>26}" for rival in rivals)
        lines.append(row)
    lines += [f"  {carrier.name}: {one.problem}" for carrier, one in series.items() if one.problem]
    return "\n".join(lines)


def figure_text(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def ratio_text(
    configuration: Configuration, series: dict[Transport, Series], rival: Transport, measurement: Measurement
) -> str:
    ours = series[configuration.ours].median(measurement) if configuration.ours in series else None
    theirs = series[rival].median(measurement)
    target = configuration.target(rival, measurement)
    wanted = f" ({target[0]} {target[1]:g})" if target else ""
    if ours is None or theirs is None:
        return f"-{wanted}"
    ratio = ours / theirs
    met = not target or (ratio <= target[1] if target[0] == "<=" else ratio >= target[1])
    return f"{ratio:.2f}{wanted}{'' if met else ' MISSED'}"


def as_document(configuration: Configuration, stack: stacks.Stack, series: dict[Transport, Series]) -> dict:
    def figures(one: Series) -> Iterable[dict]:
        for (test, count), values in one.figures.items():
            yield {"test": test, "bytes": count, "unit": UNITS[test][0], "rounds": values}

    return {
        "configuration": configuration.name,
        "stack": stack.title,
        "providers": {
            carrier.name: {"problem": one.problem, "figures": list(figures(one))}
            for carrier, one in series.items()
        },
    }


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\nbench: interrupted; every process that was started has been ended")
