"""A SHA-256 of records: equal for the same records of a ring, a journal or a replay."""

import hashlib

import cython

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from udpfast.core.layout cimport KIND_RESTART, RECORD_SIZE, Record

from udpfast.core.layout import RECORD

__all__ = ["RecordHash"]


@cython.final
cdef class RecordHash:
    """A SHA-256 over records in their order.

    Every byte of header and payload counts, except the fields that depend on the log: position,
    index, session and checksum are taken as 0. RESTART records are skipped, because they only say
    that a log continues.

    Attributes
    ----------
    records : int
        Records added so far, without those that were skipped.
    """

    cdef object _hash
    cdef readonly uint64_t records

    def __cinit__(self):
        self._hash = hashlib.sha256()

    def add(
            self, headers: NDArray[Any], offsets: NDArray[np.uint64],
            payloads: NDArray[np.uint8]) -> None:
        """Add records as a batch or a cursor holds them.

        Parameters
        ----------
        headers : numpy.ndarray
            Array of dtype `RECORD`.
        offsets : numpy.ndarray
            Array of uint64: where each payload begins in `payloads`.
        payloads : numpy.ndarray
            Array of uint8.
        """
        cdef Py_ssize_t i, count = len(headers)
        if headers.dtype != RECORD or len(offsets) < count:
            raise ValueError(f"expected headers of dtype RECORD and {count} offsets")
        if count == 0:
            return
        cdef const uint8_t[::1] header_bytes = headers.view("u1")
        cdef const uint64_t[::1] places = offsets
        cdef const uint8_t[::1] payload_bytes = payloads
        cdef const Record* records = <const Record*>&header_bytes[0]
        cdef uint64_t size = 0, used = 0, length
        cdef Record* copy
        for i in range(count):
            length = <uint64_t>records[i].length
            if length < RECORD_SIZE or (
                    places[i] + length - RECORD_SIZE > <uint64_t>payload_bytes.shape[0]):
                raise ValueError(f"record {i} does not lie within the payloads")
            if records[i].kind != KIND_RESTART:
                size += length
                self.records += 1
        if size == 0:
            return
        joined = bytearray(size)
        cdef uint8_t[::1] target = joined
        with nogil:
            for i in range(count):
                if records[i].kind == KIND_RESTART:
                    continue
                length = <uint64_t>records[i].length - RECORD_SIZE
                copy = <Record*>&target[used]
                memcpy(copy, records + i, RECORD_SIZE)
                copy.position = copy.index = 0  # its place in the log is not hashed
                copy.session = 0
                copy.checksum = 0
                used += RECORD_SIZE
                if length:
                    memcpy(&target[used], &payload_bytes[places[i]], length)
                used += length
        self._hash.update(joined)

    def hexdigest(self) -> str:
        """Return the SHA-256 of the records added so far."""
        return self._hash.hexdigest()
