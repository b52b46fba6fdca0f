"""What is not part of the project: captures of feeds, and the package that writes exports."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from .trials import Unavailable

__all__ = ["need_pyarrow", "recorded"]


def recorded(*parts: str) -> Path:
    """Return a path below `UDPFAST_SHARED` (default `../shared`); Unavailable if it is absent."""
    default = Path(__file__).resolve().parent.parent.parent / "shared"
    path = Path(os.environ.get("UDPFAST_SHARED", default)).joinpath(*parts)
    if not path.exists():
        raise Unavailable(f"no {path}: set UDPFAST_SHARED to the folder of recorded data")
    return path


def need_pyarrow() -> None:
    """Raise Unavailable where nothing can be exported."""
    if importlib.util.find_spec("pyarrow") is None:
        raise Unavailable("pyarrow is not installed: pip install 'udpfast[market]'")
