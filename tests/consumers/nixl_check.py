#!/usr/bin/env python3
"""Checks NIXL's LIBFABRIC backend by content, between two processes: writes and reads of memory of the other, each
with a notification, in one piece and in many, and notifications alone.

The parent initiates; its child is the target. What NIXL leaves to its users, each side's metadata and where memory is,
goes through a pipe between them, and so does what the target found.
"""

import hashlib
import multiprocessing
import sys
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy
from nixl_cu12._api import nixl_agent, nixl_agent_config

SIZES = [1, 8, 63, 1000, 4096, 8193, 100_000, 131_072, 1_000_003, 16 << 20]
"""Bytes: around those of packets, and of the threshold from which NIXL splits what it writes."""
ITERATIONS = 3
PIECES = [(64, 512), (200, 8192), (16, 200_000)]
"""Transfers of many descriptors: how many, of how many bytes each."""
NOTIFICATIONS = 50
REGION = 32 << 20
GUARD = 64
GUARD_BYTE = 0xA5
LIMIT_S = 30
BACKEND = "LIBFABRIC"


def content(what: str, size: int, iteration: int) -> bytes:
    """Every 32 bytes are a function of all of this and of where they are."""
    seed = hashlib.sha256(f"{what} {size} {iteration}".encode()).digest()
    generator = numpy.random.Generator(numpy.random.Philox(key=int.from_bytes(seed[:8], "little")))
    return generator.bytes(size)


@dataclass
class Layout:
    """Where the pieces of a transfer lie: apart, so that one that is misplaced or too long shows."""

    count: int
    size: int

    @property
    def stride(self) -> int:
        return self.size + GUARD

    def descriptors(self, base: int) -> list[tuple[int, int, int]]:
        return [(base + k * self.stride, self.size, 0) for k in range(self.count)]


class Side:
    """An agent with one registered region."""

    def __init__(self, name: str):
        self.name = name
        self.agent = nixl_agent(name, nixl_agent_config(backends=[BACKEND]))
        if BACKEND not in self.agent.backends:
            raise RuntimeError(f"NIXL has no {BACKEND} backend here: its plugins are {self.agent.get_plugin_list()}")
        self.region = numpy.zeros(REGION, dtype=numpy.uint8)
        self.base = self.region.ctypes.data
        self.registered = self.agent.register_memory([(self.base, REGION, 0, "")], "DRAM", [BACKEND])

    def fill(self, layout: Layout, data: bytes) -> None:
        for k in range(layout.count):
            piece = numpy.frombuffer(data, numpy.uint8, layout.size, k * layout.size)
            self.region[k * layout.stride : k * layout.stride + layout.size] = piece

    def clear(self, layout: Layout) -> None:
        self.region[: layout.count * layout.stride] = GUARD_BYTE

    def expect(self, layout: Layout, data: bytes, what: str) -> None:
        wanted = numpy.frombuffer(data, numpy.uint8)
        for k in range(layout.count):
            start = k * layout.stride
            got = self.region[start : start + layout.size]
            differ = numpy.nonzero(got != wanted[k * layout.size : (k + 1) * layout.size])[0]
            if len(differ):
                raise AssertionError(f"{what}: {len(differ)} bytes of piece {k} differ, the first at {differ[0]}")
            if (self.region[start + layout.size : start + layout.stride] != GUARD_BYTE).any():
                raise AssertionError(f"{what}: piece {k} is longer than it should be")

    def wait_for_notification(self, source: str, wanted: bytes) -> None:
        limit = time.monotonic() + LIMIT_S
        while not self.agent.check_remote_xfer_done(source, wanted, [BACKEND]):
            if time.monotonic() > limit:
                raise TimeoutError(f"{self.name}: no notification {wanted!r} within {LIMIT_S} s")


def transfers() -> list[tuple[str, Layout, int]]:
    layouts = [Layout(1, size) for size in SIZES] + [Layout(count, size) for count, size in PIECES]
    return [
        (operation, layout, iteration)
        for layout in layouts
        for iteration in range(ITERATIONS)
        for operation in ("WRITE", "READ")
    ]


def name_of(operation: str, layout: Layout, iteration: int) -> str:
    return f"{operation.lower()} of {layout.count} x {layout.size} bytes, iteration {iteration}"


def target(pipe: Connection) -> None:
    try:
        side = Side("target")
        pipe.send((side.agent.get_agent_metadata(), side.base))
        source = side.agent.add_remote_agent(pipe.recv())
        source = source.decode() if isinstance(source, bytes) else source
        for operation, layout, iteration in transfers():
            name = name_of(operation, layout, iteration)
            data = content(name, layout.count * layout.size, iteration)
            side.clear(layout)
            if operation == "READ":
                side.fill(layout, data)
            pipe.send("ready")
            side.wait_for_notification(source, name.encode())
            if operation == "WRITE":
                side.expect(layout, data, name)
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
    for operation, layout, iteration in transfers():
        name = name_of(operation, layout, iteration)
        data = content(name, layout.count * layout.size, iteration)
        side.clear(layout)
        if operation == "WRITE":
            side.fill(layout, data)
        expect_answer(pipe, "ready", name)
        transfer(side, operation, layout, remote_base, peer, name)
        if operation == "READ":
            side.expect(layout, data, name)
        expect_answer(pipe, "checked", name)
        checked += layout.count
    for k in range(NOTIFICATIONS):
        side.agent.send_notif(peer, f"notification {k}.".encode())
    expect_answer(pipe, "checked", "notifications")
    side.agent.remove_remote_agent(peer)
    pipe.send("end")
    return checked + NOTIFICATIONS


def transfer(side: Side, operation: str, layout: Layout, remote_base: int, peer: str, name: str) -> None:
    local = side.agent.get_xfer_descs(layout.descriptors(side.base), "DRAM")
    remote = side.agent.get_xfer_descs(layout.descriptors(remote_base), "DRAM")
    handle = side.agent.initialize_xfer(operation, local, remote, peer, name.encode(), [BACKEND])
    state = side.agent.transfer(handle)
    limit = time.monotonic() + LIMIT_S
    while state == "PROC":
        if time.monotonic() > limit:
            raise TimeoutError(f"{name}: not done within {LIMIT_S} s")
        state = side.agent.check_xfer_state(handle)
    if state != "DONE":
        raise AssertionError(f"{name}: {state}")
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
