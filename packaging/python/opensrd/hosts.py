"""Hosts for tests of EFA programs, with faults by seed.

    with Hosts(2, loss=0.02, seed=7) as hosts:
        server = hosts[0].popen(["fi_pingpong", "-p", "efa", "-e", "rdm"])
        hosts[0].wait_for_port(47592)
        hosts[1].run(["fi_pingpong", "-p", "efa", "-e", "rdm", hosts[0].address])
        assert server.wait() == 0

Hosts are those of a lab (`srd lab`: network namespaces joined by a fabric) where that can be, else addresses of this machine.
Loss and dead paths are injected where SRD sends (`SRD_FAULT`), the same in both.
"""

import contextlib
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from opensrd import NotUsable, command, environment

MOST = 120
"""Hosts at once: beyond that a machine has other troubles."""

PATHS = 64
"""SRD's paths to each peer, if SRD_PATHS does not say otherwise."""

KINDS = ("lab", "addresses")

_numbers = itertools.count()


class Failed(AssertionError):
    """A program of a host did not do what was expected of it."""


class _Lab:
    """Hosts are namespaces of a lab; a host's programs are started in its namespace."""

    kind = "lab"
    NAME = re.compile(r"efa(\d+)x\d+")

    def __init__(self, count: int):
        self.name = f"efa{os.getpid()}x{next(_numbers)}"
        self._holder, self._enter = None, []
        try:
            self._enter = self._prefix()
            self._sweep()
            leaf = -(-count // 2)
            # Queues that hold a burst: without faults a test shall see none.
            self.srd("up", "--leaves", "2", "--spines", "4", "--hosts-per-leaf", str(leaf), "--host-mbps", "10000", "--uplink-mbps", "10000", "--buffer-bytes", "4000000")
            hosts = json.loads(self.srd("status", "--json"))["hosts"]
            # That a lab can be built does not mean that programs can be started in it: in a chroot they cannot.
            self.srd("exec", "host0", "--", "true")
        except BaseException:
            with contextlib.suppress(NotUsable):
                self.close()
            raise
        # By turns from the two leaves, so that two hosts have the spines between them.
        order = [hosts[half * leaf + position] for position in range(leaf) for half in range(2)][:count]
        self.addresses = [host["fabric_address"] for host in order]
        self.names = [host["name"] for host in order]
        self.description = "network namespaces (srd lab)" + (", of a user namespace" if self._holder else "")

    def _prefix(self) -> "list[str]":
        """What comes before `srd lab`: nothing for root; for others the way into a user namespace, in which they are."""
        if os.geteuid() == 0:
            return []
        # ip(8) and srd keep what they need below /run. When this process ends, in whatever way, `cat` does, and all is gone.
        script = "mount -t tmpfs tmpfs /run && echo ready && exec cat"
        try:
            self._holder = subprocess.Popen(
                ["unshare", "--user", "--map-root-user", "--net", "--mount", "sh", "-c", script],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
        except OSError as error:
            raise NotUsable(f"unshare: {error.strerror} (Debian: apt-get install util-linux)") from error
        if self._holder.stdout.readline() != "ready\n":
            raise NotUsable(f"no user namespaces: {self._holder.stderr.read().strip()}")
        return ["nsenter", "--target", str(self._holder.pid), "--user", "--net", "--mount", "--preserve-credentials"]

    def _sweep(self) -> None:
        """Removes labs of processes that were killed."""
        for lab in Path("/run/srd-lab").glob("efa*"):
            whose = self.NAME.fullmatch(lab.name)
            if whose and not _lives(whose[1]):
                with contextlib.suppress(NotUsable):
                    self.srd("down", lab=lab.name)

    def srd(self, action: str, *arguments: str, lab: "str | None" = None) -> str:
        line = [*self._enter, str(command()), "lab", action, "--lab", lab or self.name, *arguments]
        answer = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if answer.returncode:
            raise NotUsable(f"srd lab {action}: {answer.stderr.strip()}")
        return answer.stdout

    def line(self, host: int, arguments: "list[str]", directory: str) -> "list[str]":
        inside = [str(command()), "lab", "exec", "--lab", self.name, self.names[host], "--", *arguments]
        # Who enters another mount namespace stands at its root.
        return [*self._enter, *(["env", "-C", directory] if self._enter else []), *inside]

    def fault(self, *arguments: str) -> None:
        self.srd("fault", *arguments)

    def heal(self) -> None:
        self.srd("heal")

    def close(self) -> None:
        try:
            self.srd("down")
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._holder:
            for pipe in (self._holder.stdin, self._holder.stdout, self._holder.stderr):
                pipe.close()
            self._holder.wait()
            self._holder = None


class _Addresses:
    """Hosts are addresses of this machine's loopback interface."""

    kind = "addresses"

    def __init__(self, count: int):
        # Tests that run side by side (pytest-xdist) have others.
        network = f"127.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
        self.addresses = [f"{network}.{1 + host}" for host in range(count)]
        self.description = f"addresses of this machine ({network}.x)"
        self.names = [f"host{host}" for host in range(count)]

    def line(self, host: int, arguments: "list[str]", directory: str) -> "list[str]":
        # A program that is not there has exit status 127, as in a lab.
        return ["sh", "-c", 'exec "$@"', "sh", *arguments]

    def fault(self, *arguments: str) -> None:
        raise NotUsable("faults of links need a lab; hosts are addresses of this machine here (loss and dead_path work)")

    heal = fault

    def close(self) -> None:
        pass


def _found(count: int, kind: "str | None"):
    """The hosts, of a kind that works here, and why a better one does not."""
    if kind not in (None, *KINDS):
        raise NotUsable(f"kind={kind!r}: it is one of {', '.join(KINDS)}")
    if kind == "addresses":
        return _Addresses(count), None
    try:
        return _Lab(count), None
    except NotUsable as error:
        if kind == "lab":
            raise
        return _Addresses(count), str(error)


class Process:
    """A program of a host that runs beside the test; it is ended with the hosts."""

    def __init__(self, host: "Host", arguments: "list[str]", line: "list[str]", log: Path, **options):
        self.host, self.arguments, self._log = host, arguments, log
        with log.open("wb") as output:
            self._popen = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, **options)

    def poll(self) -> "int | None":
        """The exit status; None while it runs."""
        return self._popen.poll()

    def output(self) -> str:
        """What it has written so far, to both outputs."""
        return self._log.read_text(errors="replace")

    def wait(self, timeout: float = 60) -> int:
        """The exit status, once it has ended."""
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.host.name}: {shlex.join(self.arguments)}: still running after {timeout} s\n{_tail(self.output())}") from None

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Sends a signal to it and to what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, number)

    def end(self) -> None:
        """Asks it to end; who does not within 5 s is killed."""
        if self.poll() is None:
            self.kill(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(5)
        self.kill()
        self._popen.wait()


class Host:
    """A host: an address, programs, counters."""

    def __init__(self, hosts: "Hosts", index: int):
        self._hosts, self._index = hosts, index
        self.name = hosts.ground.names[index]
        self.address = hosts.ground.addresses[index]
        self.directory = hosts.directory / self.name
        self.directory.mkdir()
        self.processes = []

    def __repr__(self) -> str:
        return f"<{self.name} {self.address}>"

    def environment(self, env: "dict[str, str] | None" = None) -> "dict[str, str]":
        """What its programs have in their environment, with `env` on top."""
        return {**self._hosts.environment, **self._own(), **(env or {})}

    def _own(self) -> "dict[str, str]":
        own = {"SRD_ADDR": self.address, "SRD_STATS": f"{self.directory}/srd.%p.json"}
        if faults := self._hosts.faults(self._index):
            own["SRD_FAULT"] = faults
        return own

    def _line(self, arguments, cwd) -> "list[str]":
        if isinstance(arguments, str):
            arguments = shlex.split(arguments)
        if not arguments:
            raise Failed(f"{self.name}: which program?")
        return [str(argument) for argument in arguments], str(cwd or Path.cwd())

    def run(self, arguments, *, timeout: float = 60, check: bool = True, env=None, cwd=None, input: "str | None" = None) -> subprocess.CompletedProcess:
        """Runs a program to its end. One that fails, or takes longer than `timeout` seconds, fails the test, with its output."""
        arguments, cwd = self._line(arguments, cwd)
        with subprocess.Popen(
            self._hosts.ground.line(self._index, arguments, cwd), env=self.environment(env), cwd=cwd, text=True, errors="replace",
            stdin=subprocess.DEVNULL if input is None else subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        ) as popen:
            try:
                stdout, stderr = popen.communicate(input, timeout)
            except BaseException as error:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(popen.pid, signal.SIGKILL)
                if isinstance(error, subprocess.TimeoutExpired):
                    stdout, stderr = popen.communicate()
                    raise Failed(f"{self.name}: {shlex.join(arguments)}: still running after {timeout} s\n{_tail(stdout + stderr)}") from None
                raise
        if check and popen.returncode:
            raise Failed(f"{self.name}: {shlex.join(arguments)}: exit status {popen.returncode}\n{_tail(stdout + stderr)}")
        return subprocess.CompletedProcess(arguments, popen.returncode, stdout, stderr)

    def popen(self, arguments, *, env=None, cwd=None) -> Process:
        """Starts a program beside the test."""
        arguments, cwd = self._line(arguments, cwd)
        log = self.directory / f"output.{len(self.processes)}"
        process = Process(self, arguments, self._hosts.ground.line(self._index, arguments, cwd), log, env=self.environment(env), cwd=cwd)
        self.processes.append(process)
        return process

    def wait_for_port(self, port: int, timeout: float = 30) -> None:
        """Waits until a program of this host listens on a TCP port. Programs that have ended meanwhile fail the test."""
        deadline = time.monotonic() + timeout
        while True:
            ended = [process for process in self.processes if process.poll() not in (None, 0)]
            # proc(5), /proc/net/tcp: the second column is ADDRESS:PORT in hexadecimal, the fourth the state; 0A is LISTEN.
            rows = [row.split() for row in self.run(["cat", "/proc/net/tcp", "/proc/net/tcp6"], check=False).stdout.splitlines()]
            if any(row[3] == "0A" and row[1].endswith(f":{port:04X}") for row in rows if len(row) > 3):
                return
            if ended or time.monotonic() > deadline:
                what = "\n".join(f"{shlex.join(process.arguments)}: exit status {process.poll()}\n{_tail(process.output())}" for process in ended)
                raise Failed(f"{self.name}: nobody listens on TCP port {port}{f' after {timeout} s' if not ended else ''}\n{what}".rstrip())
            time.sleep(0.05)

    def counters(self) -> dict:
        """Counters of its processes, added up, as in SRD_STATS: `counters()["device"]["tx_pkts"]`. Those of a process are as
        of its end, or of the last second while it runs."""
        total = {section: {} for section in ("device", "transport", "transmit", "receive")}
        for file in self.directory.glob("srd.*.json"):
            document = json.loads(file.read_text())
            _add(total, {section: document.get(section, {}) for section in total})
        return total


class Hosts(list):
    """So many hosts. `seed` decides which packets are lost, and which path is dead: the same ones in each run."""

    def __init__(self, count: int = 2, *, loss: float = 0.0, dead_path: bool = False, seed: int = 1, over: str = "efa", kind: "str | None" = None):
        super().__init__()
        if not (isinstance(count, int) and 1 <= count <= MOST):
            raise NotUsable(f"{count!r} hosts: it is a number from 1 to {MOST}")
        if not (isinstance(loss, (int, float)) and 0 <= loss < 1):
            raise NotUsable(f"loss={loss!r}: it is a share, from 0 to less than 1 (0.02 is 2 %)")
        if not isinstance(dead_path, bool):
            raise NotUsable(f"dead_path={dead_path!r}: it is True or False; the seed says which path it is")
        if not (isinstance(seed, int) and 0 <= seed < 1 << 32):
            raise NotUsable(f"seed={seed!r}: it is a whole number from 0 to 4294967295")
        self.loss, self.dead_path, self.seed, self.over = loss, dead_path, seed, over
        # Messages between hosts go by the network, although they are on one machine.
        self.environment = {**environment(over), "SRD_SHM": "off"}
        # `srd` is theirs, too, where its environment is not activated.
        self.environment["PATH"] = f"{command().parent}:{self.environment.get('PATH', os.defpath)}"
        self.ground, self.why_not_lab = _found(count, kind)
        self.directory = _directory()
        self.extend(Host(self, index) for index in range(count))

    def faults(self, host: int) -> str:
        """The value of SRD_FAULT in that host."""
        what = [f"loss={self.loss}"] if self.loss else []
        what += [f"blackhole={self.seed % PATHS}"] if self.dead_path else []
        # Hosts shall not lose the same packets.
        return ",".join([*what, f"seed={self.seed * MOST + host}"]) if what else ""

    def fault(self, *arguments) -> None:
        """A fault of the lab's links or hosts: `fault("down", "leaf0-spine1")`, as `srd lab fault` takes it."""
        self.ground.fault(*map(str, arguments))

    def heal(self) -> None:
        """Ends the lab's faults."""
        self.ground.heal()

    def describe(self) -> str:
        """In a line, for reports."""
        what = [f"{len(self)} hosts: {self.ground.description}", f"seed {self.seed}"]
        what += [f"{100 * self.loss:g} % of packets lost"] if self.loss else []
        what += [f"path {self.seed % PATHS} of {PATHS} dead"] if self.dead_path else []
        return ", ".join(what)

    def close(self) -> None:
        """Ends their programs, and removes them."""
        try:
            for host in self:
                for process in host.processes:
                    process.end()
            self.ground.close()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> "Hosts":
        return self

    def __exit__(self, *_) -> None:
        self.close()


def _lives(pid: str) -> bool:
    return Path("/proc", pid).exists()


def _directory() -> Path:
    """A new one; those of processes that were killed go."""
    for old in Path(tempfile.gettempdir()).glob("efa-hosts-*-*"):
        if not _lives(old.name.split("-")[2]):
            shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"efa-hosts-{os.getpid()}-"))


def _add(total: dict, more: dict) -> None:
    for name, value in more.items():
        if isinstance(value, dict):
            _add(total.setdefault(name, {}), value)
        elif isinstance(value, int):
            total[name] = total.get(name, 0) + value


def _tail(text: str, lines: int = 30) -> str:
    return "\n".join(text.rstrip().splitlines()[-lines:])
