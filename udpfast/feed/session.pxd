# Which session is believed, and which are over (PROTOCOL 3). A datagram of a session that is over
# is counted, not obeyed: behind a restart the slower line goes on bringing the old session for as
# long as it is behind. One that goes on beyond where the session was left is another matter: then
# it was not over.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t

cdef enum:
    SESSIONS_RETIRED_MAX = 64

cdef struct RetiredSession:
    int64_t until_ns
    uint32_t next                # the incremental seqno that was due when it ended
    uint16_t session_id

cdef struct SessionBook:
    bint begun
    uint16_t session_id          # the one that is believed, if begun
    uint32_t retired_next
    int64_t grace_ns
    RetiredSession retired[64]   # SESSIONS_RETIRED_MAX; the oldest is overwritten


cdef inline uint16_t session_ordinal(uint16_t before) noexcept nogil:
    # Of the session that follows: 0 stays what has none.
    return before % 0xFFFF + 1


cdef inline const RetiredSession* session_retired(
    const SessionBook* book, uint16_t session_id, int64_t now_ns,
) noexcept nogil:
    # NULL: not over, or so long ago that it is forgotten.
    cdef int i
    for i in range(SESSIONS_RETIRED_MAX):
        if book.retired[i].session_id == session_id and now_ns < book.retired[i].until_ns:
            return &book.retired[i]
    return NULL


cdef inline bint session_goes_on(
    const RetiredSession* retired, uint32_t seqno, int64_t reach,
) noexcept nogil:
    # Whether a datagram of it lies beyond what was accepted; further than `reach` it was drawn
    # again, and its numbers begin elsewhere.
    cdef int32_t ahead = <int32_t>(seqno - retired.next)
    return 0 <= ahead <= reach


cdef inline void session_begin(
    SessionBook* book, uint16_t session_id, uint32_t left_at, int64_t now_ns,
) noexcept nogil:
    # Believe this one and retire the one before, unless it kept the id.
    cdef RetiredSession* retired
    cdef int i
    if book.begun and book.session_id != session_id:
        retired = &book.retired[book.retired_next % SESSIONS_RETIRED_MAX]
        retired.session_id = book.session_id
        retired.next = left_at
        retired.until_ns = now_ns + book.grace_ns
        book.retired_next += 1
    for i in range(SESSIONS_RETIRED_MAX):
        if book.retired[i].session_id == session_id:
            book.retired[i].until_ns = now_ns
    book.begun = True
    book.session_id = session_id
