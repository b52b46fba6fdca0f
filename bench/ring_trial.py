"""One trial of a ring: a partner writes on its core, and this process reads on another.

partner: write_fast / write_paced --> ring in shared memory --> this process: one of READERS
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from udpfast.client.reader import Reader
from udpfast.core.clock import monotonic_ns
from udpfast.log.cursor import RingCursor
from udpfast.log.ring import Ring
from udpfast.market.names import NameTable, name_table_size
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.histogram import LatencyHistogram
from udpfast.shm.names import create_names, names_table

from .loops.hostprobe import pinned
from .loops.ring_hop import (
    PROGRESS_STRIDE,
    advance,
    note_batch,
    read_fast,
    read_paced,
    write_fast,
    write_paced,
)
from .partner import Partner
from .trials import Outcome
from .wire_trial import LEAD_NS, WARM_SHARE, memory_directory

__all__ = ["READERS", "open_progress", "open_ring", "ring_latency", "ring_throughput"]

#: 65,536 records of 64 bytes with their headers, as many as the C slot ring has slots.
CAPACITY_BYTES = 1 << 23
NAMES = 64
TIMEOUT_S = 60.0


@dataclass(slots=True)
class Reading:
    """What a reader is to read, and what it found.

    Attributes
    ----------
    records, skip : int
        To read in all; at the beginning, not to be timed.
    histogram : LatencyHistogram or None
        None: at full speed.
    progress : array of uint64
        Where to say how far it is.
    seen, wrong : int
        Records read; records that were not the expected ones.
    elapsed_ns : int
        From the first record to the last.
    """

    directory: Path
    records: int
    skip: int
    histogram: LatencyHistogram | None
    progress: npt.NDArray[np.uint64]
    seen: int = 0
    wrong: int = 0
    elapsed_ns: int = 0


def read_cython(reading: Reading, attached: Callable[[], None]) -> None:
    """Follow with a cursor in a compiled loop: what a strategy in Cython does."""
    with RingCursor.attach(
        reading.directory, "begin", limit=256, payload_hash=PAYLOAD_HASH
    ) as cursor:
        attached()
        if reading.histogram is None:
            found = read_fast(cursor, reading.progress, reading.records)
            reading.seen, reading.wrong, reading.elapsed_ns = found
        else:
            reading.seen, reading.wrong = read_paced(
                cursor, reading.records, reading.histogram, skip=reading.skip
            )


def read_poll(reading: Reading, attached: Callable[[], None]) -> None:
    """Follow with `Reader.poll`: numpy batches."""
    with Reader(f"ring:{reading.directory}", idle="spin", start="begin") as reader:
        attached()
        first_ns = now_ns = 0
        while reading.seen < reading.records:
            batch = reader.poll(timeout=TIMEOUT_S)
            now_ns = monotonic_ns()
            if not len(batch):
                return
            first_ns = first_ns or now_ns
            reading.wrong += note_batch(
                batch, now_ns, reading.histogram, reading.seen, reading.skip
            )
            reading.seen += len(batch)
            advance(reading.progress, reading.seen)
        reading.elapsed_ns = now_ns - first_ns


def read_iterate(reading: Reading, attached: Callable[[], None]) -> None:
    """Follow record by record: an object each."""
    with Reader(f"ring:{reading.directory}", idle="spin", start="begin") as reader:
        attached()
        first_ns = now_ns = 0
        for record in reader:
            now_ns = monotonic_ns()
            first_ns = first_ns or now_ns
            if reading.histogram is not None and reading.seen >= reading.skip:
                reading.histogram.record(now_ns - record.received_ns)
            reading.wrong += record.number != reading.seen
            reading.seen += 1
            if reading.seen == reading.records:
                break
            if reading.seen % 64 == 0:
                advance(reading.progress, reading.seen)
        reading.elapsed_ns = now_ns - first_ns


#: The ways to read, by the name of their variant.
READERS: dict[str, Callable[[Reading, Callable[[], None]], None]] = {
    "Cython cursor": read_cython,
    "Python poll": read_poll,
    "Python iterate": read_iterate,
}


def ring_throughput(
    partner: Partner, core: int, way: str, records: int, payload_bytes: int
) -> Outcome:
    """Let the partner write at full speed; return records per second, as the reader saw them."""
    with memory_directory() as directory:
        reading = Reading(directory, records, 0, None, open_progress(directory, 1))
        _read(partner, core, way, reading, write_all, records, payload_bytes)
    return Outcome((records - 1) * 1e9 / reading.elapsed_ns, verified=_verify(reading))


def ring_latency(
    partner: Partner, core: int, way: str, rate_per_s: float, records: int, payload_bytes: int
) -> Outcome:
    """Let the partner write on a schedule; time each record until the reader has it."""
    offsets_ns = (np.arange(records) * (1e9 / rate_per_s)).astype(np.int64)
    histogram = LatencyHistogram()
    with memory_directory() as directory:
        reading = Reading(
            directory,
            records,
            int(records * WARM_SHARE),
            histogram,
            open_progress(directory, 1),
        )
        _read(partner, core, way, reading, write_due, offsets_ns, payload_bytes)
    return Outcome(float(histogram.percentile(50.0)), histogram, _verify(reading))


def _read(
    partner: Partner,
    core: int,
    way: str,
    reading: Reading,
    write: Callable[..., Any],
    *what: Any,
) -> None:
    partner.call(open_ring, str(reading.directory))
    try:
        with pinned(core):
            READERS[way](reading, lambda: partner.start(write, str(reading.directory), *what))
        partner.result()
    finally:
        partner.call(close_ring)


def _verify(reading: Reading) -> str:
    if reading.seen != reading.records or reading.wrong:
        raise ValueError(
            f"expected {reading.records:,} records in order, found {reading.seen:,}, "
            f"{reading.wrong} wrong"
        )
    return f"{reading.records:,} written = {reading.seen:,} read, each looked at, in order"


# --- what partners do -------------------------------------------------------------------------


def open_ring(state: dict[str, Any], directory: str, capacity_bytes: int = CAPACITY_BYTES) -> None:
    """Create a ring, and the names that every instance has."""
    path = Path(directory)
    with create_names(path / "names", name_table_size(NAMES)) as region:
        NameTable(names_table(region), capacity=NAMES)
        region.mark_ready()
    state["ring"] = Ring.create(path, capacity_bytes, PAYLOAD_HASH)


def close_ring(state: dict[str, Any]) -> None:
    """Close it."""
    state.pop("ring").close()


def write_all(state: dict[str, Any], directory: str, records: int, payload_bytes: int) -> int:
    """Write at full speed, at most half a ring ahead of the reader; return the ns it took."""
    return write_fast(state["ring"], open_progress(Path(directory), 1), records, payload_bytes)


def write_due(
    state: dict[str, Any],
    directory: str,
    offsets_ns: npt.NDArray[np.int64],
    payload_bytes: int,
) -> int:
    """Write on a schedule that begins now."""
    return write_paced(state["ring"], monotonic_ns() + LEAD_NS + offsets_ns, payload_bytes)


def open_progress(directory: Path, readers: int) -> npt.NDArray[np.uint64]:
    """Map the words in which readers say how far they are; both ends map the same file."""
    size = 8 * PROGRESS_STRIDE * readers
    with (directory / "progress").open("a+b") as file:
        file.truncate(size)
        return np.frombuffer(mmap.mmap(file.fileno(), size), np.uint64)
