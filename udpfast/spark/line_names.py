"""What a feed's settings call its lines: an export has them, and a journal does."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
from pyarrow.fs import FileSelector

from udpfast.archive.feed_settings import read_feed
from udpfast.config import FeedConfig
from udpfast.export.exporter import feed_name
from udpfast.export.segments import journal_parts
from udpfast.spark.bronze import JOURNAL
from udpfast.spark.gold import open_file_system
from udpfast.spark.shown import Lines

__all__ = ["read_lines"]

_KEPT = "/settings/feed.json"


def read_lines(roots: Iterable[str]) -> Lines:
    """Return the names of each feed's lines, as far as its settings are there."""
    found: Lines = {}
    for root in roots:
        if root.startswith(JOURNAL):
            journal = Path(root.removeprefix(JOURNAL))
            config = read_feed(journal)
            if config is not None:
                found |= {
                    feed_name(part, journal): _names(config) for part in journal_parts(journal)
                }
            continue
        files, path = open_file_system(root)
        for info in files.get_file_info(
            FileSelector(f"{path}/_manifest", allow_not_found=True, recursive=True)
        ):
            if info.path.endswith(_KEPT):
                with files.open_input_stream(info.path) as file:
                    config = msgspec.json.decode(file.read(), type=FeedConfig)
                found[info.path.removesuffix(_KEPT).rpartition("/")[2]] = _names(config)
    return found


def _names(config: FeedConfig) -> list[list[str]]:
    return [[line.name for line in each.lines] for each in (config.incremental, config.snapshot)]
