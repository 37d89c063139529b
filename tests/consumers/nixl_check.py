#!/usr/bin/env python3
"""Checks NIXL's LIBFABRIC backend by content, between two processes: writes and reads of memory of the other, each
with a notification, in one piece and in many, and notifications alone.

NIXL leaves to its users to tell each other their metadata and where memory is.
"""

import sys
import time
from multiprocessing.connection import Connection

from nixl_cu12._api import nixl_agent, nixl_agent_config

from pieces import REGION, Layout, Region, Transfer, expect_answer, initiate, run, serve, start_of_target

NOTIFICATIONS = 50
LIMIT_S = 30
BACKEND = "LIBFABRIC"


class Side:
    """An agent with one registered region."""

    def __init__(self, name: str):
        self.name = name
        self.agent = nixl_agent(name, nixl_agent_config(backends=[BACKEND]))
        if BACKEND not in self.agent.backends:
            raise RuntimeError(f"NIXL has no {BACKEND} backend here: its plugins are {self.agent.get_plugin_list()}")
        self.region = Region()
        self.registered = self.agent.register_memory([(self.region.base, REGION, 0, "")], "DRAM", [BACKEND])

    def wait_for_notification(self, source: str, wanted: bytes) -> None:
        limit = time.monotonic() + LIMIT_S
        while not self.agent.check_remote_xfer_done(source, wanted, [BACKEND]):
            if time.monotonic() > limit:
                raise TimeoutError(f"{self.name}: no notification {wanted!r} within {LIMIT_S} s")


def descriptors(layout: Layout, base: int) -> list[tuple[int, int, int]]:
    return [(base + offset, layout.size, 0) for offset in layout.offsets()]


def target(pipe: Connection) -> None:
    side = Side("target")
    pipe.send((side.agent.get_agent_metadata(), side.region.base))
    source = side.agent.add_remote_agent(pipe.recv())
    source = source.decode() if isinstance(source, bytes) else source
    serve(side.region, pipe, lambda transfer: side.wait_for_notification(source, str(transfer).encode()))
    for k in range(NOTIFICATIONS):
        side.wait_for_notification(source, f"notification {k}.".encode())
    pipe.send("checked")
    pipe.recv()  # until the other side has let go of its connections


def initiator(pipe: Connection) -> int:
    side = Side("initiator")
    metadata, remote_base = start_of_target(pipe)
    peer = side.agent.add_remote_agent(metadata)
    peer = peer.decode() if isinstance(peer, bytes) else peer
    pipe.send(side.agent.get_agent_metadata())
    checked = initiate(side.region, pipe, lambda transfer: move(side, transfer, remote_base, peer))
    for k in range(NOTIFICATIONS):
        side.agent.send_notif(peer, f"notification {k}.".encode())
    expect_answer(pipe, "checked", "notifications")
    side.agent.remove_remote_agent(peer)
    pipe.send("end")
    return checked + NOTIFICATIONS


def move(side: Side, transfer: Transfer, remote_base: int, peer: str) -> None:
    local = side.agent.get_xfer_descs(descriptors(transfer.layout, side.region.base), "DRAM")
    remote = side.agent.get_xfer_descs(descriptors(transfer.layout, remote_base), "DRAM")
    handle = side.agent.initialize_xfer(
        transfer.operation, local, remote, peer, str(transfer).encode(), [BACKEND]
    )
    state = side.agent.transfer(handle)
    limit = time.monotonic() + LIMIT_S
    while state == "PROC":
        if time.monotonic() > limit:
            raise TimeoutError(f"{transfer}: not done within {LIMIT_S} s")
        state = side.agent.check_xfer_state(handle)
    if state != "DONE":
        raise AssertionError(f"{transfer}: {state}")
    side.agent.release_xfer_handle(handle)


if __name__ == "__main__":
    sys.exit(run("nixl_check", target, initiator))
