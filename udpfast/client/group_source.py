"""The Source of "group:NAME": all feeds of a group as one stream."""

from __future__ import annotations

from typing import Any

from udpfast.archive.groups import read_group
from udpfast.client.appearing import deadline_of, time_left, when_there
from udpfast.client.merged_source import MergedSource, open_sources
from udpfast.client.source import open_source as open_one

__all__ = ["open_source"]


def open_source(
    target: str,
    *,
    start: Any,
    batch: int,
    timeout: float | None,
    image: bool = False,
    **options: Any,
) -> MergedSource:
    """Attach to every feed of a group; wait until `timeout` for those that are not there yet.

    Parameters
    ----------
    target : str
        The group's name.
    start, batch, timeout, image, **options
        As for `Reader`.

    Raises
    ------
    FileNotFoundError
        There is no such group, or one of its feeds has no ring: a stream without that feed would
        lack its records without a word.
    ImageError
        `image` is true and one of the feeds has no usable image; the message says why.
    """
    deadline_s = deadline_of(timeout)
    group = when_there(lambda: read_group(target), deadline_s, (FileNotFoundError,))

    def open_feed(address: str, start: Any) -> Any:
        left = None if timeout is None else time_left(deadline_s)
        return open_one(address, start=start, batch=batch, timeout=left, image=image, **options)

    return open_sources(
        [feed.address for feed in group.feeds],
        open_feed,
        start=start,
        batch=batch,
        buffer_bytes=options["buffer_bytes"],
        deadline_s=deadline_s,
    )
