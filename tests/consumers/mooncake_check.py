#!/usr/bin/env python3
"""Checks Mooncake's transfer engine over EFA by content, between two processes: writes and reads of memory of the other, in one piece
and in many.

    mooncake_check.py N    over the first N of this machine's devices

The parent initiates; its child is the target. Mooncake asks its peers for keys and addresses itself, over TCP; the target's name, where
its memory is, and what it found there go through a pipe.
"""

import multiprocessing
import os
import sys
import time
from multiprocessing.connection import Connection

from mooncake.engine import TransferEngine

from pieces import REGION, Region, Transfer, transfers

LIMIT_S = 60
"""An answer takes longer than that only if the other side has hung; Mooncake's own limit is 30 s."""


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


def target(devices: str, pipe: Connection) -> None:
    try:
        side = Side(devices)
        pipe.send((side.name, side.region.base))
        for transfer in transfers():
            side.region.clear(transfer.layout)
            if transfer.operation == "READ":
                side.region.fill(transfer)
            pipe.send("ready")
            pipe.recv()
            if transfer.operation == "WRITE":
                side.region.expect(transfer)
            pipe.send("checked")
        pipe.recv()  # until the other side has nothing under way
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")
        raise


def answer(pipe: Connection, what: str):
    if not pipe.poll(LIMIT_S):
        raise TimeoutError(f"the target says nothing about {what}")
    return pipe.recv()


def expect_answer(pipe: Connection, wanted: str, what: str) -> None:
    if (said := answer(pipe, what)) != wanted:
        raise AssertionError(f"{what}: the target says {said}")


def initiator(devices: str, pipe: Connection) -> int:
    side = Side(devices)
    said = answer(pipe, "its start")
    if isinstance(said, str):
        raise RuntimeError(f"the target does not start: {said}")
    peer, remote_base = said
    checked = 0
    for transfer in transfers():
        side.region.clear(transfer.layout)
        if transfer.operation == "WRITE":
            side.region.fill(transfer)
        expect_answer(pipe, "ready", str(transfer))
        move(side, transfer, peer, remote_base)
        if transfer.operation == "READ":
            side.region.expect(transfer)
        pipe.send("done")
        expect_answer(pipe, "checked", str(transfer))
        checked += transfer.layout.count
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


def main() -> int:
    known = sorted(os.listdir("/sys/class/infiniband"), key=lambda name: (len(name), name))
    devices = ",".join(known[: int(sys.argv[1])])
    began = time.monotonic()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=target, args=(devices, theirs), daemon=True)
    child.start()
    checked = initiator(devices, ours)
    child.join(LIMIT_S)
    if child.exitcode != 0:
        print(f"mooncake_check: the target ended with {child.exitcode}", file=sys.stderr)
        return 1
    print(f"mooncake_check: ok, {checked} pieces checked in {time.monotonic() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
