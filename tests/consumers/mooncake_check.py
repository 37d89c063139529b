#!/usr/bin/env python3
"""Checks Mooncake's transfer engine over EFA by content, between two processes: writes and reads of memory of the other, in one piece
and in many.

    mooncake_check.py N    over the first N of this machine's devices

Mooncake asks its peers for keys and addresses itself, over TCP; it wants to be told the target's name and where its memory is.
"""

import os
import sys
from multiprocessing.connection import Connection

from mooncake.engine import TransferEngine

from pieces import REGION, Region, Transfer, initiate, run, serve, start_of_target


class Side:
    """An engine with one registered region."""

    def __init__(self, devices: str):
        self.engine = TransferEngine()
        if self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "efa", devices) != 0:
            raise RuntimeError("Mooncake's engine does not start")
        self.name = f"127.0.0.1:{self.engine.get_rpc_port()}"
        self.region = Region()
        if self.engine.register_memory(self.region.base, REGION) != 0:
            raise RuntimeError("memory cannot be registered")


def target(pipe: Connection, devices: str) -> None:
    side = Side(devices)
    pipe.send((side.name, side.region.base))
    serve(side.region, pipe, lambda _: pipe.recv())
    pipe.recv()  # until the other side has nothing under way


def initiator(pipe: Connection, devices: str) -> int:
    side = Side(devices)
    peer, remote_base = start_of_target(pipe)

    def move_and_tell(transfer: Transfer) -> None:
        move(side, transfer, peer, remote_base)
        pipe.send("done")

    checked = initiate(side.region, pipe, move_and_tell)
    pipe.send("end")
    return checked


def move(side: Side, transfer: Transfer, peer: str, remote_base: int) -> None:
    engine, layout = side.engine, transfer.layout
    ours, theirs = ([base + offset for offset in layout.offsets()] for base in (side.region.base, remote_base))
    if layout.count == 1:
        call = engine.transfer_sync_write if transfer.operation == "WRITE" else engine.transfer_sync_read
        status = call(peer, ours[0], theirs[0], layout.size)
    else:
        call = engine.batch_transfer_sync_write if transfer.operation == "WRITE" else engine.batch_transfer_sync_read
        status = call(peer, ours, theirs, [layout.size] * layout.count)
    if status != 0:
        raise AssertionError(f"{transfer}: Mooncake says {status}")


if __name__ == "__main__":
    known = sorted(os.listdir("/sys/class/infiniband"), key=lambda name: (len(name), name))
    sys.exit(run("mooncake_check", target, initiator, ",".join(known[: int(sys.argv[1])])))
