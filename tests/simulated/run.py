#!/usr/bin/env python3
"""Unmodified programs, most of them of MPI, on simulated fabrics, in virtual time (docs/VIRTUAL.md): times by formula and beside scripts, answers of real
programs, the same output twice, and what is said of programs that cannot be simulated.

    tests/simulated/run.py              everything
    tests/simulated/run.py formula mpich   these only
    tests/simulated/run.py --list

The last line says `N passed, N failed`.
"""

import contextlib
import csv
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from harness import cases, layout
from harness.cases import Wrong, expect

HERE = Path(__file__).resolve().parent
BUILT = layout.TARGET / "simulated"
AT_ONCE = 2
"""Cases: each uses less than a core, and some wait for tens of seconds."""
COMPILING = threading.Lock()
LONGEST_S = 300
"""After that a run hangs, on a busy machine, too."""

FABRIC = {"leaves": 4, "spines": 4, "hosts_per_leaf": 4, "host_gbps": 100, "cable_us": 0.5}

FRAME = 221
"""Bytes of a frame with a message of 8 bytes and an ACK: 38 of Ethernet with preamble and gap, 28 of IP and UDP, the rest is ours."""

SLOW_UPLINK = '[[fault]]\nat_us = 0\nkind = "rate"\nlink = "leaf0-spine1"\nshare = 0.1\n'

SRD_BESIDE = '[[workload]]\nkind = "permutation"\nsize = "4MB"\n'
TCP_BESIDE = """
[[rival]]
name = "tcp"
kind = "tcp"

[[workload]]
kind = "permutation"
transport = "tcp"
persistent = true
"""

PREFIX = {mpi: layout.VENV / mpi for mpi in ("ompi", "mpich", "impi")}


def near(what: str, measured: float, wanted: float, within: float) -> None:
    expect(
        abs(measured - wanted) <= within * wanted,
        f"{what}: {measured:.4f}, wanted {wanted:.4f} within {within:.1%}",
    )


def scenario(name: str, extra: str = "", **changes) -> Path:
    lines = ["[fabric]", 'kind = "leaf-spine"']
    lines += [f"{key} = {value}" for key, value in {**FABRIC, **changes}.items()]
    place = BUILT / threading.current_thread().name  # of one case at a time
    place.mkdir(parents=True, exist_ok=True)
    file = place / f"{name}.toml"
    file.write_text("\n".join(lines) + "\n" + extra)
    return file


def compiled(source: Path, mpi: str) -> Path:
    """A C program for one of the MPIs of the wheels."""
    program = BUILT / f"{source.stem}-{mpi}"
    flags = ["-O2", "-pthread", *(["-fopenmp"] if source.stem == "openmp" else [])]
    with COMPILING:
        if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
            compiler = "mpicc.openmpi" if mpi == "debian" else str(PREFIX[mpi] / "bin/mpicc")
            environment = os.environ | {"LD_LIBRARY_PATH": str(PREFIX.get(mpi, Path()) / "lib")}
            subprocess.run([compiler, *flags, "-o", program, source], check=True, env=environment)
    return program


def patterns(mpi: str = "ompi") -> str:
    return str(compiled(HERE / "patterns.c", mpi))


def command(fabric: Path, ranks: int, *program: str, options: tuple[str, ...] = ()) -> list[str]:
    srd = [str(layout.SRD), "sim", "mpirun", "-n", str(ranks), "--fabric", str(fabric)]
    return [*srd, *options, "--", *map(str, program)]


def run(fabric: Path, ranks: int, *program: str, options: tuple[str, ...] = (), status: int | tuple[int, ...] = 0) -> str:
    """Both outputs of a run, which must end with that status, or one of those, and leave nothing behind."""
    line = command(fabric, ranks, *program, options=options)
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LONGEST_S, text=True)
    expect(
        done.returncode in (status if isinstance(status, tuple) else (status,)),
        f"status {done.returncode} instead of {status}: {' '.join(line)}\n{done.stdout[-2000:]}",
    )
    return done.stdout


def time_of(output: str) -> float:
    """What patterns.c says, in microseconds."""
    found = re.search(r": ([0-9.]+) us$", output, re.MULTILINE)
    expect(found is not None, f"no time in {output!r}")
    return float(found[1])


def formula() -> None:
    """Half a round trip within a leaf: two cables, and the frame is sent twice."""
    program = (patterns(), "ping-pong", "8", "20")

    def half(**changes) -> float:
        return time_of(run(scenario("formula", **changes), 2, *program))

    bits = FRAME * 8
    near("with cables of 5 us", half(cable_us=5.0), 2 * 5.0 + 2 * bits / 100_000, 0.005)
    for rate in (25, 400, 100):  # the last one's file stays, and docs/VIRTUAL.md names it
        near(f"at {rate} Gb/s", half(host_gbps=rate), 2 * 0.5 + 2 * bits / rate / 1000, 0.005)


def placed() -> None:
    """Ranks are where `--place` says, in whatever order: 0 and 1 in one leaf, or in two."""
    fabric = scenario("placed")
    for transport in ("srd", "tcp"):

        def half(place: str, transport: str = transport) -> float:
            options = ("--place", place, "--transport", transport)
            return time_of(run(fabric, 4, patterns(), "ping-pong", "8", "5", options=options))

        near(f"{transport}, one leaf", half("1,0,5,4"), half("0,1,4,5"), 0.001)
        near(f"{transport}, two leaves", half("4,1,0,5"), half("0,4,1,5"), 0.001)
        expect(half("4,1,0,5") > 1.5 * half("1,0,5,4"), "two leaves are as near as one")


def scripts() -> None:
    """Collectives beside the same messages of a `[[program]]` over the same messaging layer."""
    for operation, algorithm in (("all-reduce", "doubling"), ("all-to-all", "pairs")):
        for size in ("8", "8192", "32768"):
            text = f'[messages]\nlayer = "srd"\n[[program]]\nkind = "{operation}"\nsize = {size}\nhosts = 16\n'
            text += f'times = 5\nwarmup = 2\nalgorithm = "{algorithm}"\n'
            wanted = figure(text)
            measured = time_of(run(scenario("programs"), 16, patterns(), operation, size, "5"))
            near(f"{operation} of 16 ranks, {size} bytes", measured, wanted, 0.02)
    slow = {"host_gbps": 0.1, "cable_us": 1.0}  # what waits in a card takes long there
    text = '[transport]\nmtu = 1500\n'
    script = '[messages]\nlayer = "srd"\n[[program]]\nkind = "all-reduce"\nsize = 262144\nhosts = 8\ntimes = 2\nwarmup = 2\n'
    wanted = figure(text + script + 'algorithm = "doubling"\n', **slow)
    measured = time_of(run(scenario("slow", text, **slow), 8, patterns(), "all-reduce", "262144", "2"))
    near("all-reduce of 8 ranks at 0.1 Gb/s", measured, wanted, 0.03)


def figure(text: str, **changes) -> float:
    """The first mean that a script of this text tells."""
    line = [layout.SRD, "sim", scenario("script", text, **changes), "--json"]
    answer = subprocess.run(line, capture_output=True, check=True, text=True)
    return json.loads(answer.stdout)["programs"][0]["figures"][0]["mean"]


def shared() -> None:
    """Several ranks on a host, which talk through its memory, beside the same scripts; over other transports memory takes the same time."""
    messages = '[host]\nshared_memory = true\n[messages]\nlayer = "srd"\n[[program]]\n'

    def measured(operation: str, size: int, ranks: int, *options: str, **changes) -> float:
        program = (patterns(), operation, str(size), "5")
        return time_of(run(scenario("shared", **changes), ranks, *program, options=options))

    for size in (8, 65536):
        text = 'kind = "imb"\nbenchmark = "pingpong"\nhosts = 1\nper_host = 2\niterations = 5\nwarmup = 2\n'
        wanted = figure(messages + text + f"size = {size}\n")
        for gbps in (25, 100):  # memory has a rate of its own
            at = f"ping-pong of {size} bytes on a host of {gbps} Gb/s"
            near(at, measured("ping-pong", size, 2, "--per-host", "2", host_gbps=gbps), wanted, 0.02)
    for transport in ("tcp", "roce"):
        half = measured("ping-pong", 8, 2, "--per-host", "2", "--transport", transport)
        near(f"8 bytes on a host, {transport}", half, 0.3, 0.03)
    for size in (8, 65536, 262144):
        text = 'kind = "all-reduce"\nalgorithm = "doubling"\nhosts = 4\nper_host = 4\ntimes = 5\nwarmup = 2\n'
        wanted = figure(messages + text + f"size = {size}\n")
        near(f"all-reduce on four hosts, {size} bytes", measured("all-reduce", size, 16, "--per-host", "4"), wanted, 0.02)
    places = measured("ping-pong", 8, 4, "--place", "0,4,4,0")
    near("one leaf from the other, and not the other rank of the host", places, measured("ping-pong", 8, 2, "--place", "0,4"), 0.01)
    card = measured("ping-pong", 8, 2, "--per-host", "2", "--set", "host.shared_memory=false")
    expect(card > 1, f"{card} us through the card, to the switch and back")


def plain(*commands: str, options: tuple[str, ...] = (), status: int = 0) -> str:
    """Both outputs of programs of no MPI."""
    line = [str(layout.SRD), "sim", "run", "--fabric", str(scenario("plain")), *options, "--", *commands]
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LONGEST_S, text=True)
    expect(done.returncode == status, f"status {done.returncode} instead of {status}: {done.stdout[-2000:]}")
    return done.stdout


def libfabric() -> None:
    """A program of libfabric and no MPI: fi_pingpong's server and client, which meet by TCP, by the formula, twice, and what is refused."""
    half = "fi_pingpong -p srd -e rdm -S 8 -I 500".split()
    pair = (*half, ":", *half, "h0")

    def megabytes(options: tuple[str, ...] = ()) -> float:
        return float(plain(*pair, options=options).splitlines()[1].split()[5])

    frame = 186 * 8  # of 8 bytes and an ACK, without the tag that MPI's have
    near("a way between two hosts", 8 / megabytes(), 2 * 0.5 + 2 * frame / 100_000, 0.005)
    near("the same by the host's memory", 8 / megabytes(("--per-host", "2")), 0.3, 0.03)
    near("the same over TCP", 8 / megabytes(("--transport", "tcp")), 1.03, 0.02)
    outcomes = []
    for name in ("one", "other"):
        file = BUILT / f"plain-{name}.json"
        plain(*pair, options=("--json", str(file)))
        outcomes.append(json.loads(file.read_text()))
        del outcomes[-1]["cost"]
    expect(outcomes[0] == outcomes[1], f"two outcomes: {outcomes}")
    number = ("sh", "-c", f"test $SRD_SIM_RANK = 0 || sleep 0.3; exec {' '.join(half)} $(test $SRD_SIM_RANK = 0 || echo h0)")
    expect("us" in plain(*number, options=("-n", "2")), "one command twice")
    expect("a process has ended with code 3" in plain(*half, ":", "sh", "-c", "exit 3", status=3), "a process that fails")
    expect("2 ranks have not used" in plain("true", ":", "true", status=1), "programs that use no fabric")
    expect("nothing stands on one side" in plain("true", ":", status=1), "a colon too many")


def contents() -> None:
    """Long messages among 16 ranks, while an uplink dies: every byte is checked, and the transport has to send again."""
    fault = '[[fault]]\nat_us = 150\nkind = "down"\nlink = "leaf0-spine1"\n'
    outcome = BUILT / "contents.json"
    output = run(
        scenario("contents", fault),
        16,
        patterns(),
        "all-to-all",
        "100000",
        "3",
        options=("--json", str(outcome)),
    )
    time_of(output)
    counted = json.loads(outcome.read_text())
    expect(counted["packets_new"] > 3000, f"{counted['packets_new']} packets")
    expect(counted["packets_rtx"] > 0, "the link did not die under the program")


def twice() -> None:
    """The same outcome to the byte on a machine that is busy."""
    def outcome(name: str) -> tuple[str, dict]:
        file = BUILT / f"{name}.json"
        program = (patterns(), "all-to-all", "20000", "2")
        output = run(scenario("twice"), 8, *program, options=("--json", str(file)))
        answer = json.loads(file.read_text())
        del answer["cost"]
        return output.splitlines()[0], answer

    quiet = outcome("quiet")
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(2)]
    try:
        again = outcome("busy")
        expect(again == quiet, f"another outcome on a busy machine: {again} after {quiet}")
    finally:
        for program in busy:
            program.kill()
            program.wait()


def computing() -> None:
    """What computing costs is on the clock."""
    fabric = scenario("computing")
    line = (fabric, 2, patterns(), "ping-pong", "8", "20")
    zero = time_of(run(*line))
    fixed = time_of(run(*line, options=("--compute", "fixed:1")))
    measured = time_of(run(*line, options=("--compute", "measured")))
    expect(fixed > zero + 1, f"{fixed} us with a microsecond for each call, {zero} us without")
    expect(measured > zero + 0.2, f"{measured} us with what was computed, {zero} us without")


def mpich() -> None:
    near(
        "MPICH beside Open MPI",
        time_of(run(scenario("mpich"), 2, patterns("mpich"), "ping-pong", "8", "20", options=("--mpi", "mpich"))),
        time_of(run(scenario("mpich"), 2, patterns(), "ping-pong", "8", "20")),
        0.02,
    )


def intel() -> None:
    """IMB, which reads the processor's counter of time."""
    imb = PREFIX["impi"] / "bin/IMB-MPI1"
    output = run(
        scenario("intel"),
        4,
        str(imb),
        "-iter",
        "10",
        "-msglog",
        "3:10",
        "PingPong",
        "Allreduce",
        options=("--mpi", "impi"),
    )
    rows = re.findall(r"^ +8 +10 +([0-9.]+)", output, re.MULTILINE)
    expect(len(rows) == 3, f"IMB's rows of 8 bytes: {rows}")
    near("PingPong of 8 bytes", float(rows[0]), 1.03, 0.02)


def one_sided() -> None:
    """IMB's one-sided and non-blocking benchmarks: puts of no bytes take no time, and what waits for an answer takes a way there and back."""
    output = ""
    for binary, benchmarks in (("IMB-RMA", ("Unidir_put", "Truly_passive_put")), ("IMB-NBC", ("Ibcast",))):
        program = (str(PREFIX["impi"] / "bin" / binary), "-iter", "20", "-msglog", "3:4", "-npmin", "4", *benchmarks)
        output += run(scenario("one_sided"), 4, *program, options=("--mpi", "impi"))
    found = {size: float(us) for size, us in re.findall(r"^ +(0|8) +20 +([0-9.]+) +[0-9.]+$", output, re.MULTILINE)[:2]}
    expect(found.get("0", 1e9) < 1, f"a put of no bytes takes {found} us")
    expect(2.0 < found.get("8", 0) < 5.0, f"a put of 8 bytes takes {found} us")
    expect(output.count("All processes entering MPI_Finalize") == 2, output[-2000:])
    # Open MPI would read what is on one machine with it by a copy.
    program = (
        "from mpi4py import MPI; c = MPI.COMM_WORLD; w = MPI.Win.Allocate(1 << 20, comm=c); b = bytearray(1 << 20)\n"
        "memoryview(w)[:] = bytes([c.rank]) * (1 << 20); w.Fence(); t = MPI.Wtime()\n"
        "if c.rank == 0: w.Lock(1); w.Get(b, 1); w.Unlock(1); print('took', 1e6 * (MPI.Wtime() - t)); assert set(b) == {1}\n"
        "w.Fence(); w.Free()"
    )
    took = run(scenario("one_sided"), 2, str(PREFIX["ompi"] / "bin/python3"), "-c", program)
    expect(80 < float(re.search(r"took ([0-9.]+)", took)[1]) < 150, took)


def openmp() -> None:
    """Ranks whose threads compute: the sum that they come to without the simulator, and what they compute is on the clock if it is to be."""
    alone = re.compile(r"sum ([0-9.]+)$", re.MULTILINE)
    for mpi in ("debian", "mpich"):
        program = str(compiled(HERE / "openmp.c", mpi))
        outputs = [run(scenario("openmp"), 4, program, "3", options=("--mpi", mpi, "--compute", how)) for how in ("zero", "measured")]
        sums = [alone.findall(output) for output in outputs]
        expect(sums == [["1949678.500"]] * 2, f"sums: {sums}")
        expect(time_of(outputs[1]) > time_of(outputs[0]), f"{mpi}: computing takes no time")


def threads() -> None:
    """Threads of a rank that call MPI at once, and wait for each other."""
    fabric = scenario("threads")

    def took(mpi: str, count: int, rounds: int) -> float:
        program = str(compiled(HERE / "threads.c", mpi))
        return time_of(run(fabric, 2, program, str(count), str(rounds), options=("--mpi", mpi)))

    one, four = took("mpich", 1, 20), took("mpich", 4, 20)
    expect(one < four < 4 * one, f"{four} us for four threads, {one} us for one")
    expect(took("mpich", 4, 20) == four, "another time in another run")
    expect(took("mpich", 40, 3) == took("mpich", 40, 3), "forty threads: another time in another run")
    near("Open MPI beside MPICH", took("ompi", 2, 5), took("mpich", 2, 5), 0.1)


def many() -> None:
    """More ranks than one of MPICH's proxies can start."""
    fabric = scenario("many", leaves=32, spines=32, hosts_per_leaf=32, host_gbps=400)
    output = run(fabric, 512, patterns("mpich"), "all-reduce", "8", "2", options=("--mpi", "mpich"))
    # Nine steps, each of which takes no less than two cables, and no more than six and what eight bytes take at each of them.
    expect(9 * 1.0 <= time_of(output) <= 9 * 3.5, output)


def rivals() -> None:
    """The same program over other transports: beside scripts over them, and with every byte right while an uplink dies."""
    fabric = scenario("rivals")
    for name, sets in (
        ("tcp", ("transport.kind=tcp",)),
        ("roce-pfc", ("transport.kind=roce", "transport.dcqcn=false", "transport.class=3", "queues.lossless=[3]")),
        ("nscc", ("transport.kind=nscc", "queues.ecn_min=0.2bdp", "queues.ecn_max=0.8bdp")),
    ):
        for size in ("8", "1048576"):
            text = f'[[program]]\nkind = "imb"\nbenchmark = "pingpong"\nsize = {size}\nhosts = 2\niterations = 10\nwarmup = 2\n'
            line = [layout.SRD, "sim", scenario("rival-script", text), "--json"]
            line += [word for item in sets for word in ("--set", item)]
            answer = subprocess.run(line, capture_output=True, check=True, text=True)
            wanted = json.loads(answer.stdout)["programs"][0]["figures"][0]["mean"]
            output = run(fabric, 2, patterns(), "ping-pong", size, "10", options=("--transport", name))
            near(f"{name}, {size} bytes", time_of(output), wanted, 0.02)
    dies = scenario("rivals-fault", '[[fault]]\nat_us = 100\nkind = "down"\nlink = "leaf0-spine1"\n')
    file = BUILT / "rivals.json"
    names = ["srd", "srd-trim", "tcp", "iwarp", "roce", "nscc-trim", "rccc", "mrc"]
    options = ("--transport", ",".join(names), "--json", str(file), "--mpi", "mpich")
    run(dies, 8, patterns("mpich"), "all-to-all", "100000", "2", options=options)
    runs = json.loads(file.read_text())["runs"]
    expect([it["over"] for it in runs] == names, f"{runs}")
    expect(all(it["packets_new"] > 8 * 7 * 4 * 11 for it in runs), f"{runs}")


def mpi4py() -> None:
    """Python, which loads the MPI's library for its module only."""
    program = (
        "from mpi4py import MPI; c = MPI.COMM_WORLD; n = 100000; a, b = bytes([c.rank + 1]) * n, bytearray(n)\n"
        "c.Sendrecv(a, dest=1 - c.rank, recvbuf=b, source=1 - c.rank); assert b == bytes([2 - c.rank]) * n\n"
        "assert c.allgather({'r': c.rank}) == [{'r': 0}, {'r': 1}]; c.barrier(); began = MPI.Wtime()\n"
        "for _ in range(20): c.barrier()\n"
        "if c.rank == 0: print(f'a barrier: {(MPI.Wtime() - began) / 20 * 1e6:.4f} us')"
    )
    for mpi in ("ompi", "mpich"):
        python = str(PREFIX[mpi] / "bin/python3")
        output = run(scenario("mpi4py"), 2, python, "-c", program, options=("--mpi", mpi))
        near(f"a barrier of two over {mpi}", time_of(output), 1.03, 0.05)  # a way through the fabric


def waits() -> None:
    """Waits until a time end at that time; threads that wait can be cancelled; a thread that was joined has computed."""
    for mpi, level in (("ompi", "0"), ("mpich", "0"), ("mpich", "3")):
        program = str(compiled(HERE / "waits.c", mpi))
        output = run(scenario("waits"), 2, program, level, options=("--mpi", mpi))
        expect("waits: right" in output, output)
    for level in ("0", "3"):
        program = str(compiled(HERE / "waits.c", "mpich"))
        output = run(scenario("waits"), 2, program, level, "measured", options=("--mpi", "mpich", "--compute", "measured"))
        expect("waits: right" in output, output)


def outside() -> None:
    """While a rank waits for something of the machine's, and the others for it, time goes no faster than the machine's; at its next look it sees that."""
    program = (
        "import sys; from mpi4py import MPI; c = MPI.COMM_WORLD; c.barrier(); began = MPI.Wtime()\n"
        "c.rank == 0 and sys.stdin.readline(); c.barrier(); print(f'waited: {(MPI.Wtime() - began) * 1e6:.4f} us')"
    )
    python = str(PREFIX["mpich"] / "bin/python3")
    line = command(scenario("outside"), 2, python, "-c", program, options=("--mpi", "mpich"))
    began = time.monotonic()
    running = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    time.sleep(2)
    output, _ = running.communicate("go\n", timeout=LONGEST_S)
    took = 1e6 * (time.monotonic() - began)
    expect(running.returncode == 0 and 0.5e6 < time_of(output) < took, f"{took:.0f} us of the machine's: {output}")


def polls() -> None:
    """Calls that find nothing take next to no time, however often they are made."""
    for mpi in ("ompi", "debian", "mpich"):
        output = run(scenario("polls"), 2, str(compiled(HERE / "polls.c", mpi)), options=("--mpi", mpi))
        expect("polls: right" in output, output)


def captured() -> None:
    """A cable's packets in a file: the program's own bytes, in frames that are right to the last checksum."""
    said = "bytes of a real program "
    program = (
        f"from mpi4py import MPI; c = MPI.COMM_WORLD; a, b = b'{said}' * 20, bytearray({20 * len(said)})\n"
        "c.Sendrecv(a, dest=1 - c.rank, recvbuf=b, source=1 - c.rank); assert b == a"
    )
    python, out = str(PREFIX["ompi"] / "bin/python3"), BUILT / "captured"
    options = ("--pcap", "h0-leaf0", "--out", str(out), "--snap-len", "65549")
    output = run(scenario("captured"), 2, python, "-c", program, options=options)
    expect("h0-leaf0.pcap" in output, output)
    show = ["tshark", "-r", out / "h0-leaf0.pcap", "-o", "udp.check_checksum:TRUE", "-T", "fields"]
    show += ["-e", "udp.checksum.status", "-e", "data.data", "-e", "ip.src"]
    lines = subprocess.run(show, check=True, capture_output=True, text=True).stdout.splitlines()
    rows = [line.split("\t") for line in lines]
    expect(len(rows) > 4 and all(row[0] == "1" for row in rows), f"frames with wrong checksums: {rows}")
    whole = (said * 20).encode().hex()
    expect({row[2] for row in rows if whole in row[1]} == {"10.0.0.0", "10.0.0.1"}, f"not both ranks' bytes: {rows}")
    over_tcp = run(scenario("captured"), 2, python, "-c", program, options=(*options, "--transport", "srd,tcp"), status=1)
    expect("leave out the other transports" in over_tcp, over_tcp)


def table(file: Path) -> list[dict]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def calls() -> None:
    """Calls of MPI as a table and as a timeline, and what delayed the slowest of them, in C and in Fortran."""
    fabric, out = scenario("calls", SLOW_UPLINK), BUILT / "calls"
    program = (patterns(), "all-to-all", "100000", "3")
    plain, noted = BUILT / "calls-plain.json", BUILT / "calls-noted.json"
    run(fabric, 8, *program, options=("--json", str(plain)))
    run(fabric, 8, *program, options=("--json", str(noted), "--out", str(out), "--trace"))
    outcomes = [json.loads(file.read_text()) | {"cost": None} for file in (plain, noted)]
    expect(outcomes[0] == outcomes[1], "a run that is looked at comes to another outcome")
    rows = table(out / "calls.csv")
    times = [(float(row["begin_us"]), float(row["end_us"])) for row in rows]
    expect(all(begin <= end <= outcomes[0]["sim_us"] for begin, end in times), "times")
    of = {rank: [row["call"] for row in rows if row["rank"] == str(rank)] for rank in range(8)}
    long = [row for row in rows if row["call"] == "MPI_Isend" and row["bytes"] == "100000"]
    expect(len(long) == 8 * 7 * 5 and of[0][-2:] == ["MPI_Reduce", "MPI_Finalize"], f"{len(long)}, {of[0]}")
    expect(all(of[rank] == of[0] for rank in of), "ranks differ in their calls")
    expect({row["peer"] for row in long if row["rank"] == "3"} == {"0", "1", "2", "4", "5", "6", "7"}, "peers")
    timeline = json.loads((out / "timeline.json").read_text())["traceEvents"]
    expect(sum(event["ph"] == "X" for event in timeline) == len(rows), "the timeline has other calls")
    page = (out / "index.html").read_text()
    expect("MPI_Waitall" in page and "point to point" in page, "the page")
    srd = str(layout.SRD)
    told = subprocess.run([srd, "trace", "--json", out / "trace.jsonl"], check=True, capture_output=True, text=True)
    chains = [call["chain"] for call in json.loads(told.stdout)["calls"]]
    expect(len(chains) == 3 and all(chains), told.stdout[:500])
    ports = {queue["port"] for call in json.loads(told.stdout)["calls"] for queue in call["slowest"]["queues"]}
    expect("leaf0->spine1" in ports, f"the slow uplink is not named: {ports}")
    late = "import time; from mpi4py import MPI; c = MPI.COMM_WORLD; b = bytearray(1000); c.Barrier()\n"
    late += "if c.rank == 1: time.sleep(5e-4); c.Send(b, 0)\nelif c.rank == 0: c.Recv(b, 1)"
    options = ("--out", str(out), "--trace", "--place", "0,4")
    run(fabric, 2, str(PREFIX["ompi"] / "bin/python3"), "-c", late, options=options)
    told = subprocess.run([srd, "trace", "--json", out / "trace.jsonl"], check=True, capture_output=True, text=True)
    slowest = json.loads(told.stdout)["calls"][0]
    last = slowest["chain"][0]
    expect((slowest["call"], last["from"], last["sender_in"]) == ("MPI_Recv", "rank 1", "MPI_Send"), str(slowest)[:500])
    expect(last["began_us"] - slowest["began_us"] > 490, "the message of the rank that slept is not the last")
    ring = BUILT / "ring"
    subprocess.run(["mpifort.openmpi", "-O", "-o", ring, HERE / "ring.f90"], check=True)
    output = run(fabric, 4, str(ring), options=("--mpi", "debian", "--out", str(out)))
    expect("sum of a ring:    6.0" in output, output)
    rows = [(row["call"], row["peer"], row["bytes"]) for row in table(out / "calls.csv") if row["rank"] == "1"]
    expect(rows == [("MPI_Sendrecv", "2", "8000")] * 5 + [("MPI_Reduce", "0", "8"), ("MPI_Finalize", "", "")], str(rows))


def replayed() -> None:
    """Messages of a program, recorded once, take about as long when the simulator plays them."""
    out = BUILT / "replayed"
    at_once = '[messages]\neager_limit = "1GB"\neager_buffer = "1GB"\nheader = 1\n'
    for cable_us, within in ((5.0, 0.01), (0.5, 0.15)):  # measured: 0.2 %; 10 to 14 % longer
        options = ("--out", str(out), "--trace", "--json", str(BUILT / "replayed.json"))
        run(scenario("replayed", cable_us=cable_us), 16, patterns(), "all-to-all", "65536", "3", options=options)
        real = json.loads((BUILT / "replayed.json").read_text())["sim_us"]
        text = f'{at_once}[[program]]\nkind = "goal"\nfile = "{out}/messages.goal"\n'
        line = [layout.SRD, "sim", scenario("replay", text, cable_us=cable_us), "--json"]
        played = json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)["sim_us"]
        near(f"played with cables of {cable_us} us", played, real, within)


def extrapolated() -> None:
    """A program's calls, played without it: as long as it took, four copies over two transports, and what is wrong with a file."""
    out, fabric = BUILT / "extrapolated", scenario("extrapolated")

    def played(of: Path, copies: int, *options: str) -> float:
        text = f'[messages]\nlayer = "srd"\n[[program]]\nkind = "calls"\nfile = "{of}"\ncopies = {copies}\n'
        line = [layout.SRD, "sim", scenario("copies", text), "--json", *options]
        done = subprocess.run(line, capture_output=True, text=True)
        expect(done.returncode == 0, done.stderr)
        return json.loads(done.stdout)["programs"][0]["figures"][0]["most"]

    for operation in ("all-reduce", "all-to-all"):
        run(fabric, 8, patterns(), operation, "65536", "3", options=("--out", str(out)))
        ended = [float(row["begin_us"]) for row in table(out / "calls.csv") if row["call"] == "MPI_Finalize"]
        near(f"{operation}, played", played(out / "calls.csv", 1), max(ended), 0.03)
    program = (
        "from mpi4py import MPI; c = MPI.COMM_WORLD; half = c.Split(c.rank % 2); b = bytearray(1000)\n"
        "for _ in range(20): c.Barrier(); half.Allgather(b, bytearray(4000))\n"
        "a = c.Irecv(b, MPI.ANY_SOURCE, 2) if c.rank == 0 else c.Isend(b, 0, 2) if c.rank == 5 else MPI.REQUEST_NULL; a.Wait()"
    )
    run(fabric, 8, str(PREFIX["ompi"] / "bin/python3"), "-c", program, options=("--out", str(out)))
    rows = table(out / "calls.csv")
    expect(len({row["comm"] for row in rows if row["call"] == "MPI_Allgather"}) == 2, "the halves are not told apart")
    once, twice = played(out / "calls.csv", 1), played(out / "calls.csv", 2)
    expect(1.1 * once < twice < 2 * once, f"{once} us alone, {twice} us two copies: a barrier has a round more")
    for wrong, what in (("nothing.csv", "no such file"), ("outcome.json", "is not the table's first line"), ("calls.csv", "3 times 8")):
        try:
            played(out / wrong, 3)
        except Wrong as told:
            expect(what in str(told), str(told))
            continue
        raise Wrong(f"{wrong} is played")


def recorded() -> None:
    """What was computed in one run, in others: to the byte the same, near to what was measured, and another program is told apart."""
    out, deck = BUILT / "recorded", str(layout.ROOT / "demo/melt.lmp")
    program = ("lmp", "-in", deck, "-log", "none", "-var", "steps", "20", "-var", "cells", "8")
    loop = re.compile(r"Loop time of ([0-9.]+)")

    def took(compute: str, *options: str) -> float:
        output = run(scenario("recorded"), 4, *program, options=("--mpi", "debian", "--compute", compute, *options))
        return float(loop.search(output)[1])

    measured = took("measured", "--out", str(out))
    again = [took(f"recorded:{out}/calls.csv", "--json", str(BUILT / f"again-{n}.json")) for n in range(2)]
    outcomes = [json.loads((BUILT / f"again-{n}.json").read_text()) | {"cost": None} for n in range(2)]
    expect(outcomes[0] == outcomes[1], "two runs of one record differ")
    expect(again[0] > 3 * took("zero"), "the record is not followed")
    near("the loop", again[0], measured, 0.3)
    other = run(scenario("recorded"), 4, patterns(), "ping-pong", "8", "2", options=("--compute", f"recorded:{out}/calls.csv"))
    expect("has made other calls of MPI than were recorded" in other, other)
    fewer = ("--compute", f"recorded:{out}/calls.csv")
    expect("there are 2 ranks now" in run(scenario("recorded"), 2, patterns(), "ping-pong", "8", "2", options=fewer, status=1), "2")
    for file in ("nothing.csv", "outcome.json"):
        options = ("--compute", f"recorded:{out / file}")
        output = run(scenario("recorded"), 4, patterns(), "ping-pong", "8", "2", options=options, status=1)
        expect(file in output and ("No such file" in output or "calls.csv" in output), output)


def beside() -> None:
    """Flows of SRD and of TCP beside a program: both come through, the program is later, and two runs are the same."""

    def took(extra: str, *options: str) -> tuple[float, dict]:
        file = BUILT / "beside.json"
        options = ("--place", "0,4,8,12", "--json", str(file), *options)
        time = time_of(run(scenario("beside", extra), 4, patterns(), "all-to-all", "65536", "5", options=options))
        return time, json.loads(file.read_text()) | {"cost": None}

    alone, _ = took("")
    srd, outcome = took(SRD_BESIDE)
    expect((outcome["flows"], outcome["finished"]) == (16, 16) and outcome["packets_new"] > 16 * 440, str(outcome["flows"]))
    expect(1.1 * alone < srd < 4 * alone, f"{alone} us alone, {srd} beside flows of SRD")
    tcp, outcome = took(TCP_BESIDE)
    expect(outcome["flows"] == 16 and 1.5 * alone < tcp < 20 * alone, f"{alone} us alone, {tcp} beside flows of TCP")
    expect(took(TCP_BESIDE)[1] == outcome, "two runs differ")
    nscc, outcome = took(SRD_BESIDE, "--transport", "nscc")
    expect(outcome["runs"][0]["finished"] == 16 and alone < nscc < 4 * alone, f"{alone} us alone, {nscc} beside NSCC's")


def jobs() -> None:
    """Two jobs on one fabric, each an MPI_COMM_WORLD of its own: the first is slower, the second is ended with it, and two runs are the same."""
    fabric, out = scenario("jobs", spines=1), BUILT / "jobs"
    alone = ("all-to-all", "65536", "3")
    endless = ("all-to-all", "65536", "100000")
    elsewhere = ("-n", "8", "--place", "1,5,9,13,2,6,10,14")

    def took(*second: str, options: tuple[str, ...] = (), status: int = 0) -> tuple[float, dict, str]:
        file = BUILT / "jobs.json"
        options = ("--place", "0,4,8,12", "--json", str(file), *options)
        output = run(fabric, 4, patterns(), *alone, *second, options=options, status=status)
        answer = json.loads(file.read_text())
        return time_of(output) if status == 0 else 0, answer["runs"][0] if "runs" in answer else answer, output

    for transport in ("srd", "tcp"):
        options = ("--transport", transport)
        by_itself, outcome, _ = took(options=options)
        expect("jobs" not in outcome, f"one job: {outcome.get('jobs')}")
        others = [took("--beside", *elsewhere, "--", patterns(), *endless, options=options) for _ in range(2)]
        (late, outcome, output), again = others
        expect(1.2 * by_itself < late < 4 * by_itself, f"{transport}: {by_itself} us alone, {late} beside another job")
        expect([job["ranks"] for job in outcome["jobs"]] == [4, 8] and "2 jobs of 4 and 8 ranks" in output, output)
        expect(outcome["jobs"][0]["ended_us"] and outcome["jobs"][1]["ended_us"] is None, str(outcome["jobs"]))
        expect(outcome | {"cost": None} == again[1] | {"cost": None}, f"{transport}: two runs differ: {outcome}, {again[1]}")
    theirs = ("--beside", "-n", "2", "--", patterns(), "ping-pong", "8", "5")
    _, outcome, output = took(*theirs, options=("--out", str(out), "--trace"))
    expect("ping-pong of 8 bytes" in output and "job 1 was at its end at" in output, output)
    expect(0 < outcome["jobs"][1]["ended_us"] < outcome["jobs"][0]["ended_us"], str(outcome["jobs"]))
    with open(out / "calls.csv") as table:
        rows = {(row["job"], row["rank"]) for row in csv.DictReader(table)}
    expect(rows == {("0", str(rank)) for rank in range(4)} | {("1", "0"), ("1", "1")}, str(rows))
    expect("rank 1 of job 1, h14" in (out / "timeline.json").read_text(), "the timeline")
    expect("job 1" in (out / "index.html").read_text(), "the page")
    expect('"job":1,"rank":1,' in (out / "trace.jsonl").read_text(), "the trace")
    said = subprocess.run([layout.SRD, "trace", out / "trace.jsonl", "--slowest", "1"], capture_output=True, text=True)
    expect("of job 0, MPI_" in said.stdout, said.stdout + said.stderr)
    _, outcome, output = took("--beside", "-n", "1", "--", "sh", "-c", "exit 3", status=3)
    expect(outcome["ended_by"] == "beside" and "the launcher of job 1 has ended with code 3" in output, output)
    _, _, output = took("--beside", "-n", "2", "--", "true", status=1)
    expect("2 ranks of job 1 have not used the simulated fabric" in output, output)
    refused = (patterns(), *alone, "--beside")
    expect("is to run on h16" in run(fabric, 4, *refused, "-n", "13", "true", status=1), "too many ranks")
    expect("--place names 1 hosts for 2" in run(fabric, 4, *refused, "-n", "2", "--place", "1", "true", status=1), "places")
    expect("-n <N>" in run(fabric, 4, *refused, "true", status=2), "a job without ranks")
    expect("--mpi is no option of a job" in run(fabric, 4, *refused, "-n", "2", "--mpi", "mpich", "true", status=1), "an MPI of its own")
    expect("<CMD>" in run(fabric, 4, *refused, "-n", "2", status=2), "a job without a command")


def lammps() -> None:
    """The same answer as without a network."""
    deck = str(layout.ROOT / "demo/melt.lmp")
    arguments = ("lmp", "-in", deck, "-log", "none", "-var", "steps", "20", "-var", "cells", "8")
    steps = re.compile(r"^ +(\d+ +[-0-9.]+ +[-0-9.]+ .*)$", re.MULTILINE)
    alone = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=LONGEST_S)
    output = run(scenario("lammps"), 8, *arguments, options=("--mpi", "debian", "--compute", "measured"))
    numbers = [[line.split()[:2] for line in steps.findall(text)] for text in (alone.stdout, output)]
    expect(len(numbers[0]) > 1 and numbers[0] == numbers[1], f"{numbers[0][-3:]} alone, {numbers[1][-3:]} simulated")


def refused() -> None:
    """What cannot be simulated is named."""
    fabric = scenario("refused")
    output = run(fabric, 17, "true", status=1)
    expect("has 16 hosts" in output, output)
    output = run(scenario("traffic", '[[program]]\nkind = "barrier"\n'), 2, "true", status=1)
    expect("here a real one runs" in output, output)
    output = run(fabric, 2, "true", status=1)
    expect("2 ranks have not used the simulated fabric" in output, output)
    output = run(fabric, 2, "sh", "-c", "exit 3", status=3)
    expect("ended with code 3" in output, output)
    output = run(fabric, 33, "true", options=("--per-host", "2"), status=1)
    expect("is to run on h16" in output and "--per-host" in output, output)
    output = run(fabric, 2, "true", options=("--transport", "tcp,srd,tcp"), status=1)
    expect("names tcp twice" in output, output)
    output = run(scenario("messages", '[messages]\nlayer = "srd"\n'), 2, "true", status=1)
    expect("here a real one runs" in output, output)
    for mpi, other, library in (("ompi", "mpich", "libmpi.so.12"), ("mpich", "ompi", "libmpi.so.40")):
        output = run(fabric, 2, patterns(other), options=("--mpi", mpi), status=1)
        expect(f"is linked with {library}" in output and f"--mpi {other}" in output, output)
    begun = time.monotonic()
    program = (patterns(), "ping-pong", "8", "1000000")
    output = run(fabric, 2, *program, options=("--json", str(BUILT / "nowhere/x.json")), status=1)
    expect("cannot write" in output and time.monotonic() - begun < 5, output)


def early() -> None:
    """Time that comes to the end that the file names, a fabric that is cut, and a rank that ends before the others."""
    file = BUILT / "early.json"

    def ended(fabric: Path, *program: str, status: int | tuple[int, ...], options: tuple[str, ...] = ()) -> tuple[str, dict]:
        began = time.monotonic()
        output = run(fabric, 2, *program, options=(*options, "--json", str(file)), status=status)
        expect(time.monotonic() - began < 15, f"it stood still: {output}")
        answer = json.loads(file.read_text())
        return output, answer["runs"][0] if "runs" in answer else answer

    short = scenario("early", leaves=1)
    short.write_text("end_us = 100\n" + short.read_text())
    output, answer = ended(short, patterns(), "ping-pong", "8", "100000", status=124)
    expect("end_us = 100 was reached" in output and "2 of 2 ranks" in output, output)
    expect((answer["ended_by"], answer["sim_us"]) == ("end_us", 100.0), f"{answer}")

    cut = "".join(f'[[fault]]\nat_us = 0\nkind = "down"\nlink = "leaf0-spine{spine}"\n' for spine in range(2))
    cut = scenario("cut", cut, spines=2, hosts_per_leaf=1)
    output, answer = ended(cut, patterns(), "ping-pong", "8", "5", status=1)
    expect("is there a way to it in the simulated fabric" in output and "standstill" not in output, output)
    expect((answer["ended_by"], answer["code"]) == ("launcher", 1), f"{answer}")
    options = ("--transport", "tcp")
    output, answer = ended(cut, patterns(), "ping-pong", "8", "5", status=1, options=options)
    expect(answer["ended_by"] == "transport" and "rank 0 to rank 1 has failed" in answer["gave_up"][0], f"{answer}")
    expect(answer["gave_up"][0] in output, output)

    program = str(compiled(HERE / "leaves.c", "mpich"))
    # MPICH's launcher kills rank 0, and now and then says so by its code.
    output, answer = ended(scenario("leaves"), program, status=(0, 9), options=("--mpi", "mpich"))
    expect("rank 1 has ended without MPI_Finalize" in output, output)


def endless() -> None:
    """A rank in a loop without a call is named while it runs; one that waits for ever ends the run, also while others go on."""
    python = str(PREFIX["ompi"] / "bin/python3")
    waits = "from mpi4py import MPI\nif MPI.COMM_WORLD.rank == 0: MPI.COMM_WORLD.Recv(bytearray(8))"
    line = command(scenario("stands-still", TCP_BESIDE), 2, python, "-c", waits, options=("--place", "1,2"))
    stands = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    program = "from mpi4py import MPI\nwhile MPI.COMM_WORLD.rank: pass\nMPI.COMM_WORLD.Barrier()"
    line = command(scenario("endless"), 2, python, "-c", program)
    started = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    timers = [threading.Timer(LONGEST_S, program.kill) for program in (stands, started)]
    [timer.start() for timer in timers]
    named = any("has computed for 10 s without a call of MPI" in said for said in started.stderr)
    started.send_signal(signal.SIGINT)
    started.communicate()
    said = stands.communicate()[1]
    [timer.cancel() for timer in timers]
    expect(named and started.returncode == 130, f"named: {named}, status {started.returncode}")
    told = "standstill: nothing has happened for 20 s: 2 ranks wait for the fabric (1 of them in MPI_Finalize)"
    expect(told in said and stands.returncode == 1, f"status {stands.returncode}, {said}")


def interrupted() -> None:
    """Signals end everything, the one that srd does not see as well, and nothing is left of it."""
    fabric = scenario("interrupted")

    def ends(mpi: str, *signals: int, jobs: int = 1) -> None:
        program = f"{patterns(mpi)}-interrupted"  # not the name of what others run at the same time
        Path(program).unlink(missing_ok=True)
        os.link(patterns(mpi), program)
        work = (program, "all-to-all", "100000", "1000000")
        line = command(fabric, 4, *work, options=("--mpi", mpi)) + ["--beside", "-n", "4", *work] * (jobs - 1)
        those = 1 + jobs * (1 + 4)
        with tempfile.TemporaryDirectory() as rooms, contextlib.ExitStack() as stack:
            environment = os.environ | {"TMPDIR": rooms}
            started = stack.enter_context(
                subprocess.Popen(
                    line,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    env=environment,
                    preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # which nohup has ignored
                )
            )
            stack.callback(started.kill)
            pattern = f"^{program} |srd sim guard --simulator {started.pid} "

            def theirs() -> list[str]:
                found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True)
                return found.stdout.split() + os.listdir(rooms)

            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and len(theirs()) < those:
                time.sleep(0.05)
            time.sleep(2)
            expect(len(theirs()) == those, f"a directory, and of each job a guard and four ranks: {theirs()}")
            for number in signals:
                started.send_signal(number)
            _, output = started.communicate(timeout=60)
            wanted = -signal.SIGKILL if signal.SIGKILL in signals else 130
            expect(started.returncode == wanted, f"status {started.returncode} after {signals}: {output[-500:]}")
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline and theirs():
                time.sleep(0.05)
            expect(not theirs(), f"left after {signals}: {theirs()}")

    ends("ompi", signal.SIGINT)
    ends("ompi", signal.SIGINT, signal.SIGINT)
    ends("mpich", signal.SIGTERM)
    ends("ompi", signal.SIGHUP)
    ends("ompi", signal.SIGKILL)
    ends("mpich", signal.SIGKILL)
    ends("ompi", signal.SIGINT, jobs=2)
    ends("mpich", signal.SIGKILL, jobs=3)


CASES: list[Callable[[], None]] = [
    formula,
    placed,
    scripts,
    shared,
    libfabric,
    contents,
    twice,
    computing,
    mpich,
    intel,
    one_sided,
    openmp,
    threads,
    many,
    rivals,
    mpi4py,
    waits,
    outside,
    polls,
    captured,
    calls,
    replayed,
    extrapolated,
    recorded,
    beside,
    jobs,
    lammps,
    refused,
    early,
    endless,
    interrupted,
]


if __name__ == "__main__":
    BUILT.mkdir(parents=True, exist_ok=True)
    sys.exit(cases.main(__doc__, CASES, AT_ONCE))
