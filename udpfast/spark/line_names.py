"""Names of a feed's lines and a composite's inputs, as an export or a journal keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from pyarrow.fs import FileSelector

from udpfast.archive.feed_settings import read_feed
from udpfast.archive.recorded_feed import feed_name, input_names
from udpfast.config import FeedConfig
from udpfast.export.exporter import INPUTS
from udpfast.export.segments import journal_parts
from udpfast.spark.bronze import JOURNAL
from udpfast.spark.gold import open_file_system
from udpfast.spark.shown import Inputs, Lines

__all__ = ["read_inputs", "read_lines"]

_KEPT = "/settings/feed.json"


def read_lines(roots: Iterable[str]) -> Lines:
    """Return the names of each feed's lines, if its settings are kept."""
    found: Lines = {}
    for root in roots:
        if root.startswith(JOURNAL):
            journal = Path(root.removeprefix(JOURNAL))
            config = read_feed(journal)
            if config is not None:
                found |= {
                    feed_name(part.name, journal): _names(config) for part in journal_parts(journal)
                }
            continue
        for feed, content in _kept(root, _KEPT):
            found[feed] = _names(msgspec.json.decode(content, type=FeedConfig))
    return found


def read_inputs(roots: Iterable[str]) -> Inputs:
    """Return the names of each composite's inputs, if they are kept."""
    found: Inputs = {}
    for root in roots:
        if root.startswith(JOURNAL):
            journal = Path(root.removeprefix(JOURNAL))
            if names := input_names(journal):
                found |= {
                    feed_name(part.name, journal): list(names) for part in journal_parts(journal)
                }
            continue
        for feed, content in _kept(root, f"/settings/{INPUTS}"):
            found[feed] = msgspec.json.decode(content, type=list[str])
    return found


def _kept(root: str, name: str) -> Iterator[tuple[str, bytes]]:
    # Yield feed and content of each file of this name in an export.
    files, path = open_file_system(root)
    for info in files.get_file_info(
        FileSelector(f"{path}/_manifest", allow_not_found=True, recursive=True)
    ):
        if info.path.endswith(name):
            with files.open_input_stream(info.path) as file:
                yield info.path.removesuffix(name).rpartition("/")[2], file.read()


def _names(config: FeedConfig) -> list[list[str]]:
    return [[line.name for line in each.lines] for each in (config.incremental, config.snapshot)]
