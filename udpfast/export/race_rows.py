"""The table of races: from a raw capture to Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from udpfast.agents.feed_copy import read_feed
from udpfast.export.columns import Partition, partition_columns
from udpfast.export.races import Races
from udpfast.export.schema import PARTITION_COLUMNS, arrow_schema
from udpfast.export.segments import Blocks, Part

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["WAIT_NS", "part_races", "race_batch", "raced_parts", "split_races"]

#: How long after the first copy of a datagram a later one belongs to the same race: more than any
#: line of a feed is behind another.
WAIT_NS = 1_000_000_000

_DAY_NS = 86_400_000_000_000
_NOBODY = 0xFF
_BITS = np.array([bits.bit_count() for bits in range(256)], np.int32)
_NO_DELAY = np.iinfo(np.int64).min


def raced_parts(parts: Sequence[Part], closed: bool) -> list[Part]:
    """Return those parts of a raw capture behind which no copy will come any more.

    Parameters
    ----------
    parts : sequence of Part
    closed : bool
        Nothing more will come at all.
    """
    known_ns = max((part.last_ns for part in parts if part.finished), default=0)
    return [part for part in parts if closed or part.last_ns + WAIT_NS < known_ns]


def part_races(directory: Path, part: Part) -> tuple[Races, int, int]:
    """Return the races whose first copy is in a part of a raw capture.

    Returns
    -------
    Races
    int
        Datagrams and other records of the part.
    int
        Records of the part that were damaged.
    """
    feed = read_feed(directory)
    big_endian = feed is not None and feed.wire.byteorder == "big"
    races = Races(part.position, part.end_position, big_endian)
    blocks = Blocks(
        directory,
        ("time", part.first_ns - WAIT_NS),
        ("time", part.last_ns + WAIT_NS),
        raw=True,
    )
    records = 0
    for block, _ in blocks:
        races.add(block)
        records += block.between(part.position, part.end_position)
    return races, records, blocks.missing_of(part)


def split_races(races: Races) -> dict[Partition, NDArray[Any]]:
    """Return the races by partition, each in the order of the capture."""
    found = races.take()
    keys = np.stack(
        (
            np.floor_divide(found["published_ns"], _DAY_NS),
            found["channel"].astype(np.int64),
            (found["key"] >> np.uint64(48)).astype(np.int64),
        )
    )
    distinct, codes = np.unique(keys, axis=1, return_inverse=True)
    return {
        (int(day), int(channel), int(session)): found[codes.reshape(-1) == code]
        for code, (day, channel, session) in enumerate(distinct.T)
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
    lines : int
        Lines that were heard on its channel, a bit each: so many delays a row has.
    feed : str
    columns : tuple of str
        In their order, partition columns may be among them; empty: the table's own.
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
    if name == "completed":
        return pa.array(races["completed"].astype(np.bool_))
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
