"""The work of `bench_styles` as compiled loops: what a strategy in Cython does per record."""

from libc.stdint cimport int64_t, uint64_t

from udpfast.client.batch cimport Batch, batch_header
from udpfast.client.reader cimport READER_FOREVER, Reader
from udpfast.core.update_kinds cimport KIND_BOOK
from udpfast.log.cursor cimport RingCursor
from udpfast.log.ring cimport ring_poll

__all__ = ["sum_batches", "sum_books"]


def sum_books(RingCursor cursor) -> tuple[int, int]:
    """Read a ring until its end.

    Returns
    -------
    tuple of int
        Records read; the sum of the seqnos of those that are BOOK.
    """
    cdef int64_t count = 0, i, records = 0
    cdef uint64_t lapped = 0, total = 0
    with nogil:
        while count >= 0:
            for i in range(count):
                if cursor._headers[i].kind == KIND_BOOK:
                    total += cursor._headers[i].number
            records += count
            count = ring_poll(&cursor.reader, cursor._headers, cursor._offsets, cursor._payloads,
                              cursor._room, cursor._limit, &lapped)
    return records, total


def sum_batches(Reader reader) -> tuple[int, int]:
    """Read a reader's batches to the end, without Python in between; returns as `sum_books`."""
    cdef Batch batch
    cdef int64_t i, records = 0
    cdef uint64_t total = 0
    while True:
        batch = reader.next_batch(4096, READER_FOREVER)
        if batch is None:
            return records, total
        with nogil:
            for i in range(batch.count):
                if batch_header(batch, i).kind == KIND_BOOK:
                    total += batch_header(batch, i).number
        records += batch.count
