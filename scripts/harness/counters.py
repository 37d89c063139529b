"""Reads the counters that OpenSRD's processes write (SRD_STATS). The shape of those files is known here only."""

import json
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Counters:
    """The sum over all processes of a run."""

    processes: int = 0
    sealed_processes: int = 0
    sent_packets: int = 0
    received_packets: int = 0
    retransmitted_packets: int = 0
    retransmission_timeouts: int = 0
    paths_down: int = 0
    path_bytes: dict[str, int] = field(default_factory=dict)
    """Bytes sent per path (by the path's number), over all peers of all processes."""

    @property
    def moved_messages(self) -> bool:
        return self.sent_packets > 0 and self.received_packets > 0


def read(directory: Path) -> Counters:
    total = Counters()
    for file in sorted(directory.glob("srd.*.json")):
        try:
            document = json.loads(file.read_text())
        except json.JSONDecodeError as error:
            raise ValueError(f"{file}: not JSON ({error})") from error
        _add(total, document)
    return total


def _add(total: Counters, document: dict) -> None:
    total.processes += 1
    total.sealed_processes += document["sealed"]
    device = document["device"]
    total.sent_packets += device["tx_pkts"]
    total.received_packets += device["rx_pkts"]
    total.retransmitted_packets += device["retrans_pkts"]
    total.retransmission_timeouts += device["retrans_timeout_events"]
    total.paths_down += document["transport"]["paths_down"]
    for path in document.get("paths", []):
        name = str(path.get("path", path.get("index", "?")))
        total.path_bytes[name] = total.path_bytes.get(name, 0) + path.get("tx_bytes", 0)
