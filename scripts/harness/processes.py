"""Runs commands with a time limit and leaves none of their children behind."""

import os
import shlex
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Command:
    argv: list[str]
    environment: dict[str, str] = field(default_factory=dict)

    def line(self) -> str:
        """The command as one line for a shell."""
        inherited = os.environ.get("PATH", "")
        variables = []
        for name, value in sorted(self.environment.items()):
            if name == "PATH" and inherited and value.endswith(inherited):
                variables.append(f'PATH={shlex.quote(value.removesuffix(inherited))}"$PATH"')
            else:
                variables.append(f"{name}={shlex.quote(value)}")
        return " ".join(["env", *variables, shlex.join(self.argv)] if variables else [shlex.join(self.argv)])

    def full_environment(self) -> dict[str, str]:
        return {**os.environ, **self.environment}

    def start(self, output) -> subprocess.Popen:
        # A session of its own is what end_session() goes by: MPI launchers give each rank a process group of its own,
        # but the session stays.
        return subprocess.Popen(
            self.argv,
            env=self.full_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


@dataclass
class Outcome:
    status: int | None
    """Exit status; None when the time limit ended it."""
    output: str
    seconds: float


def run(
    command: Command, timeout_s: float, log: Path, server: Command | None = None, server_port: int = 0
) -> Outcome:
    """Runs `command`; with a `server`, starts that first and waits until it listens on `server_port`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    deadline = started + timeout_s
    running: list[subprocess.Popen] = []
    with log.open("w") as output:
        try:
            if server:
                running.append(server.start(output))
                _wait_until_listening(server_port, running[0], deadline)
            client = command.start(output)
            running.append(client)
            try:
                status = client.wait(max(0.1, deadline - time.monotonic()))
                if server and status == 0:
                    status = running[0].wait(max(0.1, min(10, deadline - time.monotonic())))
            except subprocess.TimeoutExpired:
                status = None
        finally:
            for process in running:
                end_session(process)
    return Outcome(status, log.read_text(errors="replace"), time.monotonic() - started)


def end_session(process: subprocess.Popen) -> None:
    """Ends what is left of the session that `process` leads: first kindly, so that a launcher can tidy up."""
    for sign, patience_s in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0)):
        members = session_members(process.pid)
        if not members:
            break
        for pid in members:
            try:
                os.kill(pid, sign)
            except ProcessLookupError:
                pass
        limit = time.monotonic() + patience_s
        while session_members(process.pid) and time.monotonic() < limit:
            process.poll()
            time.sleep(0.02)
    process.poll()


def session_members(session: int) -> list[int]:
    """Processes of a session that still run (zombies are dead already)."""
    members = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path("/proc", entry, "stat").read_text()
        except OSError:
            continue
        state, _parent, _group, its_session = stat.rpartition(")")[2].split()[:4]
        if int(its_session) == session and state != "Z":
            members.append(int(entry))
    return members


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_until_listening(port: int, process: subprocess.Popen, deadline: float) -> None:
    # Not by connecting: a server that takes one client would take the probe for it.
    wanted = f":{port:04X}"
    while time.monotonic() < deadline and process.poll() is None:
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            for row in Path(table).read_text().splitlines()[1:]:
                local, state = row.split()[1], row.split()[3]
                if local.endswith(wanted) and state == "0A":
                    return
        time.sleep(0.05)
