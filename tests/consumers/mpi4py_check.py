"""Checks mpi4py by content, as mpi_check.c does C programs: every byte is a function of who sent it, to whom, how long
it is and in which iteration.

Rank 0 prints one summary line. The first difference found is told on standard error, and the job aborts.
"""

import hashlib
import sys
import traceback
from array import array

from mpi4py import MPI

WORLD = MPI.COMM_WORLD
RANK, RANKS = WORLD.rank, WORLD.size
SIZES = [0, 1, 8, 63, 1000, 4096, 8193, 65536, 300_000, 1 << 20, 4 << 20]
"""Bytes: around the boundaries of packets, of eager protocols and of rendezvous."""
ITERATIONS = 5
POISON = b"\x5a"


def message(source: int, destination: int, size: int, iteration: int) -> bytes:
    return hashlib.shake_128(f"{source} {destination} {size} {iteration}".encode()).digest(size)


def expect(received, wanted, what: str) -> None:
    if received != wanted:
        at = next((k for k, (a, b) in enumerate(zip(received, wanted)) if a != b), "beyond one's end")
        raise AssertionError(f"{what}: {len(received)} elements of {len(wanted)}, first difference {at}")


def check_point_to_point() -> int:
    """Around the ring, both ways: as buffers without waiting, then as Python objects."""
    right, left = (RANK + 1) % RANKS, (RANK - 1) % RANKS
    for tag, size in enumerate(SIZES):
        for iteration in range(ITERATIONS):
            received = bytearray(POISON * size)
            requests = [
                WORLD.Irecv([received, MPI.BYTE], source=left, tag=tag),
                WORLD.Isend([message(RANK, right, size, iteration), MPI.BYTE], dest=right, tag=tag),
            ]
            MPI.Request.Waitall(requests)
            expect(received, message(left, RANK, size, iteration), f"{size} bytes from rank {left}")
            sent = {"from": RANK, "bytes": message(RANK, left, size, iteration)}
            wanted = {"from": right, "bytes": message(right, RANK, size, iteration)}
            if WORLD.sendrecv(sent, dest=left, source=right) != wanted:
                raise AssertionError(f"an object with {size} bytes from rank {right} differs")
    return 2 * len(SIZES) * ITERATIONS


def check_allreduce() -> int:
    counts = [1, 17, 1000, 30_000, 200_000]
    for count in counts:
        received = array("q", [-1]) * count
        WORLD.Allreduce(array("q", range(RANK, RANK + count)), received, op=MPI.SUM)
        ranks = RANKS * (RANKS - 1) // 2
        expect(received, array("q", (RANKS * k + ranks for k in range(count))), f"allreduce of {count}")
    return len(counts)


def check_alltoall() -> int:
    blocks = [1, 64, 1500, 9000, 70_000, 300_000]
    for block in blocks:
        received = bytearray(POISON * (block * RANKS))
        sent = b"".join(message(RANK, rank, block, 0) for rank in range(RANKS))
        WORLD.Alltoall([sent, block, MPI.BYTE], [received, block, MPI.BYTE])
        wanted = b"".join(message(rank, RANK, block, 0) for rank in range(RANKS))
        expect(received, wanted, f"alltoall of {block} bytes")
    return len(blocks)


def main() -> None:
    began = MPI.Wtime()
    checked = WORLD.allreduce(check_point_to_point() + check_allreduce() + check_alltoall())
    if RANK == 0:
        print(f"mpi4py_check: ok, {RANKS} ranks, {checked} messages checked in {MPI.Wtime() - began:.1f} s")


try:
    main()
except Exception:
    traceback.print_exc()
    sys.stderr.flush()
    WORLD.Abort(1)
