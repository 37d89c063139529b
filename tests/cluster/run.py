#!/usr/bin/env python3
"""A sweep on a cluster (docs/CLUSTER.md): Debian's Slurm on this host, with nodes that are processes, of which one dies in the middle.

    tests/cluster/run.py            everything
    tests/cluster/run.py slurm      these only
    tests/cluster/run.py --list

The last line says `N passed, N failed`. Slurm keeps all it has in a directory of its own, and ends with the test.
"""

import contextlib
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from harness import cases, layout
from harness.cases import Wrong, expect

os.environ["PATH"] += ":/usr/sbin"

NODES = ["node1", "node2", "node3"]
NODE_SILENT_S = 4
"""After so long without an answer Slurm gives a node up."""
LONGEST_S = 100
"""After that a step hangs, on a busy machine, too."""

SCENARIO = """
[fabric]
kind = "leaf-spine"
leaves = 4
spines = 4
hosts_per_leaf = 8

[[workload]]
kind = "permutation"
size = "100MB"
"""
SWEEP = """
name = "On a cluster"
seeds = "1..8"

[[case]]
scenario = "busy.toml"

[[axis]]
key = "transport.paths"
values = [1, 4, 16, 64]
"""
RUNS = 40


def until(what: str, condition: Callable[[], object]) -> object:
    """What `condition` comes to once it is true."""
    deadline = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise Wrong(f"after {LONGEST_S} s: {what}")


def output(*command: str | Path, **more) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, **more)
    said = f"{' '.join(map(str, command))} ends with {ran.returncode}: {ran.stdout}{ran.stderr}"
    expect(ran.returncode == 0, said)
    return ran.stdout


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class Slurm:
    """A controller and nodes, all on this host, and munge between them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.configuration = directory / "slurm.conf"
        self.daemons: dict[str, subprocess.Popen] = {}

    def start(self) -> None:
        user = pwd.getpwuid(os.getuid()).pw_name
        controller, *ports = free_ports(1 + len(NODES))
        key = self.directory / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        lines = [
            "ClusterName=test",
            f"SlurmctldHost={socket.gethostname()}(127.0.0.1)",
            f"SlurmctldPort={controller}",
            f"SlurmUser={user}",
            f"SlurmdUser={user}",
            f"AuthInfo=socket={self.directory}/munge.socket",
            f"StateSaveLocation={self.directory}/state",
            f"SlurmdSpoolDir={self.directory}/spool-%n",
            f"SlurmctldPidFile={self.directory}/slurmctld.pid",
            f"SlurmdPidFile={self.directory}/%n.pid",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "MpiDefault=none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core_Memory",
            "SlurmdParameters=config_overrides",
            f"SlurmdTimeout={NODE_SILENT_S}",
            "MessageTimeout=2",
            "TCPTimeout=1",
            "SchedulerParameters=sched_min_interval=100000,batch_sched_delay=0,sched_interval=2,bf_interval=2",
            "PartitionName=all Nodes=ALL Default=YES",
        ]
        for node, port in zip(NODES, ports, strict=True):
            place = f"NodeHostname=localhost NodeAddr=127.0.0.1 Port={port}"
            lines.append(f"NodeName={node} {place} CPUs=2 RealMemory=512")
        self.configuration.write_text("\n".join(lines) + "\n")
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (self.directory / name).mkdir()
        own = {name: f"{self.directory}/munge.{name}" for name in ("key", "pid", "seed", "log")}
        files = [f"--{name}-file={file}" for name, file in own.items()]
        self.daemon("munged", "munged", "--foreground", *files, f"--socket={self.directory}/munge.socket")
        until("munged has no socket", (self.directory / "munge.socket").exists)
        self.daemon("slurmctld", "slurmctld", "-D")
        for node in NODES:
            self.daemon(node, "slurmd", "-D", "-N", node)
        until("nodes are not idle", lambda: self.states() == {node: "idle" for node in NODES})

    def daemon(self, name: str, *command: str) -> None:
        with (self.directory / f"{name}.log").open("w") as log:
            self.daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def environment(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.configuration)}

    def call(self, *command: str | Path) -> str:
        return output(*command, env=self.environment())

    def states(self) -> dict[str, str]:
        command = ["sinfo", "-h", "-N", "-o", "%N %t"]
        ran = subprocess.run(
            command, capture_output=True, text=True, env=self.environment(), timeout=LONGEST_S
        )
        return dict(line.split() for line in ran.stdout.splitlines())

    def processes(self) -> Iterator[tuple[int, int, str, set[bytes]]]:
        """Process, parent, command and environment of all that is of this cluster."""
        ours = f"SLURM_CONF={self.configuration}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environment = set((entry / "environ").read_bytes().split(b"\0"))
                if ours in environment:
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    yield int(entry.name), parent, command, environment

    def freeze(self, node: str) -> list[int]:
        """Stops what runs of jobs at a node, each with the process of Slurm that looks after it."""
        frozen = []
        for process, parent, command, environment in self.processes():
            if " --shard " in command and f"SLURMD_NODENAME={node}".encode() in environment:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGSTOP)
                    os.kill(parent, signal.SIGSTOP)
                    frozen += [process, parent]
        return frozen

    def delayed(self) -> list[str]:
        """Tasks whose node has died. Slurm lets two minutes pass before it starts them elsewhere."""
        lines = self.call("squeue", "-h", "-r", "-t", "pending", "-o", "%i %r").splitlines()
        return [line.split()[0] for line in lines if line.endswith("BeginTime")]

    def stop(self) -> None:
        with contextlib.suppress(subprocess.SubprocessError, Wrong):
            self.call("scancel", "--user", str(os.getuid()))
        for daemon in self.daemons.values():
            daemon.terminate()
        for daemon in self.daemons.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(5)
            daemon.kill()
            daemon.wait()
        while left := [process for process, *_ in self.processes()]:
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

    def logs(self) -> str:
        """The end of what each daemon has said."""
        ends = {log.name: log.read_text(errors="replace").splitlines()[-8:] for log in self.directory.glob("*.log")}
        return "".join(f"    {name}: {line}\n" for name, lines in sorted(ends.items()) for line in lines)


def slurm() -> None:
    """an array job of 40 runs, a node dies in the middle, the merge says what one process says"""
    for tool in ("slurmctld", "slurmd", "munged", "sbatch"):
        expect(shutil.which(tool) is not None, f"no {tool}: scripts/setup.sh installs it")
    with tempfile.TemporaryDirectory(prefix="srd-slurm-") as name:
        directory = Path(name)
        directory.chmod(0o755)  # munged insists
        cluster = Slurm(directory)
        try:
            cluster.start()
            sweep_on(cluster, directory)
        except Wrong as wrong:
            raise Wrong(f"{wrong}\n{cluster.logs()}") from wrong
        finally:
            cluster.stop()


def sweep_on(cluster: Slurm, directory: Path) -> None:
    (directory / "busy.toml").write_text(SCENARIO)
    sweep = directory / "sweep.toml"
    sweep.write_text(SWEEP)
    results = directory / "with a blank"
    run = [layout.SRD, "sim", "sweep", sweep]
    emitted = output(*run, "--results", results, "--emit", "slurm", "--shards", str(RUNS))
    job_file = directory / "job.sh"
    job_file.write_text(emitted)
    # As the file says to.
    said = [line[4:] for line in emitted.splitlines() if line.startswith(("#   job=", "#   sbatch "))]
    expect(len(said) == 2, f"the file does not say how to submit it:\n{emitted}")
    cluster.call("sh", "-ec", "\n".join(said).replace("THIS-FILE", f"'{job_file}'"))

    until("no result", lambda: list(results.glob("*.json")))
    killed = until("nothing runs on a node", lambda: cluster.freeze(NODES[1]))
    # As a cut of its power would.
    cluster.daemons[NODES[1]].kill()
    for process in killed:
        os.kill(process, signal.SIGKILL)
    done, hit = len(list(results.glob("*.json"))), len(killed) // 2
    expect(done < RUNS, f"all runs were done when the node ended, {hit} of them there")

    merged, again = results / "tables.markdown", set()

    def is_merged() -> bool:
        for task in cluster.delayed():
            cluster.call("scontrol", "update", f"JobId={task}", "StartTime=now")
            again.add(task)
        time.sleep(0.5)
        return merged.exists()

    until("no merge", is_merged)
    expect(again, "Slurm has taken no run up again")
    expect(cluster.states()[NODES[1]].startswith("down"), f"the node has not ended: {cluster.states()}")
    logs = "".join(log.read_text() for log in results.glob("shard-*.log"))
    made = sum(int(count) for count in re.findall(r"^srd: shard .* (\d+) made, 0 left$", logs, re.MULTILINE))
    expect(RUNS - hit <= made <= RUNS, f"{made} runs were made for {RUNS}:\n{logs}")
    expect(merged.read_text() == output(*run), "the merge differs from one process's tables")


CASES = [slurm]


if __name__ == "__main__":
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))  # so that Slurm ends, too
    sys.exit(cases.main(__doc__, CASES))
