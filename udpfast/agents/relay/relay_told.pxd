# Told: what the far end has of a value, as far as it was sent; relay_feed.pxd draws it. And what a
# relay counts.

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:  # RelayCount: what is counted, as `RELAY_COUNTS` names it
    RELAY_RECORDS
    RELAY_UPDATES
    RELAY_WHOLE
    RELAY_REPEATED
    RELAY_SNAPSHOTS
    RELAY_ROUNDS
    RELAY_GAPS
    RELAY_STALE
    RELAY_DOUBT_NOT_CARRIED
    RELAY_SESSIONS
    RELAY_LEARNT
    RELAY_LAPPED
    RELAY_NOT_CARRIED
    RELAY_REFUSED
    RELAY_CONTROL
    RELAY_DOUBTED
    RELAY_IN_WHOLE
    RELAY_DELAYED
    RELAY_CONFLATED
    RELAY_WAITING
    RELAY_LATE
    RELAY_BEHIND
    RELAY_SHORT
    RELAY_COUNT

cdef enum:  # Told.status
    TOLD_NOTHING = 0
    TOLD_SOUND = 1
    TOLD_WHOLE = 2               # the next thing said of it is all of it

cdef struct Told:
    uint64_t number              # RelayFeed.number of its last incremental message
    uint32_t last_seqno          # its seqno; 0: none yet
    uint32_t refused_rows        # a book of so many levels was too large for a message
    uint16_t object_id
    uint8_t object_type          # 0: it has no object yet
    uint8_t status
    uint8_t parts                # a whole book comes in parts, of which there are more to come
    uint8_t reserved
    uint16_t fragments           # of its last message
