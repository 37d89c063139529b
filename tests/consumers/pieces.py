"""What checks of RDMA libraries in Python have in common: transfers between two processes, checked by content.

The parent initiates and its child is the target. What one has to know of the other goes through a pipe between them.
"""

import ctypes
import hashlib
import multiprocessing
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

SIZES = [1, 8, 63, 1000, 4096, 8193, 100_000, 131_072, 1_000_003, 16 << 20]
"""Bytes: around those of packets, and of the thresholds from which libraries split what they write."""
MANY = [(64, 512), (200, 8192), (16, 200_000)]
"""Transfers of many pieces: how many, of how many bytes each."""
ITERATIONS = 3
REGION = 32 << 20
GUARD = b"\xa5" * 64
LIMIT_S = 60
"""An answer takes longer than that only if the other side has hung; the libraries' own limits are 30 s."""


@dataclass
class Layout:
    """Where the pieces of a transfer lie: apart, so that one that is misplaced or too long shows."""

    count: int
    size: int

    def offsets(self) -> list[int]:
        return [k * (self.size + len(GUARD)) for k in range(self.count)]


@dataclass
class Transfer:
    operation: str
    """WRITE or READ."""
    layout: Layout
    iteration: int

    def __str__(self) -> str:
        return f"{self.operation.lower()} of {self.layout.count} x {self.layout.size} bytes, iteration {self.iteration}"

    def pieces(self) -> list[bytes]:
        """Every byte is a function of what this is and of where it lies."""
        size = self.layout.size
        whole = memoryview(hashlib.shake_128(str(self).encode()).digest(self.layout.count * size))
        return [whole[k * size : (k + 1) * size] for k in range(self.layout.count)]


def transfers() -> list[Transfer]:
    layouts = [Layout(1, size) for size in SIZES] + [Layout(count, size) for count, size in MANY]
    return [
        Transfer(operation, layout, iteration)
        for layout in layouts
        for iteration in range(ITERATIONS)
        for operation in ("WRITE", "READ")
    ]


class Region:
    """Memory that is registered as a whole."""

    def __init__(self):
        self.memory = ctypes.create_string_buffer(REGION)
        self.base = ctypes.addressof(self.memory)
        self.bytes = memoryview(self.memory).cast("B")

    def fill(self, transfer: Transfer) -> None:
        for start, piece in zip(transfer.layout.offsets(), transfer.pieces()):
            self.bytes[start : start + len(piece)] = piece

    def clear(self, layout: Layout) -> None:
        length = layout.count * (layout.size + len(GUARD))
        self.bytes[:length] = GUARD[:1] * length

    def expect(self, transfer: Transfer) -> None:
        for k, (start, wanted) in enumerate(zip(transfer.layout.offsets(), transfer.pieces())):
            end = start + transfer.layout.size
            if self.bytes[start:end] != wanted:
                differ = [at for at, byte in enumerate(wanted) if self.bytes[start + at] != byte]
                raise AssertionError(f"{transfer}: {len(differ)} bytes of piece {k} differ, the first at {differ[0]}")
            if self.bytes[end : end + len(GUARD)] != GUARD:
                raise AssertionError(f"{transfer}: piece {k} is longer than it should be")


def serve(region: Region, pipe: Connection, arrived: Callable[[Transfer], None]) -> None:
    """The target's part of all transfers; `arrived` returns when the initiator has done one."""
    for transfer in transfers():
        region.clear(transfer.layout)
        if transfer.operation == "READ":
            region.fill(transfer)
        pipe.send("ready")
        arrived(transfer)
        if transfer.operation == "WRITE":
            region.expect(transfer)
        pipe.send("checked")


def initiate(region: Region, pipe: Connection, move: Callable[[Transfer], None]) -> int:
    """The initiator's part; `move` does a transfer, and lets the target know. How many pieces were checked."""
    checked = 0
    for transfer in transfers():
        region.clear(transfer.layout)
        if transfer.operation == "WRITE":
            region.fill(transfer)
        expect_answer(pipe, "ready", str(transfer))
        move(transfer)
        if transfer.operation == "READ":
            region.expect(transfer)
        expect_answer(pipe, "checked", str(transfer))
        checked += transfer.layout.count
    return checked


def answer(pipe: Connection, what: str):
    if not pipe.poll(LIMIT_S):
        raise TimeoutError(f"the target says nothing about {what}")
    return pipe.recv()


def expect_answer(pipe: Connection, wanted: str, what: str) -> None:
    if (said := answer(pipe, what)) != wanted:
        raise AssertionError(f"{what}: the target says {said}")


def start_of_target(pipe: Connection) -> tuple:
    """What the target tells first."""
    said = answer(pipe, "its start")
    if isinstance(said, str):
        raise RuntimeError(f"the target does not start: {said}")
    return said


def telling_failures(target: Callable, pipe: Connection, *rest) -> None:
    try:
        target(pipe, *rest)
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")
        raise


def run(name: str, target: Callable, initiator: Callable, *rest) -> int:
    """Both sides, each with its end of the pipe. The exit status."""
    began = time.monotonic()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=telling_failures, args=(target, theirs, *rest), daemon=True)
    child.start()
    checked = initiator(ours, *rest)
    child.join(LIMIT_S)
    if child.exitcode != 0:
        print(f"{name}: the target ended with {child.exitcode}", file=sys.stderr)
        return 1
    print(f"{name}: ok, {checked} pieces checked in {time.monotonic() - began:.1f} s")
    return 0
