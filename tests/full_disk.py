"""A disk that is full, as far as this process is concerned."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_disk(file_bytes: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes.

    Nor is compiled Python kept meanwhile: it would be cut, and every later import of it would fail.
    """
    limits, kept = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = kept
