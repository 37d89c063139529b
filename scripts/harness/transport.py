"""What carries the messages of an unmodified program.

Three of them are ours: libfabric's own `efa` provider over the software EFA, and our libfabric provider `srd`, with
and without shared memory between ranks of one host. The others are libfabric's, for comparison.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

from . import layout


@dataclass(frozen=True)
class Transport:
    name: str
    title: str
    provider: str
    """What libfabric is asked for."""
    wrapper: tuple[str, ...] = ()
    """Put before every command."""
    variables: dict[str, str] = field(default_factory=dict, hash=False)
    """What selects the transport, and what it needs, wherever it runs."""
    needs: tuple[Path, ...] = ()
    """Files that the build makes."""
    is_ours: bool = False
    is_local: bool = False
    """Messages between ranks of one host do not pass the network."""
    is_sealed: bool = False
    """Every packet is encrypted and authenticated, with a key that `srd run` makes."""

    def sealed(self) -> "Transport":
        assert self.is_ours, "others cannot be sealed"
        *before, end = self.wrapper
        return replace(self, wrapper=(*before, "--sealed", end), is_sealed=True)

    def in_machine(self, kind: str) -> "Transport":
        """In a machine with the EFA devices of an instance type."""
        assert self.provider == "efa", "machines have EFA devices"
        *before, end = self.wrapper
        return replace(self, wrapper=(*before, "--machine", kind, end))

    def environment(
        self, address: str, statistics: Path | None = None, fault: str | None = None
    ) -> dict[str, str]:
        """Variables beside those the wrapper sets. `address` is a local address or an interface name."""
        if not self.is_ours:
            return dict(self.variables)
        # Warnings: without them libfabric only says that there is "no data" when a provider cannot start.
        environment = {**self.variables, "SRD_ADDR": address, "FI_LOG_LEVEL": "warn"}
        if statistics:
            environment["SRD_STATS"] = str(statistics / "srd.%p.json")
        if fault:
            environment["SRD_FAULT"] = fault
        return environment

    def why_unusable(self) -> str | None:
        missing = [path for path in self.needs if not path.exists()]
        return f"{missing[0].relative_to(layout.ROOT)} is missing; run: make build" if missing else None


def _srd(name: str, title: str, shared_memory: bool = False, wire: str = "udp") -> Transport:
    return Transport(
        name,
        title,
        "srd",
        wrapper=(str(layout.SRD), "run", "--provider", "--"),
        variables={"SRD_SHM": "on" if shared_memory else "off", "SRD_WIRE": wire},
        needs=(layout.SRD, layout.PROVIDER),
        is_ours=True,
        is_local=shared_memory,
    )


TCP = Transport("tcp", "libfabric tcp provider", "tcp")
RXD = Transport("rxd", "libfabric udp;ofi_rxd provider", "udp;ofi_rxd")
SHM = Transport("shm", "libfabric shm provider", "shm", is_local=True)
EFA = Transport(
    "efa",
    "OpenSRD (software EFA)",
    "efa",
    wrapper=(str(layout.SRD), "run", "--efa", "--"),
    needs=(layout.SRD, layout.EFA_LIBRARIES / "libibverbs.so.1", layout.EFA_LIBRARIES / "libefa.so.1"),
    is_ours=True,
)
SRD = _srd("srd", "OpenSRD (libfabric provider)")
SRD_PACKET = _srd("srd-packet", "OpenSRD (libfabric provider, packet sockets)", wire="packet")
SRD_XDP = _srd("srd-xdp", "OpenSRD (libfabric provider, AF_XDP sockets)", wire="xdp")
SRD_SHM = _srd("srd-shm", "OpenSRD (libfabric provider, shared memory)", shared_memory=True)
BY_NAME = {transport.name: transport for transport in (EFA, SRD, SRD_PACKET, SRD_XDP, SRD_SHM, TCP, RXD, SHM)}
