"""Whether an application computed over a transport what it computes over kernel TCP."""

import re

from harness import physics

# Sizes and seeds follow from the input alone, so they must be equal; residuals and errors only show that the result
# is one, since the order of a sum is the network's choice.
HPCC_EQUAL = (
    "CommWorldProcs",
    "HPL_N",
    "PTRANS_n",
    "MPIRandomAccess_N",
    "MPIFFT_N",
    "STREAM_VectorSize",
    "DGEMM_N",
)
HPCC_AT_MOST = {"PTRANS_residual": 1e-9, "MPIRandomAccess_ErrorsFraction": 0.01, "MPIFFT_maxErr": 1e-9}

ESPRESSO = (
    ("the energy (Ry)", r"(?m)^!\s+total energy\s+=\s+(\S+) Ry", 1e-6),
    ("the force (Ry/bohr)", r"Total force =\s+(\S+)", 1e-5),
    ("the pressure (kbar)", r"P=\s+(\S+)", 0.05),
)


def lammps(output: str, over_tcp: str) -> str | None:
    compared = physics.compare(physics.rows(over_tcp.splitlines()), physics.rows(output.splitlines()))
    return None if compared.same else f"the physics is not that of TCP: {compared}"


def hpcc(output: str, over_tcp: str) -> str | None:
    if "FAILED" in output:
        return next(line for line in output.splitlines() if "FAILED" in line)
    found, wanted = _hpcc_values(output), _hpcc_values(over_tcp)
    for name in HPCC_EQUAL:
        if name not in wanted or found.get(name) != wanted[name]:
            return f"{name} is {found.get(name)}, over TCP {wanted.get(name)}"
    for name, limit in HPCC_AT_MOST.items():
        if name not in found or not abs(float(found[name])) <= limit:
            return f"{name} is {found.get(name)}, should be at most {limit}"
    return None


def espresso(output: str, over_tcp: str) -> str | None:
    """Both end their iterations at an error of 1e-9 Ry, so they differ by little more."""
    for name, pattern, limit in ESPRESSO:
        found, wanted = (re.findall(pattern, text) for text in (output, over_tcp))
        if len(wanted) != 1 or len(found) != 1 or abs(float(found[0]) - float(wanted[0])) > limit:
            return f"{name} is {found}, over TCP {wanted}"
    return None


def _hpcc_values(output: str) -> dict[str, str]:
    return dict(re.findall(r"(?m)^(\w+)=(\S+)$", output))
