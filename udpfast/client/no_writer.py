"""What somebody is told who opens a feed that nobody writes any more."""

from __future__ import annotations

import time
import warnings

__all__ = ["warn_of_no_writer"]


def warn_of_no_writer(where: object, what: str, last_ns: int, then: str) -> None:
    """Warn that there is no writer, and since when nothing came.

    Parameters
    ----------
    where : object
        The file or directory.
    what : str
        What became of it.
    last_ns : int
        When it wrote last, in UNIX ns.
    then : str
        What the reader does behind what it left.
    """
    last = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(last_ns // 1_000_000_000))
    warnings.warn(
        f"{where}: {what}, and wrote last at {last}; the reader gets what it left, as it was then, "
        f"and then {then}",
        RuntimeWarning,
        stacklevel=2,
    )
