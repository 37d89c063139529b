#!/usr/bin/env python3
"""Runs the consumer matrix: unmodified MPI stacks, libfabric and verbs tools, each clean, under packet loss, and with
one silent path.

    tests/consumers/run.py                           everything over OpenSRD's software EFA, clean and under loss
    tests/consumers/run.py --transport srd           over OpenSRD's libfabric provider (srd-shm: with shared memory)
    tests/consumers/run.py --sealed mpich            with a key that `srd run --sealed` makes
    tests/consumers/run.py --transport tcp           the same programs over libfabric's tcp provider (checks the tests)
    tests/consumers/run.py --fault loss mpich ucx    these cases only, under loss only, with their command lines
    tests/consumers/run.py --list

The last line says `N passed, N failed`; the exit status is 0 when nothing failed.
"""

import argparse
import contextlib
import os
import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import cases
import secrets_watch as secrets
from harness import counters, layout, processes, transport

# One of the 64 paths of each peer: all are taken in turn until one turns out bad.
FAULTS = {"clean": None, "loss": "loss=0.02,seed=1", "blackhole": "blackhole=6"}
LOGS = layout.TARGET / "consumers" / "logs"
LONGEST_S = 600
"""After that a program hangs: a busy machine takes ten times as long as a quiet one."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--transport", choices=transport.BY_NAME, default="efa")
    parser.add_argument("--fault", choices=FAULTS, help="only this (default: clean and loss)")
    parser.add_argument(
        "--address", default="127.0.0.1", help="local address or interface of the software device"
    )
    parser.add_argument(
        "--sealed", action="store_true", help="encrypt every packet, and look for the key where it must not be"
    )
    parser.add_argument("--all", action="store_true", help="also the cases that take minutes")
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument("names", nargs="*", help="cases to run (default: all)")
    chosen = parser.parse_args()
    unknown = set(chosen.names) - {case.name for case in cases.CASES}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))} (--list shows them)")
    return chosen


def main() -> int:
    options = arguments()
    if options.list:
        for case in cases.CASES:
            print(f"{case.name:26} {case.title}")
        return 0
    carrier = transport.BY_NAME[options.transport]
    if reason := carrier.why_unusable():
        sys.exit(f"consumers: error: {reason}")
    if options.sealed:
        if not carrier.is_ours:
            sys.exit(f"consumers: error: {carrier.name} cannot be sealed")
        carrier = carrier.sealed()

    wanted = options.names or [case.name for case in cases.CASES if options.all or not case.is_slow]
    chosen = [case for case in cases.CASES if case.name in wanted]
    # Faults are injected in our datapath, which others do not pass.
    injects = carrier.is_ours and not carrier.is_local
    if options.fault not in (None, "clean") and not injects:
        sys.exit(f"consumers: error: no faults can be injected into {carrier.name}")
    faults = [options.fault] if options.fault else ["clean", "loss"] if injects else ["clean"]
    passed = failed = 0
    skipped = []
    started = time.monotonic()
    for fault in faults:
        for case in chosen:
            if carrier.name not in case.transports or (carrier.is_sealed and not case.is_one_job):
                skipped.append(case.name)
                continue
            if fault != "clean" and (case.min_packets == 0 or not case.survives_loss):
                continue  # sends nothing that could be lost, or nothing that may be
            try:
                problem = run_case(case, carrier, fault, options.address, show=bool(options.names))
            except cases.NotHere as reason:
                print(f"  not run: {reason}")
                continue
            passed, failed = (passed, failed + 1) if problem else (passed + 1, failed)
    if skipped:
        how = f"{carrier.name}, sealed" if carrier.is_sealed else carrier.name
        print(f"not run, since they cannot use {how}: {', '.join(dict.fromkeys(skipped))}")
    print(f"consumer matrix over {carrier.name}: {time.monotonic() - started:.0f} s")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def run_case(
    case: cases.Case, carrier: transport.Transport, fault: str, address: str, show: bool
) -> str | None:
    """Runs one case, tells the result (with `show` the command line too), and returns what was wrong."""
    name = f"{case.name}.{carrier.name}{'.sealed' if carrier.is_sealed else ''}.{fault}"
    print(f"  {case.title:60} {fault:9}", end="", flush=True)
    statistics = LOGS / f"{name}.counters"
    shutil.rmtree(statistics, ignore_errors=True)
    statistics.mkdir(parents=True)
    job, outcome, problem = None, None, None
    try:
        job = case.job(carrier, carrier.environment(address, statistics, FAULTS[fault]))
        watch = secrets.Watch(LOGS / f"{name}.run") if carrier.is_sealed else None
        with watch or contextlib.nullcontext():
            command = watch.wrap(job.command) if watch else job.command
            outcome = processes.run(command, LONGEST_S, LOGS / f"{name}.log", job.server, job.port)
        problem = (
            judge(case, carrier, fault, outcome, statistics)
            or compare(case, carrier, outcome, address)
            or (watch and watch.problem())
        )
    except cases.NotHere:
        raise
    except Exception as error:  # a case that cannot even start is a failure like any other
        problem = f"{type(error).__name__}: {error}"
    seconds = f"{outcome.seconds:5.1f} s" if outcome else ""
    print(
        f"  {'FAILED' if problem else 'ok'}  {seconds}{'' if problem or not carrier.is_ours else '  ' + evidence(statistics)}"
    )
    if problem:
        report(case, carrier, fault, outcome, problem)
    if job and (problem or show):
        print_commands(job, LOGS / f"{name}.log")
    return problem


def judge(
    case: cases.Case, carrier: transport.Transport, fault: str, outcome: processes.Outcome, statistics: Path
) -> str | None:
    if outcome.status is None:
        return f"still running after {LONGEST_S} s; ended"
    if outcome.status != 0:
        return f"exit status {outcome.status}"
    if not cases.output_satisfies(case, outcome.output):
        return f"the output lacks /{case.expected}/"
    if not carrier.is_ours or carrier.is_local or case.min_packets == 0:
        return None
    counted = counters.read(statistics)
    if carrier.is_sealed and counted.sealed_processes != counted.processes:
        return f"only {counted.sealed_processes} of {counted.processes} processes had a key"
    if not counted.moved_messages or counted.sent_packets < case.min_packets:
        return (
            f"only {counted.sent_packets} packets sent and {counted.received_packets} received by our device in "
            f"{counted.processes} processes (at least {case.min_packets} wanted): the messages went another way"
        )
    # A path may turn out to be dead by a probe, before any data has taken it.
    if fault != "clean" and counted.retransmitted_packets + counted.paths_down == 0:
        return f"no packet was retransmitted and no path went down: the {fault} was not injected"
    return None


def compare(
    case: cases.Case, carrier: transport.Transport, outcome: processes.Outcome, address: str
) -> str | None:
    """What differs from the same job over kernel TCP, which runs when nobody has run it since the build was cleaned."""
    if not case.differences:
        return None
    reference = LOGS / f"{case.name}.{transport.TCP.name}.clean.log"
    if carrier is transport.TCP:
        return case.differences(outcome.output, outcome.output)
    if not reference.exists():
        job = case.job(transport.TCP, transport.TCP.environment(address))
        over_tcp = processes.run(job.command, LONGEST_S, reference.with_suffix(".running"))
        if over_tcp.status != 0:
            return f"the same over TCP, to compare with, failed (status {over_tcp.status})"
        reference.with_suffix(".running").rename(reference)
    return case.differences(outcome.output, reference.read_text(errors="replace"))


def evidence(statistics: Path) -> str:
    counted = counters.read(statistics)
    return (
        f"{counted.sent_packets} packets, {counted.retransmitted_packets} retransmitted"
        if counted.processes
        else ""
    )


def report(case, carrier, fault, outcome, problem) -> None:
    print(f"    {problem}")
    if outcome:
        for line in outcome.output.splitlines()[-25:]:
            print(f"    | {line}")
    sealed = "--sealed " if carrier.is_sealed else ""
    print(f"    again: tests/consumers/run.py {sealed}--transport {carrier.name} --fault {fault} {case.name}")


def print_commands(job: cases.Job, log: Path) -> None:
    if job.server:
        print(f"    server: {job.server.line()}")
    print(f"    command: {job.command.line()}")
    print(f"    output: {os.path.relpath(log, layout.ROOT)}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\nconsumers: interrupted; every process that was started has been ended")
