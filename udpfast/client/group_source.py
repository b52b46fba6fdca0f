"""All feeds of a group as one stream: what `Reader("group:NAME")` reads from."""

from __future__ import annotations

import time
from typing import Any

from udpfast.archive.groups import Group, read_group
from udpfast.client.composite_source import CompositeSource, open_sources
from udpfast.client.source import open_source as open_one
from udpfast.errors import ConfigError, shown

__all__ = ["open_source"]

_PAUSE_S = 0.01


def open_source(
    target: str,
    *,
    start: Any,
    batch: int,
    timeout: float | None,
    image: bool = False,
    **options: Any,
) -> CompositeSource:
    """Attach to every feed of a group, each of which may take a while to appear.

    Parameters
    ----------
    target : str
        The group's name.
    start, batch, timeout, image, **options
        As `Reader` has them.

    Raises
    ------
    ConfigError
        An image is asked for.
    FileNotFoundError
        There is no such group, or one of its feeds left no ring: a stream without it would lack
        its records in silence.
    """
    if image:
        raise ConfigError(f"image must be False for a group, was {shown(image)}")
    deadline_s = float("inf") if timeout is None else time.monotonic() + timeout
    group = _wait_for(target, deadline_s)

    def open_feed(address: str, start: Any) -> Any:
        left = None if timeout is None else max(0.0, deadline_s - time.monotonic())
        return open_one(address, start=start, batch=batch, timeout=left, **options)

    return open_sources(
        [feed.address for feed in group.feeds],
        open_feed,
        start=start,
        batch=batch,
        buffer_bytes=options["buffer_bytes"],
    )


def _wait_for(name: str, deadline_s: float) -> Group:
    while True:
        try:
            return read_group(name)
        except FileNotFoundError:
            if time.monotonic() >= deadline_s:
                raise
        time.sleep(_PAUSE_S)
