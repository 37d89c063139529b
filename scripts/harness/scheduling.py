"""Puts this process and all that it starts into one scheduling group.

Where the kernel groups processes by session (`sched(7)`, "The autogroup feature"), each MPI rank that a launcher's
daemon starts is a group of its own. With more ranks than processors, the group's share on a processor on which only
its progress thread is awake is next to nothing, and that thread waits for 100 ms and more. Hosts of their own have
no such trouble: it is the price of several hosts on one, and a control group that holds all of them avoids it.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")


def _autogroup_applies() -> bool:
    """Whether it is on, and this process is in the root control group of the processor controller: only there it acts."""
    try:
        if AUTOGROUP.read_text().strip() != "1":
            return False
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return False
    of_processor = [path for _, controllers, path in groups if "cpu" in controllers.split(",")]
    unified = [path for number, _, path in groups if number == "0"]
    return all(path == "/" for path in of_processor or unified)


def _root_group() -> Path | None:
    """The mounted root of the hierarchy that has the processor controller, version 1 or 2."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup" and "cpu" in options.split(","):
            return Path(where)
        if kind == "cgroup2" and "cpu" in (Path(where) / "cgroup.controllers").read_text().split():
            return Path(where)
    return None


@contextlib.contextmanager
def one_group(name: str) -> Iterator[str | None]:
    """Within it, this process is in a control group of its own. Yields why not, if that was needed and impossible."""
    if not _autogroup_applies():
        yield None
        return
    try:
        root = _root_group()
        if root is None:
            raise OSError("no control group hierarchy with the processor controller is mounted")
        if (root / "cgroup.subtree_control").exists():
            (root / "cgroup.subtree_control").write_text("+cpu")
        group = root / f"{name}-{os.getpid()}"
        group.mkdir()
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as error:
        yield f"{error}; with {AUTOGROUP} at 1, expect pauses of 100 ms and more that hosts of their own do not have"
        return
    try:
        yield None
    finally:
        (root / "cgroup.procs").write_text(str(os.getpid()))
        with contextlib.suppress(OSError):  # a process that has not ended yet
            group.rmdir()
