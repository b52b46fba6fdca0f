"""The directory of the C header, for compilers."""

from pathlib import Path

__all__ = ["get_include"]


def get_include() -> str:
    """Return the directory of `udpfast.h`, which has a reader and the layouts of shared memory."""
    return str(Path(__file__).parent.parent / "include")
