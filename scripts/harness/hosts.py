"""Two hosts that are network namespaces, joined by a cable (a veth pair): what MPI jobs are measured across."""

import os
import shutil
import subprocess
import time
from pathlib import Path

from . import layout

LAUNCHER = layout.HARNESS / "netns-ssh"
"""Stands in for ssh where an MPI launcher starts its daemons on a host."""
INTERFACE = "e0"
CARRIER_S = 5.0
"""The kernel may take a second to tell that a cable's two ends are up; until then libfabric does not see the interface."""


def why_impossible() -> str | None:
    if os.geteuid() != 0:
        return "needs root (it makes network namespaces)"
    if not shutil.which("ip"):
        return "ip not found; run: make setup"
    probe = f"srdprobe{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True).returncode != 0:
        return "this machine does not allow network namespaces"
    subprocess.run(["ip", "netns", "del", probe], check=True)
    return None


class HostPair:
    """Up within a `with`. Names carry a prefix of this process, so several pairs can be up at once."""

    def __init__(self, mtu: int = 1500, offloads: bool = True):
        self.mtu = mtu
        self.offloads = offloads
        self.prefix = f"srdpair{os.getpid()}"
        self.names = [f"{self.prefix}-a", f"{self.prefix}-b"]
        self.addresses = ["10.79.1.1", "10.79.1.2"]
        self._state = Path("/run") / self.prefix
        """What the launcher reads."""

    @property
    def variables(self) -> dict[str, str]:
        """What libfabric's providers find the interface by."""
        return {f"FI_{provider}_IFACE": INTERFACE for provider in ("TCP", "UDP", "SOCKETS")}

    def __enter__(self) -> "HostPair":
        a, b = self.names
        mtu = str(self.mtu)
        self._state.mkdir(parents=True, exist_ok=True)
        rows = [f"{address} {name}" for address, name in zip(self.addresses, self.names, strict=True)]
        (self._state / "hosts").write_text("\n".join(["127.0.0.1 localhost", *rows]) + "\n")
        try:
            for name in self.names:
                _ip("netns", "add", name)
            peer = ["peer", "name", INTERFACE, "netns", b, "mtu", mtu]
            _ip("link", "add", INTERFACE, "netns", a, "mtu", mtu, "type", "veth", *peer)
            for name, address in zip(self.names, self.addresses, strict=True):
                _ip("-n", name, "addr", "add", f"{address}/24", "dev", INTERFACE)
                for interface in ("lo", INTERFACE):
                    _ip("-n", name, "link", "set", interface, "up")
                if not self.offloads:
                    ethtool = ["ethtool", "-K", INTERFACE, "tso", "off", "gso", "off", "gro", "off"]
                    _run("ip", "netns", "exec", name, *ethtool)
            self._wait_for_carrier()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait_for_carrier(self) -> None:
        limit = time.monotonic() + CARRIER_S
        for name in self.names:
            while " state UP " not in _ip("-n", name, "link", "show", INTERFACE):
                if time.monotonic() > limit:
                    raise RuntimeError(f"{INTERFACE} of {name} did not come up")
                time.sleep(0.02)

    def __exit__(self, *_) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        shutil.rmtree(self._state, ignore_errors=True)


def _ip(*arguments: str) -> str:
    return _run("ip", *arguments)


def _run(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout
