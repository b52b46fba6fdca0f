# JournalSource: the Source of "journal:DIRECTORY": a cursor in a journal, and the names of its
# records, whose table may change from one segment to the next. A composite's copy holds records of
# several inputs: each call of `wait` returns those of one input.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from udpfast.client.record cimport NameCache
from udpfast.client.source cimport PolledSource
from udpfast.log.journal_cursor cimport JournalCursor

cdef class JournalSource(PolledSource):
    cdef JournalCursor cursor
    cdef int64_t names_number        # number of the file of names in `names`; -1: none yet
    cdef object table                # NameTable of `names`
    cdef list inputs                 # the directories of a composite's inputs; None: not a copy
    cdef dict input_names            # by input: the NameCache of its records
    cdef int64_t input               # a copy's: input of the records in memory; below 0: none
    cdef int64_t next, count         # a copy's last poll: next record to hand out, and how many
    cdef tuple own_arrays            # arrays of one record that is in no journal
    cdef bint endless                # at the end of the journal, wait for its next writer
    cdef bint live                   # it is read as it is written, and its end was not handed out
    cdef bint gone                   # that it has none was handed out
    cdef bint returning              # it has one again, and READY is still to come

    cdef int64_t meet_end(self) except -1
    cdef look_for_writer(self)
    cdef int64_t say_writer(self, uint32_t status) except -1
    cdef int64_t say_missed(self, uint64_t position, uint64_t index) noexcept
    cdef int64_t begin_inputs(self, int64_t count, int64_t limit) except -1
    cdef int64_t next_input(self, int64_t limit) except -1
    cdef NameCache names_of(self, int64_t input)


cdef recorded_feed(JournalCursor cursor, directory)
