"""Errors of writing that name the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from udpfast.core.oserr import check

__all__ = ["naming"]


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the path to an error that lacks it: the user must know which disk is full.

    Parameters
    ----------
    path : Path
        The file that is written; nothing else may be read or written meanwhile.

    Raises
    ------
    OSError
        The error, with the path in its text.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        check(-error.errno, "write", str(path))
