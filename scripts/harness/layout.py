"""Where things are in the repository."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
TARGET = ROOT / "target"
SRD = TARGET / "srd" / "bin" / "srd"
EFA_LIBRARIES = TARGET / "srd" / "lib" / "srd" / "efa"
