"""Where the C header lies, for compilers."""

from pathlib import Path

__all__ = ["get_include"]


def get_include() -> str:
    """Return the directory of `udpfast.h`: a reader, and the layouts of shared memory, in C."""
    return str(Path(__file__).parent.parent / "include")
