"""The lab (`srd lab`, docs/LAB.md) as the demo sees it: brings it up and down, fails a spine, and watches the bytes pass."""

import json
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness import layout, processes

NAME = "srd-demo"
SPINE_RECEIVES = re.compile(r"leaf\d+>spine(\d+)")
"""What a way of a link towards a spine is called."""


def _srd_lab(*arguments: str) -> list[str]:
    return [str(layout.SRD), "lab", "--lab", NAME, *arguments]


def _call(*arguments: str) -> str:
    # In sessions of their own, since Ctrl-C at the terminal is for the demo, which then tidies up.
    result = subprocess.run(_srd_lab(*arguments), capture_output=True, text=True, start_new_session=True)
    if result.returncode:
        raise RuntimeError(result.stderr.strip() or f"srd lab {' '.join(arguments)} failed")
    return result.stdout


def _tidy() -> None:
    """Removes what is there of the lab. That there is nothing is no error."""
    subprocess.run(_srd_lab("down"), capture_output=True, start_new_session=True)


@dataclass(frozen=True)
class Lab:
    """Up within a `with`. The first half of the hosts is on one leaf, the second on the other."""

    hosts: int = 4
    spines: int = 4
    host_mbps: float = 200
    uplink_mbps: float = 100

    def __enter__(self) -> "Lab":
        _tidy()  # what an earlier run may have left
        shape = ["--leaves", "2", "--hosts-per-leaf", str(self.hosts // 2), "--spines", str(self.spines)]
        try:
            _call("up", *shape, "--host-mbps", str(self.host_mbps), "--uplink-mbps", str(self.uplink_mbps))
        except BaseException:
            _tidy()
            raise
        return self

    def __exit__(self, *_) -> None:
        # Somebody impatient presses Ctrl-C twice.
        heeded = {sign: signal.signal(sign, signal.SIG_IGN) for sign in (signal.SIGINT, signal.SIGTERM)}
        try:
            _call("down")
        finally:
            for sign, handler in heeded.items():
                signal.signal(sign, handler)

    def blackhole(self, spine: int) -> None:
        _call("fault", "blackhole", f"spine{spine}")

    def heal(self) -> None:
        _call("heal")

    def mpirun(
        self, ranks: int, transport: str, program: list[str], variables: dict[str, str]
    ) -> processes.Command:
        """A job of Open MPI 5, a rank on each host as far as there are ranks."""
        return processes.Command(
            _srd_lab("mpirun", "-n", str(ranks), "--transport", transport, "--", *program), variables
        )

    def tcp_retransmissions(self) -> int:
        """Segments that the hosts' kernels have sent again so far."""
        total = 0
        for host in range(self.hosts):
            table = _call("exec", f"host{host}", "--", "nstat", "-asz", "TcpRetransSegs")
            total += sum(
                int(line.split()[1]) for line in table.splitlines() if line.startswith("TcpRetransSegs")
            )
        return total


@dataclass
class SpineWatch:
    """Samples the bytes sent to each spine, ten times a second, until stopped."""

    spines: int
    period_s: float = 0.1
    times: list[float] = field(default_factory=list)
    totals: list[list[int]] = field(default_factory=list)
    """One list per sample: bytes per spine since it was built."""

    def __enter__(self) -> "SpineWatch":
        every_ms = str(round(self.period_s * 1000))
        self._status = subprocess.Popen(
            _srd_lab("status", "--json", "--every-ms", every_ms),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            if not self._take(self._status.stdout.readline()):
                raise RuntimeError(f"cannot watch the spines: {self._status.communicate()[1].strip()}")
        except BaseException:
            self._status.kill()
            raise
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._status.kill()
        self._thread.join()
        self._status.communicate()

    def _watch(self) -> None:
        while self._take(self._status.stdout.readline()):
            pass

    def _take(self, line: str) -> bool:
        """Adds a sample; there is none in what a process that is ended leaves of a line."""
        if not line.endswith("\n"):
            return False
        totals = Counter()
        for way in json.loads(line)["links"]:
            if towards := SPINE_RECEIVES.fullmatch(way["name"]):
                totals[int(towards[1])] += way["bytes"]
        self.times.append(time.monotonic())
        self.totals.append([totals[spine] for spine in range(self.spines)])
        return True

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
        return [last - first for first, last in zip(self.totals[0], self.totals[-1], strict=True)]

    def rates_mbit(self, spine: int) -> Sequence[tuple[float, float]]:
        """(time, Mbit/s) of one spine between samples."""
        samples = list(zip(self.times, self.totals, strict=True))
        return [
            (later, (after[spine] - before[spine]) * 8e-6 / (later - earlier))
            for (earlier, before), (later, after) in zip(samples, samples[1:])
        ]
