#!/usr/bin/env python3
"""A sweep on a cluster (docs/CLUSTER.md): Debian's Slurm on this host, with nodes that are processes; hosts behind ssh, each with processes, a
name and a home directory of its own; the command of Kubernetes' pods. A node and hosts die in the middle.

    tests/cluster/run.py            everything
    tests/cluster/run.py slurm      these only
    tests/cluster/run.py --list

The last line says `N passed, N failed`. Slurm and ssh keep all they have in directories of their own, and end with the test.
"""

import contextlib
import json
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
from harness.cases import Skipped, Wrong, expect

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
size = "{size}"
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
SHORT = "10MB"
"""Flows of runs that need not take long."""
HOSTS = ["host1", "host2", "host3", "host4"]


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


def write_sweep(directory: Path, name: str, size: str) -> Path:
    """A sweep of `RUNS` runs whose flows have that size."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "busy.toml").write_text(SCENARIO.format(size=size))
    (directory / name).write_text(SWEEP)
    return directory / name


def expect_tools(*tools: str) -> None:
    for tool in tools:
        expect(shutil.which(tool) is not None, f"no {tool}: scripts/setup.sh installs it")


def slurm() -> None:
    """an array job of 40 runs, a node dies in the middle, the merge says what one process says"""
    expect_tools("slurmctld", "slurmd", "munged", "sbatch")
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
    sweep = write_sweep(directory, "sweep.toml", "100MB")
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


def chapter(heading: str) -> str:
    """Of docs/CLUSTER.md."""
    document = (layout.ROOT / "docs" / "CLUSTER.md").read_text()
    return document.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def blocks(heading: str, language: str) -> list[str]:
    """Those of a chapter."""
    return re.findall(rf"^```{language}.*\n((?:.*\n)*?)```$", chapter(heading), re.MULTILINE)


def instead(text: str, others: dict[str, Path]) -> str:
    """A recipe with what is here in the place of what it names."""
    for word in others:
        expect(word in text, f"docs/CLUSTER.md does not name {word} where it is looked for:\n{text}")
    return re.sub("|".join(map(re.escape, others)), lambda found: str(others[found[0]]), text)


class Hosts:
    """Hosts that ssh reaches by their names, each a namespace of processes in which sshd is the first: all end with it, as with a cut of power."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.alive: dict[str, subprocess.Popen] = {}
        self.tools = directory / "bin"

    def home(self, host: str) -> Path:
        return self.directory / host

    def start(self) -> None:
        self.tools.mkdir()
        (self.tools / "srd").symlink_to(layout.SRD)
        ssh = self.tools / "ssh"
        ssh.write_text(f"#!/bin/sh\nexec {shutil.which('ssh')} -F '{self.directory}/config' \"$@\"\n")
        ssh.chmod(0o755)
        for key in ("host", "user"):
            output("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.directory / key)
        root = pwd.getpwuid(0)
        with (self.directory / "config").open("w") as config:
            for host, port in zip(HOSTS, free_ports(len(HOSTS)), strict=True):
                config.write(
                    f"Host {host}\n  HostName 127.0.0.1\n  Port {port}\n  User {root.pw_name}\n"
                    f"  IdentityFile {self.directory}/user\n  IdentitiesOnly yes\n"
                    f"  UserKnownHostsFile {self.directory}/known\n  StrictHostKeyChecking accept-new\n"
                )
                self.host(host, port, root.pw_dir)
        for host in HOSTS:
            until(f"{host} cannot be reached", lambda host=host: self.call(f"ssh -n {host} true")[0] == 0)

    def host(self, name: str, port: int, home: str) -> None:
        self.home(name).mkdir()
        configuration = self.directory / f"{name}.conf"
        lines = [
            f"Port {port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.directory}/host",
            f"AuthorizedKeysFile {self.directory}/user.pub",
            "PasswordAuthentication no",
            "UsePAM no",
            "StrictModes no",
            "PidFile none",
            f"SetEnv PATH={self.tools}:{os.environ['PATH']}",
        ]
        configuration.write_text("\n".join(lines) + "\n")
        script = (
            f"hostname {name}; mount -t tmpfs none /run; mkdir /run/sshd; "
            f"mount --bind '{self.home(name)}' {home}; exec {shutil.which('sshd')} -D -e -f '{configuration}'"
        )
        apart = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        with (self.directory / f"{name}.log").open("w") as log:
            self.alive[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *apart, "sh", "-ec", script],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def begin(self, script: str) -> subprocess.Popen:
        """Starts a script of the person who has the hosts."""
        here = self.directory / "here"
        here.mkdir(exist_ok=True)
        environment = {**os.environ, "PATH": f"{self.tools}:{os.environ['PATH']}", "HOME": str(here)}
        return subprocess.Popen(
            ["sh", "-c", script],
            cwd=here,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def end(self, script: subprocess.Popen) -> tuple[int, str]:
        """What it comes to, and what it has said."""
        try:
            said, _ = script.communicate(timeout=LONGEST_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(script.pid, signal.SIGKILL)
        return script.returncode, said

    def call(self, script: str) -> tuple[int, str]:
        return self.end(self.begin(script))

    def kill(self, host: str) -> None:
        daemon = self.alive.pop(host)
        daemon.kill()
        daemon.wait()

    def stop(self) -> None:
        for host in list(self.alive):
            self.kill(host)


def ssh() -> None:
    """both recipes for hosts that ssh reaches, with a directory that all see and without, a host dies in the middle"""
    expect_tools("ssh", "sshd", "ssh-keygen", "parallel", "rsync", "unshare")
    if os.getuid() != 0:
        raise Skipped("hosts of its own take root")
    with tempfile.TemporaryDirectory(prefix="srd-ssh-") as name:
        directory = Path(name)
        hosts = Hosts(directory)
        try:
            hosts.start()
            common, apart = blocks("ssh", "sh")
            sweep = write_sweep(directory / "shared", "ablations.toml", SHORT)
            tables = output(layout.SRD, "sim", "sweep", sweep)
            with_a_common_directory(hosts, directory, common, tables)
            with_directories_apart(hosts, directory, apart, tables)
        finally:
            hosts.stop()


def with_a_common_directory(hosts: Hosts, directory: Path, said: str, tables: str) -> None:
    sweep, results = directory / "shared" / "ablations.toml", directory / "shared" / "results"
    merged = directory / "merged"
    script = instead(
        said, {"sweeps/ablations.toml": sweep, "/shared/ablations": results, "docs/ABLATIONS.md": merged}
    )
    running = hosts.begin(script)

    def shards_of(host: str) -> list[Path]:
        return [lock for lock in results.glob("*.lock") if lock.read_text().startswith(f"{host}, ")]

    dead = HOSTS[1]
    until(f"nothing runs on {dead}", lambda: shards_of(dead) or running.poll() is not None)
    hosts.kill(dead)
    hit = shards_of(dead)
    code, told = hosts.end(running)
    expect(hit, f"{dead} had nothing to do: {told}")
    expect(code == 0, f"{script}\nends with {code}: {told}")
    expect(not set(hit) & set(shards_of(dead)), f"nobody has taken up {hit}")
    expect(merged.read_text() == tables, "the merge differs from one process's tables")


def with_directories_apart(hosts: Hosts, directory: Path, said: str, tables: str) -> None:
    """Of the hosts, one is dead from the beginning, and one dies."""
    here = directory / "here"
    (here / "docs").mkdir()
    for place in (here, *(hosts.home(host) / "opensrd" for host in HOSTS)):
        write_sweep(place / "sweeps", "ablations.toml", SHORT)
    running = hosts.begin(said)
    dying = HOSTS[2]
    theirs = hosts.home(dying) / "opensrd" / "results"
    until(f"no result on {dying}", lambda: list(theirs.glob("*.json")) or running.poll() is not None)
    hosts.kill(dying)
    code, told = hosts.end(running)
    lost = {file.name for file in theirs.glob("*.json")}
    of_shard = RUNS // len(HOSTS)
    expect(len(lost) < of_shard, f"all runs were done when {dying} ended: {told}")
    expect(code == 1 and f"{2 * of_shard} missing: " in told, f"{said}\nends with {code}: {told}")
    gathered = {file.name for file in (here / "results").glob("*.json")}
    expect(len(gathered) == RUNS - 2 * of_shard and not gathered & lost, f"gathered are {gathered}")
    again = re.search(r"made by: (.*)", told)
    expect(again is not None, f"the merge does not say what makes the rest: {told}")
    code, told = hosts.call(f"{again[1]} && {said.splitlines()[-1]}")
    expect(code == 0, f"{again[1]}\nends with {code}: {told}")
    merged = (here / "docs" / "ABLATIONS.md").read_text()
    expect(merged == tables, "the merge differs from one process's tables")


def kubernetes() -> None:
    """the Job's manifest holds together, and its command does each index's shard"""
    [manifest] = blocks("Kubernetes", "yaml")
    # Debian's, whatever Python this is.
    reads = "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)"
    job = json.loads(output("/usr/bin/python3", "-c", reads, input=manifest))
    expect((job["apiVersion"], job["kind"]) == ("batch/v1", "Job"), f"it is no Job: {manifest}")
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    count = spec["completions"]
    expect(spec["completionMode"] == "Indexed" and pod["restartPolicy"] == "OnFailure", manifest)
    expect(1 <= spec["parallelism"] <= count <= RUNS, f"{count} pods for {RUNS} runs")
    [container] = pod["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    expect(set(mounts) == {volume["name"] for volume in pod["volumes"]}, f"volumes are not those mounted: {manifest}")
    [shared] = mounts.values()
    with tempfile.TemporaryDirectory(prefix="srd-pods-") as name:
        directory = Path(name)
        sweep = write_sweep(directory / "sweeps", "ablations.toml", "2MB")
        command = [instead(word, {shared: directory}) if shared in word else word for word in container["command"] + container["args"]]
        expect(f"/{count}" in command[-1], f"{count} pods have shards of another number: {command[-1]}")
        path = f"{layout.SRD.parent}:{os.environ['PATH']}"
        for index in range(count):
            output(*command, env={"PATH": path, "JOB_COMPLETION_INDEX": str(index)})
        [merge] = re.findall("`(srd sim sweep .*? --merge .*?)`", chapter("Kubernetes"))
        merged = output("sh", "-ec", merge.replace(shared, str(directory)), env={"PATH": path})
        expect(merged == output(layout.SRD, "sim", "sweep", sweep), "the merge differs from one process's tables")


CASES = [slurm, ssh, kubernetes]


if __name__ == "__main__":
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))  # so that Slurm ends, too
    sys.exit(cases.main(__doc__, CASES))
