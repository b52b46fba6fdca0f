# Which session is believed, and which are over (docs/protocol.md, 3). A datagram of a session that
# is over is counted, not obeyed: behind a restart the slower line goes on bringing the old session
# for as long as it is behind. One that goes on beyond where the session was left is another matter:
# then it was not over.

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from udpfast.feed.run cimport number_step

cdef enum:
    SESSIONS_RETIRED_MAX = 64

cdef struct RetiredSession:
    int64_t until_ns
    uint64_t next                # the number that was due when it ended
    int64_t known                # how many numbers before that one it is known to have had
    uint64_t session_id

cdef struct Sessions:
    bint begun
    bint resumed                 # it is older than what was seen of it
    uint8_t shift                # as a Run's
    uint32_t retired_next
    uint64_t session_id          # the one that is believed, if begun
    int64_t grace_ns
    RetiredSession retired[64]   # SESSIONS_RETIRED_MAX; the oldest is overwritten


cdef inline uint16_t session_ordinal(uint16_t before) noexcept nogil:
    # The ordinal of the session that follows; 0 stays that of none.
    return before % 0xFFFF + 1


cdef inline const RetiredSession* session_retired(
    const Sessions* sessions, uint64_t session_id, int64_t now_ns,
) noexcept nogil:
    # NULL: not over, or so long ago that it is forgotten.
    cdef int i
    for i in range(SESSIONS_RETIRED_MAX):
        if sessions.retired[i].session_id == session_id and now_ns < sessions.retired[i].until_ns:
            return &sessions.retired[i]
    return NULL


cdef inline bint session_goes_on(
    const Sessions* sessions, const RetiredSession* retired, uint64_t number, int64_t reach,
) noexcept nogil:
    # Whether a datagram of it lies beyond what was accepted; further than `reach` it was drawn
    # again, and its numbers begin elsewhere.
    return 0 <= number_step(number, retired.next, sessions.shift) <= reach


cdef inline bint session_was_at(
    const Sessions* sessions, const RetiredSession* retired, uint64_t number, int64_t reach,
) noexcept nogil:
    # Whether it passed this number just before it was left: somebody may have led it on, and it
    # goes on from there. A publisher that begins anew begins where it began, or before.
    cdef int64_t back = number_step(retired.next, number, sessions.shift)
    return 0 < back <= reach and back < retired.known


cdef inline void session_begin(
    Sessions* sessions, uint64_t session_id, bint resumed, uint64_t left_at, int64_t known,
    int64_t now_ns,
) noexcept nogil:
    # Believe this one and retire the one before, unless it kept the id.
    cdef RetiredSession* retired
    cdef int i
    if sessions.begun and sessions.session_id != session_id:
        retired = &sessions.retired[sessions.retired_next % SESSIONS_RETIRED_MAX]
        retired.session_id = sessions.session_id
        retired.next = left_at
        retired.known = INT64_MAX if sessions.resumed else known
        retired.until_ns = now_ns + sessions.grace_ns
        sessions.retired_next += 1
    for i in range(SESSIONS_RETIRED_MAX):
        if sessions.retired[i].session_id == session_id:
            sessions.retired[i].until_ns = now_ns
    sessions.begun = True
    sessions.resumed = resumed
    sessions.session_id = session_id
