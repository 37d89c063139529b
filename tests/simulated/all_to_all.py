"""MPI_Alltoall as osu_alltoall times it: for each size in bytes the mean of three over all ranks, in microseconds, behind one that
does not count."""

import sys

from mpi4py import MPI

TIMES = 3

world = MPI.COMM_WORLD
for size in map(int, sys.argv[1:]):
    out, into, took = bytearray(size * world.size), bytearray(size * world.size), 0.0
    for time in range(-1, TIMES):
        world.Barrier()
        began = MPI.Wtime()
        world.Alltoall(out, into)
        if time >= 0:
            took += MPI.Wtime() - began
    total = world.reduce(took / TIMES * 1e6)
    if world.rank == 0:
        print(f"{size} bytes: {total / world.size:.2f} us")
