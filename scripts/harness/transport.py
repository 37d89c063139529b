"""What carries the messages of an unmodified program: libfabric's `tcp` provider, or its `efa` provider over OpenSRD."""

from dataclasses import dataclass
from pathlib import Path

from . import layout


@dataclass(frozen=True)
class Transport:
    """`provider` is what libfabric is asked for; `wrapper` is put before every command."""

    name: str
    provider: str
    wrapper: tuple[str, ...]

    @property
    def is_ours(self) -> bool:
        return self.name == "efa"

    def environment(
        self, address: str, statistics: Path | None = None, fault: str | None = None
    ) -> dict[str, str]:
        """Variables beside those the wrapper sets. `address` is a local address or an interface name."""
        if not self.is_ours:
            return {}
        # Warnings: without them libfabric only says that there is "no data" when a provider cannot start.
        environment = {"SRD_ADDR": address, "FI_LOG_LEVEL": "warn"}
        if statistics:
            environment["SRD_STATS"] = str(statistics / "srd.%p.json")
        if fault:
            environment["SRD_FAULT"] = fault
        return environment

    def why_unusable(self) -> str | None:
        if not self.is_ours:
            return None
        missing = [
            path
            for path in (
                layout.SRD,
                layout.EFA_LIBRARIES / "libibverbs.so.1",
                layout.EFA_LIBRARIES / "libefa.so.1",
            )
            if not path.exists()
        ]
        return f"{missing[0].relative_to(layout.ROOT)} is missing; run: make build" if missing else None


TCP = Transport("tcp", "tcp", ())
EFA = Transport("efa", "efa", (str(layout.SRD), "run", "--efa", "--"))
BY_NAME = {transport.name: transport for transport in (TCP, EFA)}
