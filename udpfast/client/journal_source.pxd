# JournalSource: the Source of "journal:DIRECTORY": a cursor in a journal, and the names that its
# records go by, which may change from one segment to the next.

from libc.stdint cimport int64_t

from udpfast.client.source cimport PolledSource
from udpfast.log.journal_cursor cimport JournalCursor

cdef class JournalSource(PolledSource):
    cdef JournalCursor cursor
    cdef int64_t names_number        # of the file of names in `names`; -1: none yet
    cdef int64_t say_missed(self) noexcept
