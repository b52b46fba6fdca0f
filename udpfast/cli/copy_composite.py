"""`udpfast record composite:NAME`: a composite's records as a journal of their own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from udpfast.cli.options import say_stop
from udpfast.client.composite_copy import CompositeCopy
from udpfast.config import RecordConfig
from udpfast.core.log import say_info, say_warning
from udpfast.core.stop import Stop
from udpfast.errors import ConfigError

__all__ = ["copy_composite"]

#: Options of `udpfast record` that say something here; the others are of rings.
OPTIONS = ("segment_bytes", "sync_ms")
PAUSE_S = 0.001


def copy_composite(
    name: str, directory: str | None, options: Mapping[str, Any], *, end: bool
) -> Path:
    """Copy until a signal comes; return the copy's directory.

    Parameters
    ----------
    name : str
        The composite's, or its order log's directory.
    directory : str or None
        Of the copy: a journal's name, or a path.
    options : mapping
        Of `udpfast record`, those that were given.
    end : bool
        End with what is there now.
    """
    for option in options:
        if option not in OPTIONS:
            raise ConfigError(
                f"--{option.replace('_', '-')} does not apply to a composite: expected only "
                f"{', '.join('--' + each.replace('_', '-') for each in OPTIONS)}"
            )
    chosen = dict.fromkeys(OPTIONS) | dict(options)
    segment_bytes = chosen["segment_bytes"] or RecordConfig().segment_bytes
    sync_s = (chosen["sync_ms"] or RecordConfig().sync_ms) / 1e3
    stopping = Stop()
    stopping.listen()
    with CompositeCopy(name, directory, segment_bytes=segment_bytes) as copy:
        found = copy.journal.recovery
        say_info(
            f"udpfast: {copy.journal.directory}: from record {found.index:,}, "
            f"cut {found.cut_bytes:,} bytes"
        )
        until = copy.end() if end else None
        synced = time.monotonic()
        while not stopping.is_set():
            if copy.turn() == 0:
                if until is not None and copy.reached(until):
                    break
                stopping.wait(PAUSE_S)
            if time.monotonic() - synced >= sync_s:
                copy.sync()
                synced = time.monotonic()
        say_stop(stopping, f"composite:{name}")
        if copy.lapped:
            say_warning(
                f"udpfast: the inputs no longer have {copy.lapped:,} records: LAPPED marks where "
                "they are missing"
            )
        return copy.journal.directory
