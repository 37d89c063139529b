"""OpenSRD from a wheel: the command `srd`, the software EFA's libraries, the libfabric provider, and hosts for tests.

    import opensrd, subprocess
    subprocess.run(["ibv_devinfo"], env=opensrd.environment())

The pytest plugin (fixture `efa_hosts`) is in `opensrd.pytest_plugin`, what it gives in `opensrd.hosts`.
"""

import json
import os
import platform
import subprocess
from pathlib import Path


class NotUsable(Exception):
    """OpenSRD cannot do here what it was asked for. The message says why, and what to do."""


def command() -> Path:
    """The command `srd` of this package."""
    srd = Path(__file__).with_name("bin") / "srd"
    if not os.access(srd, os.X_OK):
        raise NotUsable(
            f"no executable {srd}: this installation of opensrd has no srd for {platform.machine()}\n"
            "  install the wheel of this architecture (pip install --force-reinstall opensrd), or build one: make packages"
        )
    return srd


# What `srd env` takes for each way to reach OpenSRD.
_LAYERS = {
    "efa": ["--efa"],
    "provider": ["--provider"],
    "provider-as-efa": ["--provider", "--as-efa"],
}


def environment(over: str = "efa", *, preload: bool = False, base: "dict[str, str] | None" = None) -> "dict[str, str]":
    """The environment of a program that is to run over OpenSRD: `base` (that of this process) and what `srd env` adds.

    `over`: "efa" (the software EFA), "provider" (libfabric's provider srd), "provider-as-efa" (that under the name efa).
    `preload`: also force the software EFA's libraries in, for programs that bundle a libibverbs of their own.
    """
    if over not in _LAYERS:
        raise NotUsable(f"over={over!r}: it is one of {', '.join(_LAYERS)}")
    base = dict(os.environ if base is None else base)
    arguments = ["env", "--json", *_LAYERS[over], *(["--preload"] if preload else [])]
    answer = subprocess.run([command(), *arguments], env=base, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if answer.returncode:
        raise NotUsable(answer.stderr.strip())
    return {**base, **json.loads(answer.stdout)}
