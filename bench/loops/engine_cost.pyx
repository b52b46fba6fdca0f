"""What one datagram costs behind the socket: windows, objects, decoding, ring; no system call.

Datagrams are written into slots a batch at a time, as the kernel does, and only the engine's part
is timed; before each batch the first-level cache is walked over, as the kernel's work does.
"""

import shutil
import tempfile
from pathlib import Path

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from udpfast.agents.feed.engine cimport Engine
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.layout cimport DATAGRAM_NO_TIMESTAMP, KIND_PAD, RECORD_SIZE, Datagram, Record
from udpfast.log.journal cimport Journal
from udpfast.log.ring cimport RingWriter, ring_aligned
from udpfast.log.segment cimport SegmentWriter, segment_append

from udpfast.agents.feed.engine import Engine as EngineFace
from udpfast.config import parse_feed

__all__ = ["engine_cost_ns"]

cdef enum:
    SLOTS = 64
    SLOT_SIZE = 4160             # the largest datagram of any framing
    CACHE_WALK = 65536
    SEQNO_OFFSET = 8


def engine_cost_ns(
        datagrams: Sequence[bytes], *, int batches=20_000, bint cold=True,
        settings: Mapping[str, Any] | None = None, Journal journal=None) -> float:
    """Return the ns that one datagram costs behind the socket.

    Parameters
    ----------
    datagrams : list of bytes
        64 whole messages that follow each other; their seqnos are written anew each round.
    batches : int
        How many times they are handed over.
    cold : bool
        Walk over the first-level cache before each batch.
    settings : dict, optional
        Tables of the feed's configuration, over the defaults.
    journal : Journal, optional
        Append each record to it in the same loop; it must have room.

    Raises
    ------
    ValueError
        Not every datagram became a record.
    """
    tables = {"name": "cost", "incremental": {"lines": [{"name": "A", "address": "127.0.0.1:1"}]}}
    tables |= dict(settings or {})
    directory = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    engine = EngineFace(parse_feed(tables), directory)
    try:
        elapsed = _run(engine, datagrams, batches, cold, journal)
        counters = engine.read_counters()
    finally:
        engine.close()
        shutil.rmtree(directory)
    found = counters["incremental.A"]["delivered"]
    if found != batches * SLOTS or counters["feed"]["records"] < found:
        raise ValueError(f"expected {batches * SLOTS} datagrams delivered and published, found "
                         f"{found} and {counters['feed']['records']}")
    return elapsed / (batches * SLOTS)


def _run(Engine engine, list datagrams, int64_t batches, bint cold, Journal journal):
    cdef Datagram items[SLOTS]
    cdef const uint8_t* sources[SLOTS]
    cdef uint8_t* slots = <uint8_t*>calloc(SLOTS, SLOT_SIZE)
    cdef uint8_t* walk = <uint8_t*>calloc(1, CACHE_WALK)
    cdef int64_t _batch, k, start, elapsed = 0
    cdef uint32_t seqno = 1
    cdef uint64_t position = engine.output.ring.position
    cdef bint complete = True
    memset(items, 0, sizeof(items))
    for k in range(SLOTS):
        sources[k] = datagrams[k]
        items[k].size = <uint32_t>len(datagrams[k])
        items[k].flags = DATAGRAM_NO_TIMESTAMP
        items[k].data = slots + k * SLOT_SIZE
    with nogil:
        for _batch in range(batches):
            for k in range(SLOTS):
                memcpy(slots + k * SLOT_SIZE, sources[k], items[k].size)
                memcpy(slots + k * SLOT_SIZE + SEQNO_OFFSET, &seqno, 4)
                items[k].flags = DATAGRAM_NO_TIMESTAMP
                seqno += 1
            if cold:
                for k in range(0, CACHE_WALK, 64):
                    walk[k] += 1
            start = clock_monotonic_ns()
            engine.accept(items, SLOTS, start, 0, start)
            if journal is not None:
                complete &= _keep(engine.output.ring, &journal.writer, &position)
            elapsed += clock_monotonic_ns() - start
    free(slots)
    free(walk)
    if not complete:
        raise ValueError(f"expected room in the journal for all records, found {journal.index}")
    return elapsed


cdef bint _keep(const RingWriter* ring, SegmentWriter* w, uint64_t* position) noexcept nogil:
    # What the ring got since the last call, into a journal as well, by the ring's own thread.
    cdef const Record* record
    while position[0] != ring.position:
        record = <const Record*>(ring.data + (position[0] & ring.mask))
        if record.kind != KIND_PAD and not segment_append(
                w, record, <const uint8_t*>record + RECORD_SIZE):
            return False
        position[0] += ring_aligned(<uint32_t>record.length)
    return True
