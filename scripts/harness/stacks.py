"""The MPI stacks of the matrix: how each is compiled against and started, on one host or across namespaces.

Every command line forces the network path: without that, ranks on one host would talk through shared memory and
nothing of the transport would be tested.
"""

import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import layout
from .hosts import INTERFACE, LAUNCHER
from .processes import Command
from .transport import Transport

# Ranks that yield: the machine may have fewer cores than ranks and engine threads.
OPEN_MPI_COMMON = ["--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
OPEN_MPI_BUSY = ["--bind-to", "none", "--mca", "mpi_yield_when_idle", "0"]
AS_ROOT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


@dataclass(frozen=True)
class Stack:
    name: str
    title: str
    bin: Path
    libraries: tuple[Path, ...]

    def environment(self) -> dict[str, str]:
        """Variables that the stack's launcher and programs need, whatever the transport."""
        path = os.environ.get("PATH", "/usr/bin:/bin")
        environment = {}
        if self.libraries:
            environment["PATH"] = f"{self.bin}:{path}"
            environment["LD_LIBRARY_PATH"] = ":".join(str(library) for library in self.libraries)
        return environment

    def compile(self, source: Path) -> Path:
        """Compiles a C program for this stack unless it is up to date; returns the program."""
        program = layout.TARGET / "consumers" / self.name / source.stem
        if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
            return program
        program.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [
                *self._compiler(),
                "-O2",
                "-std=c11",
                "-D_GNU_SOURCE",
                "-Wall",
                "-o",
                str(program),
                str(source),
                *self._link(),
            ],
            check=True,
        )
        return program

    def _compiler(self) -> list[str]:
        raise NotImplementedError

    def _link(self) -> list[str]:
        return []

    def launch(
        self,
        transport: Transport,
        ranks: int,
        program: list[str],
        one_sided: bool = False,
        busy: bool = False,
    ) -> tuple[list[str], dict[str, str]]:
        """Command and variables that start `program` on one host, with its messages on `transport`. `one_sided` also
        puts MPI's windows on it where that takes options of its own; `busy` ranks do not yield, for measuring."""
        raise NotImplementedError

    def on_one_host(
        self, transport: Transport, host: str, ranks: int, program: list[str], variables: dict[str, str]
    ) -> Command:
        """`launch` with busy ranks, in a network namespace (`hosts.py`)."""
        argv, environment = self.launch(transport, ranks, program, busy=True)
        return Command([str(LAUNCHER), host, shlex.join(argv)], {**environment, **variables})

    def on_hosts(
        self, transport: Transport, hosts: list[str], program: list[str], variables: dict[str, str]
    ) -> Command:
        """Starts `program` from the first of some network namespaces (`hosts.py`), a busy rank on each."""
        raise NotImplementedError


class OpenMpi(Stack):
    def environment(self):
        return {**super().environment(), **AS_ROOT}

    def _compiler(self) -> list[str]:
        return [str(self.bin / ("mpicc" if self.libraries else "mpicc.openmpi"))]

    def mpirun(self) -> str:
        return str(self.bin / ("mpirun" if self.libraries else "mpirun.openmpi"))

    def launch(self, transport, ranks, program, one_sided=False, busy=False):
        oversubscribe = ["--map-by", ":OVERSUBSCRIBE"] if self.libraries else ["--oversubscribe"]
        network = self.network(transport, busy) + (self.windows(transport) if one_sided else [])
        command = [self.mpirun(), "-np", str(ranks), *oversubscribe, *network, *program]
        return [*transport.wrapper, *command], self.environment()

    def on_hosts(self, transport, hosts, program, variables):
        environment = {**self.environment(), **variables}
        command = [
            self.mpirun(),
            "-np",
            str(len(hosts)),
            "--host",
            ",".join(f"{host}:1" for host in hosts),
            *self.network(transport, busy=True),
            *(["--prtemca", "plm_ssh_agent"] if self.libraries else ["--mca", "plm_rsh_agent"]),
            str(LAUNCHER),
            *(["--prtemca", "prte_if_include"] if self.libraries else ["--mca", "oob_tcp_if_include"]),
            INTERFACE,
            *(word for name in ("LD_LIBRARY_PATH", *variables) if name in environment for word in ("-x", name)),
            *transport.wrapper,
            *program,
        ]
        return Command([str(LAUNCHER), hosts[0], shlex.join(command)], environment)

    @staticmethod
    def network(transport: Transport, busy: bool = False) -> list[str]:
        """Only the matching-transport layer over libfabric, and only this provider."""
        return [
            *(OPEN_MPI_BUSY if busy else OPEN_MPI_COMMON),
            "--mca",
            "pml",
            "cm",
            "--mca",
            "mtl",
            "ofi",
            "--mca",
            "mtl_ofi_provider_include",
            transport.provider,
        ]

    @staticmethod
    def windows(transport: Transport) -> list[str]:
        """One-sided operations as the provider's own, where it has what Open MPI wants for them."""
        if transport.provider != "srd":
            return []
        return [
            "--mca",
            "btl",
            "self,ofi",
            "--mca",
            "osc",
            "rdma",
            "--mca",
            "opal_common_ofi_provider_include",
            transport.provider,
        ]

    def launch_over_kernel_tcp(self, ranks: int, program: list[str]):
        """`launch` with Open MPI's own TCP transport on loopback, without libfabric: what users run today without a
        special network."""
        options = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
        return self._oversubscribed(ranks, options, program), self.environment()

    def launch_ucx(self, transport: Transport, ranks: int, program: list[str]):
        transports = "srd,self" if transport.name == "efa" else "tcp,self"
        # The wheel's list of device patterns leaves out what it does not know; "any" takes ours too.
        options = ["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"]
        command = [*transport.wrapper, *self._oversubscribed(ranks, options, program)]
        return command, {**self.environment(), "UCX_TLS": transports}

    def _oversubscribed(self, ranks: int, options: list[str], program: list[str]) -> list[str]:
        """Open MPI 5's command line for more ranks on this host than it has cores."""
        oversubscribe = ["--map-by", ":OVERSUBSCRIBE", *OPEN_MPI_COMMON]
        return [self.mpirun(), "-np", str(ranks), *oversubscribe, *options, *program]


class Mpich(Stack):
    def _compiler(self) -> list[str]:
        return [str(self.bin / "mpicc")]

    def launch(self, transport, ranks, program, one_sided=False, busy=False):
        command = [str(self.bin / "mpiexec"), "-n", str(ranks), *program]
        return [*transport.wrapper, *command], {**self.environment(), **self.network(transport)}

    def on_hosts(self, transport, hosts, program, variables):
        command = [
            str(self.bin / "mpiexec"),
            "-launcher",
            "ssh",
            "-launcher-exec",
            str(LAUNCHER),
            "-hosts",
            ",".join(hosts),
            "-ppn",
            "1",
            "-n",
            str(len(hosts)),
            *transport.wrapper,
            *program,
        ]
        environment = {**self.environment(), **self.network(transport), **variables}
        return Command([str(LAUNCHER), hosts[0], shlex.join(command)], environment)

    @staticmethod
    def network(transport: Transport) -> dict[str, str]:
        # NOLOCAL: no shared memory of its own between ranks of one host. The wheel also holds UCX: name the netmod.
        return {"MPIR_CVAR_CH4_NETMOD": "ofi", "MPIR_CVAR_NOLOCAL": "1", "FI_PROVIDER": transport.provider}


class IntelMpi(Stack):
    def _compiler(self) -> list[str]:
        # The wheel's own mpicc expects an installation prefix that a virtual environment does not have.
        return ["gcc", f"-I{layout.VENV}/impi/include"]

    def _link(self) -> list[str]:
        return [f"{layout.VENV}/impi/lib/libmpi.so.12"]

    def launch(self, transport, ranks, program, one_sided=False, busy=False):
        command = [str(self.bin / "mpiexec.hydra"), "-n", str(ranks), *program]
        # Its wheel bundles no libfabric: MPICH's stands in. No pinning: two ranks would share a core with our engine.
        network = {"I_MPI_FABRICS": "ofi", "I_MPI_PIN": "0", "FI_PROVIDER": transport.provider}
        return [*transport.wrapper, *command], {**self.environment(), **network}


OPEN_MPI_5 = OpenMpi("ompi", "Open MPI 5.0.11", layout.VENV / "ompi/bin", (layout.VENV / "ompi/lib",))
OPEN_MPI_4 = OpenMpi("debian", "Debian Open MPI 4.1.4", Path("/usr/bin"), ())
MPICH = Mpich("mpich", "MPICH 5.0.2", layout.VENV / "mpich/bin", (layout.VENV / "mpich/lib",))
MPICH_5_0_1 = Mpich("mpich-5.0.1", "MPICH 5.0.1", layout.VENV / "mpich-5.0.1/bin", (layout.VENV / "mpich-5.0.1/lib",))
MPICH_4 = Mpich("mpich-4.2.3", "MPICH 4.2.3", layout.VENV / "mpich-4.2.3/bin", (layout.VENV / "mpich-4.2.3/lib",))
INTEL_MPI = IntelMpi(
    "impi",
    "Intel MPI 2021.19",
    layout.VENV / "impi/bin",
    (layout.VENV / "impi/lib", layout.VENV / "mpich/lib/mpich"),
)
