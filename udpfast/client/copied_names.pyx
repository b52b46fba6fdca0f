"""Names of a composite's inputs in one table, that of its copy."""

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
    CAPACITY = 1 << 12           # of the first table; each further one has room for twice as many


@cython.final
cdef class CopiedNames:
    """The table of names of a copy, which goes on where it ended.

    A table that is full is followed by a larger one, which begins with its names: ids stay what
    they are. A copy of messages alone has none.

    Parameters
    ----------
    directory : pathlib.Path
        Of the copy.
    used : int
        Number of the table of its last segment; 0: it has none.
    durable : bool
        Have the disk take names before the records that carry their ids.

    Attributes
    ----------
    number, mark : int
        Of the table, as headers of segments have them; 0: there were no names yet.
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
        # Its file is open while names are added: whoever writes the journal writes it, too.
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
        # Have records of an input go by the copy's table: once per record, unless it raised, which
        # leaves all of them as they were.
        cdef NameIds* ids
        cdef int64_t i
        cdef dict known
        cache, known = self._inputs.get(input, (None, None))
        if cache is not names:  # it begins another table
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
            if ids != NULL:  # one that nobody knows, as a warning said, is of no name
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
