"""The namespace fabric as the demo sees it: brings it up and down, fails a spine, and watches the bytes pass."""

import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness import layout

HERE = Path(__file__).resolve().parent
SCRIPT = HERE / "fabric.sh"
LAUNCHER = layout.HARNESS / "netns-ssh"
PREFIX = "srdfab"
MANAGEMENT_INTERFACE = "m0"
FABRIC_INTERFACE = "e0"


def why_impossible() -> str | None:
    check = subprocess.run([SCRIPT, "check"], capture_output=True, text=True)
    return None if check.returncode == 0 else check.stderr.strip().removeprefix("fabric: error: ")


@dataclass(frozen=True)
class Fabric:
    """A fabric that is up. Hosts are spread over the leaves: the first half is on one, the second on the other."""

    hosts: int = 4
    spines: int = 4
    host_rate: str = "200mbit"
    uplink_rate: str = "100mbit"

    def up(self) -> None:
        self.down()  # what an earlier run may have left
        options = ["--leaves", "2", "--hosts-per-leaf", str(self.hosts // 2), "--spines", str(self.spines)]
        self._call("up", *options, "--host-rate", self.host_rate, "--uplink-rate", self.uplink_rate)

    def down(self) -> None:
        self._call("down")

    def blackhole(self, spine: int) -> None:
        self._call("fault", "blackhole", str(spine))

    def heal(self) -> None:
        self._call("heal")

    def host_names(self) -> list[str]:
        return [f"{PREFIX}-h{host}" for host in range(self.hosts)]

    def tcp_retransmissions(self) -> int:
        """Segments that the hosts' kernels have sent again so far."""
        total = 0
        for host in self.host_names():
            table = subprocess.run(
                ["ip", "netns", "exec", host, "nstat", "-asz", "TcpRetransSegs"],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            total += sum(
                int(line.split()[1]) for line in table.splitlines() if line.startswith("TcpRetransSegs")
            )
        return total

    @staticmethod
    def _call(*arguments: str) -> None:
        result = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True)
        if result.returncode:
            raise RuntimeError(result.stderr.strip() or f"fabric.sh {' '.join(arguments)} failed")


@dataclass
class SpineWatch:
    """Samples the bytes that each spine has received, ten times a second, until stopped."""

    spines: int
    period_s: float = 0.1
    times: list[float] = field(default_factory=list)
    totals: list[list[int]] = field(default_factory=list)
    """One list per sample: bytes per spine since it was built."""

    def __enter__(self) -> "SpineWatch":
        # A process inside a namespace makes its counters readable from outside, without a fork per sample. In a
        # session of its own, since Ctrl-C at the terminal is for the demo, which ends the sleepers itself.
        self._sleepers = [
            subprocess.Popen(
                ["ip", "netns", "exec", f"{PREFIX}-spine{spine}", "sleep", "infinity"], start_new_session=True
            )
            for spine in range(self.spines)
        ]
        self._stop = threading.Event()
        self._wait_for_sleepers()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join()
        for sleeper in self._sleepers:
            sleeper.kill()
            sleeper.wait()

    def _wait_for_sleepers(self) -> None:
        own = Path("/proc/self/ns/net").readlink()
        limit = time.monotonic() + 5
        while any(Path(f"/proc/{sleeper.pid}/ns/net").readlink() == own for sleeper in self._sleepers):
            if time.monotonic() > limit:
                raise RuntimeError("could not enter the spines' namespaces")
            time.sleep(0.005)

    def _watch(self) -> None:
        while not self._stop.wait(self.period_s):
            self.times.append(time.monotonic())
            self.totals.append([_received_bytes(sleeper.pid) for sleeper in self._sleepers])

    def busiest(self, over_s: float = 1.0) -> int:
        """The spine that received most in the last moments."""
        recent = max(1, int(over_s / self.period_s))
        return max(
            range(self.spines),
            key=lambda spine: (
                self.totals[-1][spine] - self.totals[max(0, len(self.totals) - 1 - recent)][spine]
            ),
        )

    def bytes_per_spine(self) -> list[int]:
        return (
            [last - first for first, last in zip(self.totals[0], self.totals[-1], strict=True)]
            if self.totals
            else []
        )

    def rates_mbit(self, spine: int) -> Sequence[tuple[float, float]]:
        """(time, Mbit/s) of one spine between samples."""
        samples = list(zip(self.times, self.totals, strict=True))
        return [
            (later, (after[spine] - before[spine]) * 8e-6 / (later - earlier))
            for (earlier, before), (later, after) in zip(samples, samples[1:])
        ]


def _received_bytes(pid: int) -> int:
    total = 0
    for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]:
        name, numbers = line.split(":", 1)
        if name.strip() != "lo":
            total += int(numbers.split()[0])
    return total
