#!/usr/bin/env python3
"""A sweep on a cluster (docs/CLUSTER.md): Debian's Slurm on this host, with nodes that are processes, of which one dies in the middle.

    tests/cluster/run.py            everything
    tests/cluster/run.py slurm      these only
    tests/cluster/run.py --list

The last line says `N passed, N failed`. Slurm keeps all it has in a directory of its own, and ends with the test.
"""

import argparse
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

from harness import layout

os.environ["PATH"] += ":/usr/sbin"

NODES = ["node1", "node2", "node3"]
NODE_SILENT_S = 4
"""After so long without an answer Slurm gives a node up."""
LONGEST_S = 150
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


class Wrong(Exception):
    """What is not as it should be."""


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Wrong(what)


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
    expect(ran.returncode == 0, f"{' '.join(map(str, command))} ends with {ran.returncode}: {ran.stdout}{ran.stderr}")
    return ran.stdout


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def processes() -> Iterator[tuple[int, int, str, bytes]]:
    """Process, parent, command and environment of all that can be seen."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            yield int(entry.name), parent, command, (entry / "environ").read_bytes()


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
            lines.append(f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=512")
        self.configuration.write_text("\n".join(lines) + "\n")
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (self.directory / name).mkdir()
        own = [f"--{name}={self.directory}/munge.{name.split('-')[0]}" for name in ("key-file", "pid-file", "seed-file", "log-file", "socket")]
        self.daemon("munged", "munged", "--foreground", *own)
        until("munged has no socket", (self.directory / "munge.socket").exists)
        self.daemon("slurmctld", "slurmctld", "-D")
        for node in NODES:
            self.daemon(node, "slurmd", "-D", "-N", node)
        until("nodes are not idle", lambda: self.states() == {node: "idle" for node in NODES})

    def daemon(self, name: str, *command: str) -> None:
        log = (self.directory / f"{name}.log").open("w")
        self.daemons[name] = subprocess.Popen(
            command, env=self.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )

    def environment(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.configuration)}

    def call(self, *command: str | Path) -> str:
        return output(*command, env=self.environment())

    def states(self) -> dict[str, str]:
        ran = subprocess.run(
            ["sinfo", "-h", "-N", "-o", "%N %t"], capture_output=True, text=True, env=self.environment(), timeout=LONGEST_S
        )
        return dict(line.split() for line in ran.stdout.splitlines())

    def of_node(self, node: str) -> list[int]:
        """What runs of jobs at a node, each behind the process that looks after it."""
        name, configuration = f"SLURMD_NODENAME={node}".encode(), f"SLURM_CONF={self.configuration}".encode()
        found = []
        for process, parent, command, environment in processes():
            if " --shard " in command and {name, configuration} <= set(environment.split(b"\0")):
                found += [parent, process]
        return found

    def delayed(self) -> list[str]:
        """Tasks whose node has died; Slurm lets two minutes pass before it starts them elsewhere."""
        lines = self.call("squeue", "-h", "-r", "-t", "pending", "-o", "%i %r").splitlines()
        return [line.split()[0] for line in lines if line.endswith("BeginTime")]

    def kill(self, node: str) -> int:
        """Ends all that there is of a node, as a cut of its power would. How many jobs were running there."""
        self.daemons[node].kill()
        running = self.of_node(node)
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return len(running) // 2

    def stop(self) -> None:
        with contextlib.suppress(subprocess.SubprocessError, Wrong):
            self.call("scancel", "--user", str(os.getuid()))
        ours = f"SLURM_CONF={self.configuration}".encode()
        for daemon in self.daemons.values():
            daemon.terminate()
        for daemon in self.daemons.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(5)
            daemon.kill()
            daemon.wait()
        for process, _, _, environment in processes():
            if ours in environment.split(b"\0"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

    def logs(self) -> str:
        return "".join(
            f"    {log.name}: {line}\n" for log in sorted(self.directory.glob("*.log")) for line in log.read_text(errors="replace").splitlines()[-8:]
        )


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
    emitted = output(layout.SRD, "sim", "sweep", sweep, "--results", results, "--emit", "slurm", "--shards", str(RUNS))
    job_file = directory / "job.sh"
    job_file.write_text(emitted)
    # As the file says to.
    said = [line.removeprefix("#   ") for line in emitted.splitlines() if line.startswith(("#   job=", "#   sbatch "))]
    expect(len(said) == 2, f"the file does not say how to submit it:\n{emitted}")
    cluster.call("sh", "-ec", "\n".join(said).replace("THIS-FILE", f"'{job_file}'"))

    until("no result", lambda: list(results.glob("*.json")))
    until("nothing runs on a node", lambda: cluster.of_node(NODES[1]))
    hit = cluster.kill(NODES[1])
    done = len(list(results.glob("*.json")))
    expect(hit > 0 and done < RUNS, f"a node had {hit} runs when it ended, and {done} of {RUNS} were done")
    cut_short = until("Slurm has taken no run up again", lambda: cluster.delayed())
    for task in cut_short:
        cluster.call("scontrol", "update", f"JobId={task}", "StartTime=now")
    merged = results / "tables.md"
    until("no merge", merged.exists)
    expect(cluster.states()[NODES[1]].startswith("down"), f"the node has not ended: {cluster.states()}")
    logs = "".join(log.read_text() for log in results.glob("shard-*.log"))
    made = sum(int(count) for count in re.findall(r"^srd: shard .* (\d+) made, 0 left$", logs, re.MULTILINE))
    expect(RUNS - hit <= made <= RUNS, f"{made} runs were made for {RUNS}:\n{logs}")
    expect(merged.read_text() == output(layout.SRD, "sim", "sweep", sweep), "the merge differs from one process's tables")


CASES = [slurm]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument("names", nargs="*", help="cases to run (default: all)")
    options = parser.parse_args()
    if options.list:
        for case in CASES:
            print(f"{case.__name__:12} {case.__doc__}")
        return 0
    if unknown := set(options.names) - {case.__name__ for case in CASES}:
        parser.error(f"no such case: {', '.join(sorted(unknown))} (--list shows them)")
    passed = failed = 0
    for case in CASES:
        if options.names and case.__name__ not in options.names:
            continue
        print(f"  {case.__name__:12}", end="", flush=True)
        began = time.monotonic()
        try:
            case()
        except (Wrong, subprocess.SubprocessError, OSError) as wrong:
            print(f"  FAILED  {wrong}\n    again: tests/cluster/run.py {case.__name__}")
            failed += 1
            continue
        print(f"  ok  {time.monotonic() - began:5.1f} s")
        passed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
