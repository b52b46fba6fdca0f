"""The table `races`: Arrow rows from a raw capture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from udpfast.archive.feed_settings import read_feed
from udpfast.errors import ConfigError, RegionError
from udpfast.export.columns import Partition, partition_columns
from udpfast.export.races import WAIT_NS, Elapsed, Races
from udpfast.export.schema import PARTITION_COLUMNS, arrow_schema
from udpfast.export.segments import Blocks, Part, last_record
from udpfast.log.segment import Segment, list_segments, segment_path

if TYPE_CHECKING:
    import pyarrow as pa

    from udpfast.config import FeedConfig

__all__ = ["part_races", "race_batch", "raced_parts", "split_races", "unraced"]

_DAY_NS = 86_400_000_000_000
_NOBODY = 0xFF
_BITS = np.array([bits.bit_count() for bits in range(256)], np.int32)
_NO_DELAY = np.iinfo(np.int64).min


def raced_parts(directory: Path, parts: Sequence[Part], closed: bool) -> list[Part]:
    """Return the first parts of a raw capture behind which no late copy can come any more.

    Parameters
    ----------
    directory : Path
        Directory of the capture.
    parts : sequence of Part
        All parts of the capture, in order.
    closed : bool
        Whether the capture is complete.
    """
    count = next((i for i, part in enumerate(parts) if not part.finished), len(parts))
    ready, behind_ns = len(parts), 0
    while not closed and ready and behind_ns <= WAIT_NS:
        ready -= 1
        part = parts[ready]
        behind_ns += _elapsed_ns(directory, part.journal, part.position, part.end_position + 1)
    return list(parts[: min(count, ready)])


def unraced(journal: Path) -> str:
    """Return why no races can be made of a journal's raw capture, as a sentence.

    "": they can, or there is no raw capture.
    """
    return _unraced(journal / "raw", read_feed(journal / "raw"))


def _unraced(directory: Path, feed: FeedConfig | None) -> str:
    if feed is None or feed.wire.framing == "roq":
        return ""
    return (
        f"{directory}: races need datagrams of roq, whose headers identify each one, found "
        f"those of {feed.wire.framing}"
    )


def part_races(directory: Path, part: Part) -> tuple[Races, int, tuple[int, int] | None]:
    """Return the races whose first copy is in a part of a raw capture.

    Returns
    -------
    Races
        The races.
    int
        Number of records of the part that were read; fewer than it has if some are damaged.
    tuple of (int, int) or None
        Position and checksum of its last record.

    Raises
    ------
    ConfigError
        The capture is of another framing than Roq's.
    """
    feed = read_feed(directory)
    if reason := _unraced(directory, feed):
        raise ConfigError(reason)
    big_endian = feed is not None and feed.wire.byteorder == "big"
    back_ns = 2 * WAIT_NS
    while True:
        found = _read_races(directory, part, big_endian, back_ns)
        if not found[0].unsure:
            return found
        back_ns *= 2  # a line repeats datagrams: earlier copies decide which one is the first


def _read_races(
    directory: Path, part: Part, big_endian: bool, back_ns: int
) -> tuple[Races, int, tuple[int, int] | None]:
    begin, whole = _near_before(directory, part, back_ns)
    races = Races(part.position, part.end_position, big_endian, whole)
    records, last = 0, None
    try:
        for block, _ in Blocks(directory, part.journal, begin, raw=True):
            races.add(block)
            last = last or last_record(block, part)
            records += block.between(part.position, part.end_position)
            if races.behind_ns > WAIT_NS:
                break
    except RegionError:  # damage at the end of the capture, behind this part
        if records < part.end_index - part.index:
            raise
    return races, records, last


def _near_before(directory: Path, part: Part, back_ns: int) -> tuple[int, bool]:
    # Return the position at which to start reading to include `back_ns` before a part, and whether
    # that is the capture's beginning. Searches by position, because clocks may be set back.
    places = _strides_before(directory, part.position)
    begin, strides, elapsed_ns = part.position, 1, 0
    while elapsed_ns <= back_ns:
        found = list(islice(places, strides))
        if not found:
            return begin, True
        elapsed_ns += _elapsed_ns(directory, part.journal, found[-1], begin + 1, back_ns)
        begin, strides = found[-1], 2 * strides
    return begin, False


def _strides_before(directory: Path, position: int) -> Iterator[int]:
    # Yield positions of records before `position` from the segments' own indices, latest first.
    for number in reversed(list_segments(directory)):
        try:
            segment = Segment.open(segment_path(directory, number))
        except (RegionError, FileNotFoundError):
            continue
        places = {segment.info().position, *map(int, segment.index()["position"])}
        segment.close()
        yield from (place for place in sorted(places, reverse=True) if place < position)


def _elapsed_ns(
    directory: Path, journal: str, position: int, end_position: int, enough_ns: int = WAIT_NS
) -> int:
    # Return the time that passed in a part of the capture; stop at `enough_ns`.
    elapsed = Elapsed()
    for block, _ in Blocks(directory, journal, position, end_position, raw=True):
        elapsed.add(block)
        if elapsed.ns > enough_ns:
            break
    return elapsed.ns


def split_races(races: Races) -> dict[Partition, NDArray[Any]]:
    """Return the races by partition: arrays of dtype `RACE`, in the order of the capture."""
    found = races.take()
    keys = np.stack(
        (
            np.floor_divide(found["published_ns"], _DAY_NS),
            found["stream"].astype(np.int64),
            found["session"].astype(np.int64),
        )
    )
    distinct, codes = np.unique(keys, axis=1, return_inverse=True)
    return {
        (int(day), int(stream), int(session)): found[codes.reshape(-1) == code]
        for code, (day, stream, session) in enumerate(distinct.T)
    }


def race_batch(
    races: NDArray[Any], partition: Partition, lines: int, feed: str, columns: tuple[str, ...] = ()
) -> pa.RecordBatch:
    """Return rows of the table `races`.

    Parameters
    ----------
    races : numpy.ndarray
        dtype `RACE`, of one partition.
    partition : tuple
        The partition.
    lines : int
        Bit mask of the lines that were heard on its stream; a row has a delay for each up to the
        highest.
    feed : str
        Name of the feed in the export.
    columns : tuple of str
        Names of the columns in order; partition columns may be among them. Empty: all columns of
        the table.
    """
    import pyarrow as pa

    schema = arrow_schema("races", partitions=True)
    chosen = columns or tuple(arrow_schema("races").names)
    arrays = [
        _column(races, partition, lines, feed, name).cast(schema.field(name).type)
        for name in chosen
    ]
    return pa.RecordBatch.from_arrays(
        arrays, schema=pa.schema([schema.field(name) for name in chosen])
    )


def _column(
    races: NDArray[Any], partition: Partition, lines: int, feed: str, name: str
) -> pa.Array:
    import pyarrow as pa

    if name in PARTITION_COLUMNS:
        return partition_columns(partition, len(races))[name]
    if name == "feed":
        return pa.repeat(feed, len(races))
    if name == "received_at":
        return pa.array(np.floor_divide(races["received_ns"], 1000))
    if name == "fragments":
        return pa.array(races["fragment_max"].astype(np.int32) + 1)
    if name in ("completed", "stamped"):
        return pa.array(races[name].astype(np.bool_))
    if name == "second":
        return pa.array(races["second"], mask=races["second"] == _NOBODY)
    if name == "lead_ns":
        nobody = races["second"] == _NOBODY
        second = np.where(nobody, 0, races["second"])
        return pa.array(races["delays_ns"][np.arange(len(races)), second], mask=nobody)
    if name == "copies":
        return pa.array(_BITS[races["lines"]])
    if name == "delays_ns":
        return _delays(races, max(lines.bit_length(), 1))
    return pa.array(np.ascontiguousarray(races[name]))


def _delays(races: NDArray[Any], count: int) -> pa.Array:
    import pyarrow as pa

    values = np.ascontiguousarray(races["delays_ns"][:, :count]).reshape(-1)
    offsets = np.arange(len(races) + 1, dtype=np.int32) * np.int32(count)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values, mask=values == _NO_DELAY))
