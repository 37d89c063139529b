"""Where things are in the repository."""

from pathlib import Path

HARNESS = Path(__file__).resolve().parent
ROOT = HARNESS.parents[1]
VENV = ROOT / ".venv"
TARGET = ROOT / "target"
SRD = TARGET / "srd" / "bin" / "srd"
EFA_LIBRARIES = TARGET / "srd" / "lib" / "srd" / "efa"
PROVIDER = TARGET / "srd" / "lib" / "srd" / "fi" / "libsrd-fi.so"
"""The libfabric provider, alone in its directory: libfabric loads whatever it finds there."""
