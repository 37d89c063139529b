#!/usr/bin/env python3
"""Checks NIXL's LIBFABRIC backend by content, between two processes: writes and reads of memory of the other, each
with a notification, in one piece and in many, and notifications alone.

The parent initiates; its child is the target. What NIXL leaves to its users, each side's metadata and where memory is,
goes through a pipe between them, and so does what the target found.
"""

import multiprocessing
import sys
import time
from multiprocessing.connection import Connection

from nixl_cu12._api import nixl_agent, nixl_agent_config

from pieces import REGION, Layout, Region, Transfer, transfers

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
    try:
        side = Side("target")
        pipe.send((side.agent.get_agent_metadata(), side.region.base))
        source = side.agent.add_remote_agent(pipe.recv())
        source = source.decode() if isinstance(source, bytes) else source
        for transfer in transfers():
            side.region.clear(transfer.layout)
            if transfer.operation == "READ":
                side.region.fill(transfer)
            pipe.send("ready")
            side.wait_for_notification(source, str(transfer).encode())
            if transfer.operation == "WRITE":
                side.region.expect(transfer)
            pipe.send("checked")
        for k in range(NOTIFICATIONS):
            side.wait_for_notification(source, f"notification {k}.".encode())
        pipe.send("checked")
        pipe.recv()  # until the other side has let go of its connections
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")
        raise


def expect_answer(pipe: Connection, wanted: str, what: str) -> None:
    if not pipe.poll(LIMIT_S + 5):
        raise TimeoutError(f"the target says nothing about {what}")
    answer = pipe.recv()
    if answer != wanted:
        raise AssertionError(f"{what}: the target says {answer}")


def initiator(pipe: Connection) -> int:
    side = Side("initiator")
    if not pipe.poll(LIMIT_S):
        raise TimeoutError("the target does not start")
    answer = pipe.recv()
    if isinstance(answer, str):
        raise RuntimeError(f"the target does not start: {answer}")
    metadata, remote_base = answer
    peer = side.agent.add_remote_agent(metadata)
    peer = peer.decode() if isinstance(peer, bytes) else peer
    pipe.send(side.agent.get_agent_metadata())
    checked = 0
    for transfer in transfers():
        side.region.clear(transfer.layout)
        if transfer.operation == "WRITE":
            side.region.fill(transfer)
        expect_answer(pipe, "ready", str(transfer))
        move(side, transfer, remote_base, peer)
        if transfer.operation == "READ":
            side.region.expect(transfer)
        expect_answer(pipe, "checked", str(transfer))
        checked += transfer.layout.count
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


def main() -> int:
    began = time.monotonic()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=target, args=(theirs,), daemon=True)
    child.start()
    checked = initiator(ours)
    child.join(10)
    if child.exitcode != 0:
        print(f"nixl_check: the target ended with {child.exitcode}", file=sys.stderr)
        return 1
    print(f"nixl_check: ok, {checked} pieces and notifications checked in {time.monotonic() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
