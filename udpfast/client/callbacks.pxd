# Callbacks: a strategy as an object with a method per kind of record.

from udpfast.client.books cimport Books
from udpfast.client.filter cimport FILTER_KINDS
from udpfast.client.reader cimport Reader

cdef class Callbacks:
    cdef readonly Reader reader
    cdef readonly Books books    # None: no books are kept
    cdef list _methods           # by kind; None: records of that kind are skipped
    cdef bint _stopped           # no more calls from any poll or run in progress
    cdef int _depth              # polls and runs in progress: a callback may call poll
