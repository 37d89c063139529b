#!/usr/bin/env python3
"""Runs fi_pingpong in a machine (`srd run --machine`) and compares what the devices' files say with what its processes have
counted (`SRD_STATS`), to the byte: of all devices together, and at once when the last process has ended.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

DEVICES = Path("/sys/class/infiniband")


def counted_by_files() -> dict[str, int]:
    sums: dict[str, int] = {}
    for file in DEVICES.glob("*/ports/1/hw_counters/*"):
        sums[file.name] = sums.get(file.name, 0) + int(file.read_text())
    del sums["lifespan"]
    return sums


def counted_by_processes(pattern: str) -> tuple[dict[str, int], int]:
    sums: dict[str, int] = {}
    processes = set()
    directory = Path(pattern).parent
    for file in directory.glob("*.json"):
        told = json.loads(file.read_text())
        processes.add(told["pid"])
        for name, count in told["device"].items():
            sums[name] = sums.get(name, 0) + count
    return sums, len(processes)


def main() -> None:
    before = counted_by_files()
    if any(before.values()):
        sys.exit(f"machine_check: a new machine has counted already: {before}")
    command = ["fi_pingpong", "-p", "efa", "-e", "rdm", "-I", "5", "-S", "all", "-c"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 300
    while subprocess.run([*command, "127.0.0.1"], stdout=subprocess.DEVNULL).returncode != 0:
        if server.poll() is not None or time.monotonic() > until:
            sys.exit("machine_check: fi_pingpong does not work")
        time.sleep(0.2)  # the server does not listen yet
    if server.wait() != 0:
        sys.exit("machine_check: the server of fi_pingpong has failed")
    files = counted_by_files()
    processes, how_many = counted_by_processes(os.environ["SRD_STATS"])
    wrong = {name: (count, processes[name]) for name, count in files.items() if count != processes[name]}
    if wrong or files["tx_bytes"] == 0:
        sys.exit(f"machine_check: files and processes differ: {wrong}, tx_bytes {files['tx_bytes']}")
    print(f"machine_check: ok, {len(files)} counters of {how_many} processes, tx_bytes {files['tx_bytes']}")


if __name__ == "__main__":
    main()
