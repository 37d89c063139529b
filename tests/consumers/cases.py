"""The consumer matrix: which unmodified programs run over the transport, and what each must show."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import answers
from harness import layout, stacks
from harness.processes import Command, free_port
from harness.transport import EFA, SRD, SRD_SHM, TCP, Transport

HERE = Path(__file__).resolve().parent
CHECK = HERE / "mpi_check.c"
SPAWN = HERE / "mpi_spawn.c"
RANKS = 2
APPLICATION_RANKS = 4

EVERYWHERE = ("efa", "srd", "srd-shm", "tcp", "rxd", "shm")
VERBS = ("efa",)
"""Programs that speak verbs themselves: there is nothing to run over another transport."""


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
    transports: tuple[str, ...] = EVERYWHERE
    """Those it can run over."""
    is_one_job: bool = True
    """One `srd run` starts all of it, so that it can be sealed with a key of its own."""
    survives_loss: bool = True
    """Datagrams that are lost are lost: a program that waits for each cannot run under faults."""
    is_slow: bool = False
    """Takes minutes to build or to run: only where it is named, or with --all."""
    differences: Callable[[str, str], str | None] | None = None
    """What is wrong with an output, given that of the same job over kernel TCP."""


# ---- MPI ----


def mpi_check(
    stack: stacks.Stack, arguments: list[str], transport: Transport, variables: dict[str, str]
) -> Job:
    program = [str(stack.compile(CHECK)), *arguments]
    argv, environment = stack.launch(transport, RANKS, program, one_sided="--rma" in arguments)
    return Job(Command(argv, {**environment, **variables}))


def mpi_spawn(stack: stacks.Stack, transport: Transport, variables: dict[str, str]) -> Job:
    argv, environment = stack.launch(transport, RANKS, [str(stack.compile(SPAWN)), "10"])
    return Job(Command(argv, {**environment, **variables}))


def mpi4py_check(stack: stacks.Stack, transport: Transport, variables: dict[str, str]) -> Job:
    program = [str(stack.bin / "python3"), str(HERE / "mpi4py_check.py")]
    argv, environment = stack.launch(transport, RANKS, program)
    if transport.name == TCP.name:
        # Open MPI 5.0.11's matched probe, by which mpi4py receives objects, fails over libfabric's tcp provider.
        environment["MPI4PY_RC_RECV_MPROBE"] = "0"
    return Job(Command(argv, {**environment, **variables}))


# Short: few iterations, messages to 1 MiB (to 64 KiB where there are many kinds of operations).
IMB_SHORT = ["-npmin", str(RANKS), "-iter_policy", "off", "-time", "4", "-iter"]


def intel_benchmarks(
    binary: str, arguments: list[str], transport: Transport, variables: dict[str, str]
) -> Job:
    stack = stacks.INTEL_MPI
    argv, environment = stack.launch(transport, RANKS, [str(stack.bin / binary), *arguments])
    return Job(Command(argv, {**environment, "OMP_NUM_THREADS": "2", **variables}))


def lammps(transport: Transport, variables: dict[str, str]) -> Job:
    """Debian's LAMMPS, on the Open MPI 5 that is first on the library path: a crystal melts."""
    stack = stacks.OPEN_MPI_5
    sizes = ["-var", "cells", "12", "-var", "steps", "100"]
    program = ["lmp", "-in", str(layout.ROOT / "demo" / "melt.lmp"), "-log", "none", *sizes]
    argv, environment = stack.launch(transport, APPLICATION_RANKS, program)
    return Job(Command(argv, {**environment, **variables}))


def hpc_challenge(transport: Transport, variables: dict[str, str]) -> Job:
    """Debian's HPCC, likewise. It reads its input from the current directory and leaves its results there."""
    directory = layout.TARGET / "consumers" / "hpcc" / transport.name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    shutil.copy(HERE / "hpccinf.txt", directory)
    argv, environment = stacks.OPEN_MPI_5.launch(transport, APPLICATION_RANKS, ["hpcc"])
    inside = ["sh", "-c", 'cd "$0" && "$@" && cat hpccoutf.txt', str(directory)]
    return Job(Command([*inside, *argv], {**environment, **variables}))


def mpi4py_futures(stack: stacks.Stack, transport: Transport, variables: dict[str, str]) -> Job:
    """A pool of workers: one rank gives out tasks, the others work."""
    program = [str(stack.bin / "python3"), "-m", "mpi4py.futures", str(HERE / "mpi4py_futures.py")]
    argv, environment = stack.launch(transport, RANKS + 1, program)
    if transport.name == TCP.name:
        environment["MPI4PY_RC_RECV_MPROBE"] = "0"  # as in mpi4py_check
    return Job(Command(argv, {**environment, **variables}))


def rsmpi(transport: Transport, variables: dict[str, str]) -> Job:
    """Rust's MPI crate, built against Debian's Open MPI."""
    built = layout.TARGET / "consumers" / "rsmpi"
    manifest = HERE / "rsmpi" / "Cargo.toml"
    build = ["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path", str(manifest)]
    environment = {**os.environ, "MPICC": "mpicc.openmpi"}
    subprocess.run([*build, "--target-dir", str(built)], env=environment, check=True)
    argv, environment = stacks.OPEN_MPI_4.launch(transport, RANKS + 1, [str(built / "release" / "rsmpi_check")])
    return Job(Command(argv, {**environment, **variables}))


def coarrays(transport: Transport, variables: dict[str, str]) -> Job:
    """OpenCoarrays, Fortran's co-arrays over MPI's one-sided operations, on Debian's Open MPI."""
    program = layout.TARGET / "consumers" / "caf_check"
    program.parent.mkdir(parents=True, exist_ok=True)
    compiler = ["gfortran", "-O2", "-Wall", "-fcoarray=lib"]
    subprocess.run([*compiler, "-o", program, HERE / "caf_check.f90", "-lcaf_openmpi"], check=True)
    stack = stacks.OPEN_MPI_4
    argv, environment = stack.launch(transport, APPLICATION_RANKS, [str(program)], one_sided=True)
    return Job(Command(argv, {**environment, **variables}))


def quantum_espresso(transport: Transport, variables: dict[str, str]) -> Job:
    """Debian's Quantum ESPRESSO: the energy, forces and stress of a silicon crystal whose atoms are displaced."""
    directory = layout.TARGET / "consumers" / "espresso" / transport.name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    argv, environment = stacks.OPEN_MPI_4.launch(transport, RANKS, ["pw.x", "-in", str(HERE / "silicon.in")])
    inside = {"ESPRESSO_TMPDIR": str(directory), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return Job(Command(argv, {**environment, **inside, **variables}))


def nixl(transport: Transport, variables: dict[str, str]) -> Job:
    python = layout.VENV / "nixl" / "bin" / "python3"
    if not python.exists():
        raise NotHere("NIXL is not installed; run: make setup")
    stub = layout.TARGET / "consumers" / "nixl"
    compile_cuda_stub(stub)
    # Debian's libfabric 1.17 is too old for it; MPICH's wheel has a newer one.
    libraries = {"LD_LIBRARY_PATH": f"{stub}:{layout.VENV / 'mpich/lib/mpich'}"}
    program = [str(python), str(HERE / "nixl_check.py")]
    if transport.name == TCP.name:
        return Job(Command(program, {**libraries, "FI_PROVIDER": "tcp", **variables}))
    if transport.name == EFA.name:
        return Job(Command([*transport.wrapper, *program], {**libraries, **variables}))
    # It takes no provider whose name it does not know.
    wrapper = [str(layout.SRD), "run", "--provider", "--as-efa", "--"]
    return Job(Command([*wrapper, *program], {**libraries, **variables}))


def compile_cuda_stub(directory: Path) -> None:
    """NIXL's plugin is linked against CUDA, and asks it nothing about memory of the host."""
    directory.mkdir(parents=True, exist_ok=True)
    source = HERE / "no_cuda.c"
    for library, versions in (("libcuda.so.1", None), ("libcudart.so.12", "libcudart.so.12 { *; };")):
        target = directory / library
        if target.exists() and target.stat().st_mtime > source.stat().st_mtime:
            continue
        options = [f"-Wl,-soname,{library}"]
        if versions:
            script = directory / f"{library}.map"
            script.write_text(versions + "\n")
            options.append(f"-Wl,--version-script={script}")
        subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-Wall", *options, "-o", target, source], check=True)


def ucx_inside_open_mpi(transport: Transport, variables: dict[str, str]) -> Job:
    program = [str(stacks.OPEN_MPI_5.compile(CHECK))]
    if transport.name == "efa":
        # UCX wants a device node.
        transport = transport.in_machine("c5n")
    argv, environment = stacks.OPEN_MPI_5.launch_ucx(transport, RANKS, program)
    return Job(Command(argv, {**environment, **variables}))


# ---- machines ----


def counted_in_machine(kind: str, transport: Transport, variables: dict[str, str]) -> Job:
    """What the devices' files say afterwards is what the processes have counted."""
    program = [sys.executable, str(HERE / "machine_check.py")]
    return Job(Command([*transport.in_machine(kind).wrapper, *program], variables))


def mooncake_in_machine(kind: str, transport: Transport, variables: dict[str, str]) -> Job:
    """It finds all devices in /sys and is told to use the first four."""
    python = layout.VENV / "mooncake" / "bin" / "python3"
    if not python.exists():
        raise NotHere("Mooncake is not installed; run: make setup")
    # Its wheel has no libfabric, and Debian's is too old for it; MPICH's wheel has a newer one.
    libraries = {"LD_LIBRARY_PATH": str(layout.VENV / "mpich/lib/mpich")}
    program = [str(python), str(HERE / "mooncake_check.py"), "4"]
    return Job(Command([*transport.in_machine(kind).wrapper, *program], {**libraries, **variables}))


def mpi_in_machine(stack: stacks.Stack, kind: str, transport: Transport, variables: dict[str, str]) -> Job:
    argv, environment = stack.launch(transport.in_machine(kind), RANKS, [str(stack.compile(CHECK))])
    return Job(Command(argv, {**environment, **variables}))


# ---- programs in two halves: a server and a client that learns from it over TCP where to send ----


def pingpong(arguments: list[str], library: Path | None, transport: Transport, variables: dict[str, str]) -> Job:
    """Debian's program, over its own libfabric or over that of a wheel."""
    if library:
        if not library.exists():
            raise NotHere(f"{library.relative_to(layout.ROOT)} is not installed; run: make setup")
        variables = {**variables, "LD_LIBRARY_PATH": str(library)}
    port = free_port()
    base = [*transport.wrapper, "fi_pingpong", "-p", transport.provider, *arguments]
    return Job(
        Command([*base, "-P", str(port), "127.0.0.1"], variables),
        Command([*base, "-B", str(port)], variables),
        port,
    )


LIBFABRICS = (
    ("debian", "Debian libfabric 1.17", None),
    ("mpich-4.2.3", "libfabric 1.22 of MPICH 4.2.3", layout.VENV / "mpich-4.2.3/lib/mpich"),
    ("mpich-5.0.1", "libfabric 2.4 of MPICH 5.0.1", layout.VENV / "mpich-5.0.1/lib/mpich"),
    ("mpich", "libfabric 2.5 of MPICH 5.0.2", layout.VENV / "mpich/lib/mpich"),
    ("ompi", "libfabric 2.5 of Open MPI 5.0.11", layout.VENV / "ompi/lib/openmpi"),
)
"""Every libfabric with EFA that the registries have, by release: each treats the device in its own way."""

PINGPONGS = (
    ("tagged", ["-I", "10", "-e", "rdm", "-m", "tagged"]),
    # From libfabric 2.1 on four sizes only: so many that 2 % of them are some.
    ("msg", ["-I", "100", "-e", "rdm", "-m", "msg"]),
    ("dgram", ["-I", "100", "-e", "dgram"]),
)


def libfabric_pingpongs() -> list[Case]:
    return [
        Case(
            f"fi_pingpong-{mode}-{name}",
            f"{title}: fi_pingpong, {mode}",
            partial(pingpong, arguments, library),
            # From 2.1 on plain messages are those of the device, and not longer than its packets.
            r"(?m)^1m\s" if mode == "tagged" else r"(?m)^4k\s",
            100,
            transports=VERBS,
            is_one_job=False,
            survives_loss=mode != "dgram",
        )
        for name, title, library in LIBFABRICS
        for mode, arguments in PINGPONGS
        # Before 2.0.0 (commit b514863e8) datagrams' completions had flags from memory that nobody had written.
        if mode != "dgram" or name not in ("debian", "mpich-4.2.3")
    ]


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


POINT_TO_POINT = ["PingPong", "Sendrecv", "Allreduce", "Alltoall"]
NON_BLOCKING = ["Ibcast", "Iallreduce", "Ialltoall", "Iallgatherv", "Ireduce_scatter", "Ibarrier"]
ONE_SIDED = [
    "Unidir_put",
    "Unidir_get",
    "Bidir_put",
    "Exchange_get",
    "Accumulate",
    "Get_accumulate",
    "Fetch_and_op",
    "Compare_and_swap",
    "Truly_passive_put",
]
THREADS_SHORT = ["-thread_level", "multiple", "-count", "1,1024,65536", "-repeat", "40", "-warmup", "5"]
IMB_END = r"All processes entering MPI_Finalize"
THREADED = ["PingPongMT", "SendRecvMT", "ExchangeMT", "BiBandMT", "AllReduceMT"]

MPI_STACKS = (stacks.OPEN_MPI_5, stacks.MPICH, stacks.INTEL_MPI, stacks.OPEN_MPI_4)
PERFTEST_ROW = r"(?m)^\s*\d+\s+\d+\s+[\d.]+\s+[\d.]+"

CASES = [
    Case(
        "ibv_devinfo",
        "ibv_devinfo",
        device_information,
        r"hca_id:(.|\n)*PORT_ACTIVE",
        0,
        transports=VERBS,
        is_one_job=False,
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
            f"{stack.name}-spawn",
            f"{stack.title}: children that come and go",
            partial(mpi_spawn, stack),
            "mpi_spawn: ok",
            200,
            # Over libfabric's own efa provider the second child's first message ends with the first one's connection.
            ("srd", "srd-shm", "tcp"),
        )
        for stack in (stacks.OPEN_MPI_5, stacks.MPICH)
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
    *(
        Case(
            name,
            f"Intel MPI Benchmarks, {binary}",
            partial(intel_benchmarks, binary, arguments),
            expected,
            2000,
        )
        for name, binary, arguments, expected in (
            ("imb", "IMB-MPI1", [*IMB_SHORT, "60", "-msglog", "0:20", *POINT_TO_POINT], IMB_END),
            ("imb-nbc", "IMB-NBC", [*IMB_SHORT, "20", "-msglog", "0:16", *NON_BLOCKING], IMB_END),
            ("imb-rma", "IMB-RMA", [*IMB_SHORT, "20", "-msglog", "0:16", *ONE_SIDED], IMB_END),
            ("imb-mt", "IMB-MT", [*THREADS_SHORT, *THREADED], r"Benchmarking AllReduceMT(.|\n)*524288 +40 "),
        )
    ),
    *(
        Case(
            f"{stack.name}-futures",
            f"mpi4py.futures over {stack.title}: a pool of workers",
            partial(mpi4py_futures, stack),
            "mpi4py_futures: ok",
            500,
        )
        for stack in (stacks.OPEN_MPI_5, stacks.MPICH)
    ),
    Case("rsmpi", "rsmpi (crate mpi 0.8.2) over Debian Open MPI 4.1.4", rsmpi, "rsmpi_check: ok", 500, is_slow=True),
    Case(
        "coarrays",
        f"OpenCoarrays over Debian Open MPI 4.1.4, {APPLICATION_RANKS} images",
        coarrays,
        "caf_check: ok",
        1500,
        # Open MPI's one-sided operations over its own messages, as libfabric's efa and tcp have them, take minutes for this.
        transports=(SRD.name, SRD_SHM.name),
    ),
    Case(
        "espresso",
        f"Debian Quantum ESPRESSO, {RANKS} ranks: the physics of TCP",
        quantum_espresso,
        r"JOB DONE\.",
        1000,
        differences=answers.espresso,
    ),
    Case(
        "lammps",
        f"Debian LAMMPS, {APPLICATION_RANKS} ranks: the physics of TCP",
        lammps,
        r"Loop time of",
        2000,
        differences=answers.lammps,
    ),
    Case(
        "hpcc",
        f"Debian HPC Challenge, {APPLICATION_RANKS} ranks: the answers of TCP",
        hpc_challenge,
        r"(?m)^Success=1$",
        2000,
        differences=answers.hpcc,
    ),
    Case(
        "nixl",
        "NIXL 1.4.1, LIBFABRIC backend: writes, reads, notifications",
        nixl,
        "nixl_check: ok",
        500,
        transports=(EFA.name, SRD.name, TCP.name),
    ),
    Case(
        "ucx",
        "Open MPI 5.0.11 over its UCX",
        ucx_inside_open_mpi,
        "mpi_check: ok",
        2000,
        transports=("efa", TCP.name),
    ),
    Case(
        "machine-p4d",
        "A machine with four devices: counters of fi_pingpong",
        partial(counted_in_machine, "p4d"),
        "machine_check: ok",
        1000,
        transports=VERBS,
    ),
    Case(
        "machine-p5",
        "A machine with 32 devices: MPICH 5.0.2",
        partial(mpi_in_machine, stacks.MPICH, "p5"),
        "mpi_check: ok",
        2000,
        transports=VERBS,
    ),
    Case(
        "machine-mpich-5.0.1",
        "A machine with 32 devices: MPICH 5.0.1",
        partial(mpi_in_machine, stacks.MPICH_5_0_1, "p5"),
        "mpi_check: ok",
        2000,
        transports=VERBS,
    ),
    # With 32 devices it crashes in MPI_Init, in code of its own.
    Case(
        "machine-mpich-4.2.3",
        "A machine with 4 devices: MPICH 4.2.3",
        partial(mpi_in_machine, stacks.MPICH_4, "p4d"),
        "mpi_check: ok",
        2000,
        transports=VERBS,
    ),
    Case(
        "mooncake",
        "A machine with 32 devices: Mooncake 0.3.13, writes and reads",
        partial(mooncake_in_machine, "p5"),
        "mooncake_check: ok",
        500,
        transports=VERBS,
    ),
    Case(
        "fi_pingpong",
        "Debian libfabric 1.17 fi_pingpong",
        partial(pingpong, ["-e", "rdm", "-I", "20", "-S", "all", "-c"], None),
        r"(?m)^6m\s",
        1000,
        is_one_job=False,
    ),
    *libfabric_pingpongs(),
    Case(
        "ib_send_lat",
        "perftest ib_send_lat",
        partial(perftest, "ib_send_lat", ["-n", "1000"]),
        PERFTEST_ROW,
        1000,
        transports=VERBS,
        is_one_job=False,
    ),
    Case(
        "ib_send_bw",
        "perftest ib_send_bw",
        partial(perftest, "ib_send_bw", ["-s", "4096", "-n", "2000"]),
        PERFTEST_ROW,
        1000,
        transports=VERBS,
        is_one_job=False,
    ),
    Case(
        "ib_read_lat",
        "perftest ib_read_lat",
        partial(perftest, "ib_read_lat", ["-n", "1000"]),
        PERFTEST_ROW,
        1000,
        transports=VERBS,
        is_one_job=False,
    ),
    Case(
        "ib_read_bw",
        "perftest ib_read_bw",
        partial(perftest, "ib_read_bw", ["-s", "65536", "-n", "500"]),
        PERFTEST_ROW,
        1000,
        transports=VERBS,
        is_one_job=False,
    ),
]


def output_satisfies(case: Case, output: str) -> bool:
    return re.search(case.expected, output) is not None
