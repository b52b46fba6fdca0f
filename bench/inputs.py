"""Recorded data that is not part of the project: captures of feeds."""

from __future__ import annotations

import os
from pathlib import Path

from .trials import Unavailable

__all__ = ["recorded"]


def recorded(*parts: str) -> Path:
    """Return a path below `UDPFAST_SHARED` (default `../shared`); Unavailable if it is absent."""
    default = Path(__file__).resolve().parent.parent.parent / "shared"
    path = Path(os.environ.get("UDPFAST_SHARED", default)).joinpath(*parts)
    if not path.exists():
        raise Unavailable(f"no {path}: set UDPFAST_SHARED to the folder of recorded data")
    return path
