"""Test vectors that are not part of the project: captures, golden payloads, recorded markets."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def shared(*parts: str) -> Path:
    """Return a path below `UDPFAST_SHARED` (default `../shared`); skip the test if absent."""
    path = Path(os.environ.get("UDPFAST_SHARED", ROOT.parent / "shared")).joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no {path}: set UDPFAST_SHARED to the folder of test vectors")
    return path
