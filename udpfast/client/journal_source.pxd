# JournalSource: the Source of "journal:DIRECTORY": a cursor in a journal, and the names that its
# records go by, which may change from one segment to the next. In a composite's copy records of
# several inputs lie one behind the other: those of one call of `wait` are of one.

from libc.stdint cimport int64_t, uint64_t

from udpfast.client.record cimport NameCache
from udpfast.client.source cimport PolledSource
from udpfast.log.journal_cursor cimport JournalCursor

cdef class JournalSource(PolledSource):
    cdef JournalCursor cursor
    cdef int64_t names_number        # of the file of names in `names`; -1: none yet
    cdef object table                # of these names
    cdef list inputs                 # of a composite's copy: its inputs' directories; else None
    cdef dict input_names            # by input: what its records go by
    cdef int64_t next, count         # of a copy's last poll: which records come next, of how many
    cdef tuple lapped_arrays

    cdef int64_t say_missed(self, uint64_t position, uint64_t index) noexcept
    cdef int64_t begin_inputs(self, int64_t count, int64_t limit) except -1
    cdef int64_t next_input(self, int64_t limit) except -1
    cdef NameCache names_of(self, int64_t input)
