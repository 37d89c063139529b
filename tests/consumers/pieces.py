"""What checks of RDMA libraries in Python have in common: regions of memory whose pieces are checked by content."""

import ctypes
import hashlib
from dataclasses import dataclass

SIZES = [1, 8, 63, 1000, 4096, 8193, 100_000, 131_072, 1_000_003, 16 << 20]
"""Bytes: around those of packets, and of the thresholds from which libraries split what they write."""
MANY = [(64, 512), (200, 8192), (16, 200_000)]
"""Transfers of many pieces: how many, of how many bytes each."""
ITERATIONS = 3
REGION = 32 << 20
GUARD = b"\xa5" * 64


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
