"""The consumer matrix: which unmodified programs run over the transport, and what each must show."""

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness import stacks
from harness.processes import Command, free_port
from harness.transport import Transport

HERE = Path(__file__).resolve().parent
CHECK = HERE / "mpi_check.c"
RANKS = 2


class NotHere(Exception):
    """The machine does not allow what the case needs."""


@dataclass(frozen=True)
class Job:
    """What a case runs: one command, or a client with the server that listens for it."""

    command: Command
    server: Command | None = None
    port: int = 0


@dataclass(frozen=True)
class Case:
    name: str
    title: str
    job: Callable[[Transport, dict[str, str]], Job]
    expected: str
    """Regular expression that the output must contain."""
    min_packets: int
    """Packets that our device must have sent: fewer means that the messages went another way."""
    only_ours: bool = False
    """A program that speaks verbs itself: there is nothing to run over kernel TCP."""
    timeout_s: float = 60


# ---- MPI ----


def mpi_check(
    stack: stacks.Stack, arguments: list[str], transport: Transport, variables: dict[str, str]
) -> Job:
    argv, environment = stack.launch(transport, RANKS, [str(stack.compile(CHECK)), *arguments])
    return Job(Command(argv, {**environment, **variables}))


def mpi4py_check(stack: stacks.Stack, transport: Transport, variables: dict[str, str]) -> Job:
    program = [str(stack.bin / "python3"), str(HERE / "mpi4py_check.py")]
    argv, environment = stack.launch(transport, RANKS, program)
    if not transport.is_ours:
        # Open MPI 5.0.11's matched probe, by which mpi4py receives objects, fails over libfabric's tcp provider.
        environment["MPI4PY_RC_RECV_MPROBE"] = "0"
    return Job(Command(argv, {**environment, **variables}))


def intel_benchmarks(transport: Transport, variables: dict[str, str]) -> Job:
    stack = stacks.INTEL_MPI
    program = [
        str(stack.bin / "IMB-MPI1"),
        "-npmin",
        str(RANKS),
        "-iter",
        "60",
        "-iter_policy",
        "off",
        "-msglog",
        "0:20",
        "-time",
        "4",
        "PingPong",
        "Sendrecv",
        "Allreduce",
        "Alltoall",
    ]
    argv, environment = stack.launch(transport, RANKS, program)
    return Job(Command(argv, {**environment, **variables}))


def ucx_inside_open_mpi(transport: Transport, variables: dict[str, str]) -> Job:
    program = [str(stacks.OPEN_MPI_5.compile(CHECK))]
    argv, environment = stacks.OPEN_MPI_5.launch_ucx(transport, RANKS, program)
    if transport.is_ours:
        if os.geteuid() != 0:
            raise NotHere("UCX wants a device node, which takes root to make in a mount namespace")
        argv = [str(HERE / "with_device_node.sh"), device_name(transport, variables), *argv]
    return Job(Command(argv, {**environment, **variables}))


def device_name(transport: Transport, variables: dict[str, str]) -> str:
    listing = subprocess.run(
        [*transport.wrapper, "ibv_devices"],
        env=Command([], variables).full_environment(),
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    ).stdout
    devices = [line.split()[0] for line in listing.splitlines()[2:] if line.strip()]
    if len(devices) != 1:
        raise RuntimeError(f"ibv_devices should list one device, lists {devices}")
    return devices[0]


# ---- programs in two halves: a server and a client that learns from it over TCP where to send ----


def pingpong(transport: Transport, variables: dict[str, str]) -> Job:
    port = free_port()
    base = [
        *transport.wrapper,
        "fi_pingpong",
        "-p",
        transport.provider,
        "-e",
        "rdm",
        "-I",
        "20",
        "-S",
        "all",
        "-c",
    ]
    return Job(
        Command([*base, "-P", str(port), "127.0.0.1"], variables),
        Command([*base, "-B", str(port)], variables),
        port,
    )


def perftest(tool: str, arguments: list[str], transport: Transport, variables: dict[str, str]) -> Job:
    port = free_port()
    # -F: do not mind the CPU's frequency scaling.
    base = [*transport.wrapper, tool, "-c", "SRD", "-x", "0", "-F", "-p", str(port), *arguments]
    # Debian's perftest knows EFA's device ids up to the second generation; of later ones it does not use the work
    # request builder, without which EFA has no reads.
    variables = {**variables, "SRD_EFA_PROFILE": "gen2"}
    return Job(Command([*base, "127.0.0.1"], variables), Command(base, variables), port)


def device_information(transport: Transport, variables: dict[str, str]) -> Job:
    return Job(Command([*transport.wrapper, "ibv_devinfo", "-v"], variables))


MPI_STACKS = (stacks.OPEN_MPI_5, stacks.MPICH, stacks.INTEL_MPI, stacks.OPEN_MPI_4)
PERFTEST_ROW = r"(?m)^\s*\d+\s+\d+\s+[\d.]+\s+[\d.]+"

CASES = [
    Case(
        "ibv_devinfo",
        "ibv_devinfo",
        device_information,
        r"hca_id:(.|\n)*PORT_ACTIVE",
        0,
        only_ours=True,
        timeout_s=20,
    ),
    *(
        Case(
            stack.name,
            f"{stack.title}: point-to-point, storm, collectives",
            partial(mpi_check, stack, []),
            "mpi_check: ok",
            2000,
        )
        for stack in MPI_STACKS
    ),
    *(
        Case(
            f"{stack.name}-rma",
            f"{stack.title}: one-sided",
            partial(mpi_check, stack, ["--rma"]),
            "mpi_check: ok.*one-sided",
            2000,
        )
        for stack in MPI_STACKS
    ),
    *(
        Case(
            f"{stack.name}-mpi4py",
            f"mpi4py 4.1.2 over {stack.title}",
            partial(mpi4py_check, stack),
            "mpi4py_check: ok",
            2000,
        )
        for stack in (stacks.OPEN_MPI_5, stacks.MPICH)
    ),
    Case("imb", "Intel MPI Benchmarks", intel_benchmarks, r"All processes entering MPI_Finalize", 2000),
    Case("ucx", "Open MPI 5.0.11 over its UCX", ucx_inside_open_mpi, "mpi_check: ok", 2000),
    Case("fi_pingpong", "Debian libfabric 1.17 fi_pingpong", pingpong, r"(?m)^6m\s", 1000),
    Case(
        "ib_send_lat",
        "perftest ib_send_lat",
        partial(perftest, "ib_send_lat", ["-n", "1000"]),
        PERFTEST_ROW,
        1000,
        only_ours=True,
        timeout_s=30,
    ),
    Case(
        "ib_send_bw",
        "perftest ib_send_bw",
        partial(perftest, "ib_send_bw", ["-s", "4096", "-n", "2000"]),
        PERFTEST_ROW,
        1000,
        only_ours=True,
        timeout_s=30,
    ),
    Case(
        "ib_read_lat",
        "perftest ib_read_lat",
        partial(perftest, "ib_read_lat", ["-n", "1000"]),
        PERFTEST_ROW,
        1000,
        only_ours=True,
        timeout_s=30,
    ),
    Case(
        "ib_read_bw",
        "perftest ib_read_bw",
        partial(perftest, "ib_read_bw", ["-s", "65536", "-n", "500"]),
        PERFTEST_ROW,
        1000,
        only_ours=True,
        timeout_s=30,
    ),
]


def output_satisfies(case: Case, output: str) -> bool:
    return re.search(case.expected, output) is not None
