# Callbacks: a strategy as an object with a method per kind of record.

from udpfast.client.books cimport Books
from udpfast.client.filter cimport FILTER_KINDS
from udpfast.client.reader cimport Reader

cdef class Callbacks:
    cdef readonly Reader reader
    cdef readonly Books books    # None: it keeps none
    cdef list _methods           # by kind; None: records of that kind are passed over
    cdef bint _stopped           # no more calls, of any of the polls that are under way
    cdef int _depth              # polls and runs under way: one may be called in a callback
