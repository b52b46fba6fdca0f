"""The name table of a composite's copy, which has the names of all inputs."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.client.record cimport NameCache
from udpfast.core.layout cimport Record
from udpfast.market.name_ids cimport NameIds, record_name_ids

import contextlib

from udpfast.archive.names import journal_names
from udpfast.archive.store_names import StoreNames, last_names
from udpfast.errors import FormatError
from udpfast.market.names import NameTable
from udpfast.shm.names import names_table

__all__ = ["CopiedNames"]

cdef enum:
    CAPACITY = 1 << 12           # names in the first table; each further table is twice as large


@cython.final
cdef class CopiedNames:
    """The name table of a copy; it continues the table that an earlier run left.

    A full table is replaced by a larger one that begins with the same names, so that ids keep their
    meaning. A copy that contains only apps' messages has no table.

    Parameters
    ----------
    directory : pathlib.Path
        Directory of the copy.
    used : int
        Number of the table of its last segment; 0: it has none.
    durable : bool
        Write names to the disk before the records that use their ids.

    Attributes
    ----------
    number, mark : int
        Identify the table in the headers of segments; 0: there are no names yet.
    """

    def __init__(self, directory: Path, used: int, *, durable: bool):
        self._files = StoreNames(directory)
        self._durable = durable
        self._inputs = {}
        self._capacity = CAPACITY
        last = max(last_names(directory), used)
        if last:
            with contextlib.suppress(FileNotFoundError, FormatError):
                self._capacity = journal_names(directory, last, 0).capacity
            self._open(last)
            self._let_go()

    def _open(self, used):
        # Open the table for adding names. The journal has one writer, so the table has one, too.
        self.number, self._region = self._files.begin(self._capacity, used)
        self._table = NameTable(names_table(self._region))
        self.mark = self._files.mark(self.number)

    def _let_go(self):
        self._table = None
        self._region.close()
        self._region = None

    cdef bint take(
            self, int64_t input, NameCache names, const Record* headers, const uint64_t* offsets,
            uint8_t* payloads, int64_t count) except -1:
        # Rewrite the ids in an input's records to those of the copy. Must be called once per
        # record; if it raises, all records are unchanged and it may be called again.
        cdef NameIds* ids
        cdef int64_t i
        cdef dict known
        cache, known = self._inputs.get(input, (None, None))
        if cache is not names:  # the input has another table now
            known = {}
            self._inputs[input] = names, known
        for i in range(count):
            ids = record_name_ids(headers + i, payloads + offsets[i])
            if ids != NULL:
                self._learn(names, known, ids.exchange_id)
                self._learn(names, known, ids.symbol_id)
        if self._region is not None:
            if self._durable:
                self._files.sync()
            self._let_go()
        for i in range(count):
            ids = record_name_ids(headers + i, payloads + offsets[i])
            if ids != NULL:  # an id whose name is unknown (a warning said so) becomes 0
                ids.exchange_id = known.get(ids.exchange_id, 0)
                ids.symbol_id = known.get(ids.symbol_id, 0)
        return True

    cdef int _learn(self, NameCache names, dict known, uint32_t name_id) except -1:
        if name_id == 0 or name_id in known or names.table is None or (
                name_id > <uint32_t>len(names.table)):
            return 0
        name = names.table.bytes(name_id)
        if name is None:  # damaged
            return 0
        if self._region is None:
            self._open(self.number)
        own = self._table.intern(name)
        if own == 0:
            self._let_go()
            self._capacity *= 2
            self._open(self.number)
            own = self._table.intern(name)
        known[name_id] = own
        return 0
