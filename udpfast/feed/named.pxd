# What heartbeats that take no number have named: each says which number comes next, hence that all
# before it have been sent. A number is missing from when the first of them named one behind it.

from libc.stdint cimport INT64_MAX, int64_t, uint32_t

cdef enum:
    # Names that may wait at a time. A heartbeat comes when nothing else does, some tens of ms after
    # the last: so many span the longest wait that is sensible.
    NAMED_MAX = 32

cdef struct Named:
    int64_t next                 # key that it named
    int64_t since_ns

cdef struct NamedQueue:          # in the order they came: both fields only grow
    uint32_t first
    uint32_t count
    Named at[32]                 # NAMED_MAX


cdef inline Named* named_place(NamedQueue* q, uint32_t i) noexcept nogil:
    return &q.at[(q.first + i) % NAMED_MAX]


cdef inline void named_add(
    NamedQueue* q, int64_t due, int64_t next, int64_t now_ns,
) noexcept nogil:
    # One further than all before. Names that lie before `due` have said what they had to say. If
    # there are too many, the latest two become one: its numbers wait longer, never too short.
    cdef Named* named
    while q.count and named_place(q, 0).next <= due:
        q.first += 1
        q.count -= 1
    if q.count < NAMED_MAX:
        q.count += 1
    named = named_place(q, q.count - 1)
    named.next = next
    named.since_ns = now_ns


cdef inline int64_t named_since(NamedQueue* q, int64_t at) noexcept nogil:
    # When a number was first known to have been sent; INT64_MAX: no heartbeat has told.
    cdef uint32_t i
    for i in range(q.count):
        if named_place(q, i).next > at:
            return named_place(q, i).since_ns
    return INT64_MAX


cdef inline int64_t named_before(NamedQueue* q, int64_t at, int64_t before_ns) noexcept nogil:
    # Which number was named as the next one up to this time; `at` if none lies behind that.
    cdef uint32_t i
    for i in range(q.count):
        if named_place(q, i).since_ns > before_ns:
            break
        if named_place(q, i).next > at:
            at = named_place(q, i).next
    return at
