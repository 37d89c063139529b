"""One MPI job of the demo: where its ranks run, what carries their messages, and what happened while it ran."""

import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from harness import counters, processes, stacks
from harness.transport import Transport
from lab import Lab, SpineWatch

RANKS = 4
MPI = stacks.OPEN_MPI_5
TIMEOUT_S = 180


@dataclass(frozen=True)
class Carrier:
    """What carries the messages. Without a transport: the kernel's TCP, as Open MPI uses it by default."""

    title: str
    key: str
    transport: Transport | None

    @property
    def is_ours(self) -> bool:
        """Leaves counters of OpenSRD's."""
        return self.transport is not None and self.transport.is_ours


@dataclass
class Happened:
    """A finished job. Times are seconds of the monotonic clock."""

    started: float
    ended: float
    status: int | None
    lines: list[tuple[float, str]]
    fault: tuple[float, float] | None = None
    failed_spine: int | None = None
    spines: SpineWatch | None = None
    tcp_retransmissions: int = 0
    counted: counters.Counters = field(default_factory=counters.Counters)

    @property
    def wall_s(self) -> float:
        return self.ended - self.started


@dataclass(frozen=True)
class Fault:
    """The spine that carries most falls silent `after_s` after the job's first line matching `begin`, for `for_s`."""

    begin: str
    after_s: float = 3.0
    for_s: float = 3.0


def command(
    carrier: Carrier, program: list[str], lab: Lab | None, statistics: Path
) -> processes.Command:
    """In a lab's hosts, or on this host over loopback."""
    transport = carrier.transport
    variables = transport.environment("e0" if lab else "127.0.0.1", statistics) if transport else {}
    if transport:
        variables["OMPI_MCA_btl"] = "self"  # no program here has windows; btl/ofi, for those, sleeps for a second when it ends
    if lab:
        return lab.mpirun(RANKS, transport.name if transport else "tcp", program, variables)
    if transport:
        argv, environment = MPI.launch(transport, RANKS, program)
    else:
        argv, environment = MPI.launch_over_kernel_tcp(RANKS, program)
    return processes.Command(argv, {**environment, **variables})


def run(
    carrier: Carrier,
    program: list[str],
    lab: Lab | None,
    statistics: Path,
    fault: Fault | None,
    on_line: Callable[[str], None],
) -> Happened:
    """Runs a job to its end, or to the time limit."""
    statistics.mkdir(parents=True, exist_ok=True)
    for old in statistics.glob("srd.*.json"):
        old.unlink()
    job = command(carrier, program, lab, statistics)
    (statistics / "command").write_text(job.line() + "\n")
    if not lab:
        happened = _follow(job, None, None, None, on_line)
    else:
        retransmitted_before = lab.tcp_retransmissions()
        with SpineWatch(lab.spines) as watch:
            happened = _follow(job, lab, watch, fault, on_line)
        happened.spines = watch
        happened.tcp_retransmissions = lab.tcp_retransmissions() - retransmitted_before
    if carrier.is_ours:
        happened.counted = counters.read(statistics)
    return happened


def _follow(
    job: processes.Command,
    lab: Lab | None,
    watch: SpineWatch | None,
    fault: Fault | None,
    on_line: Callable[[str], None],
) -> Happened:
    happened = Happened(time.monotonic(), 0, None, [])
    process = job.start(subprocess.PIPE)
    overdue = threading.Timer(TIMEOUT_S, _end_overdue, [process, happened])
    overdue.start()
    injection: threading.Thread | None = None
    try:
        for raw in process.stdout:
            line = raw.decode(errors="replace").rstrip("\n")
            happened.lines.append((time.monotonic(), line))
            on_line(line)
            if fault and lab and not injection and line.strip().startswith(fault.begin):
                injection = threading.Thread(target=_inject, args=(fault, lab, watch, happened, process))
                injection.start()
        happened.status = process.wait()
    finally:
        happened.ended = time.monotonic()
        overdue.cancel()
        processes.end_session(process)
        if injection:
            injection.join()
    return happened


def _end_overdue(process: subprocess.Popen, happened: Happened) -> None:
    happened.lines.append((time.monotonic(), f"demo: no end after {TIMEOUT_S} s; stopped"))
    processes.end_session(process)


def _inject(
    fault: Fault, lab: Lab, watch: SpineWatch, happened: Happened, process: subprocess.Popen
) -> None:
    def wait_unless_over(seconds: float) -> None:
        limit = time.monotonic() + seconds
        while time.monotonic() < limit and process.poll() is None:
            time.sleep(0.01)

    wait_unless_over(fault.after_s)
    if process.poll() is not None:
        return
    # The busiest one, whatever the transport: a spine that carries nothing would test nothing.
    happened.failed_spine = watch.busiest()
    lab.blackhole(happened.failed_spine)
    begun = time.monotonic()
    wait_unless_over(fault.for_s)
    lab.heal()
    happened.fault = (begun, time.monotonic())
