# Found: what one call of a decoder found, whatever the payload is.

from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t

from udpfast.core.atomics cimport counter_add
from udpfast.core.counter cimport (
    FEED_DECODE_REFUSED,
    FEED_NAMES_FULL,
    FEED_RECORDS_CONTROL,
    FEED_RECORDS_TOO_LARGE,
    FEED_TYPES_OPAQUE,
    FEED_TYPES_UNKNOWN,
    FEED_UPDATES,
)
from udpfast.core.update_kinds cimport KIND_BOOK

# One rule for types that a decoder does not know. Such a message may change any book: it is
# refused, which puts its stream in doubt. It is UNKNOWN, and passed on, only where the publisher
# says that a receiver has to skip it (Roq, IEX, Cboe), or where no book can be sound (ICE). Of what
# is known to touch no book, the decoder has a list.
cdef enum:  # Outcome: what a decoder returns instead of a kind
    OUTCOME_REFUSED = -1         # unsound: deliver nothing
    OUTCOME_NONE = -2            # a message without a type: deliver nothing
    OUTCOME_OPAQUE = -3          # sound, of a type that has no update: deliver as MESSAGE
    OUTCOME_UNKNOWN = -4         # of a type that the decoder does not know: deliver as MESSAGE
    OUTCOME_ROOM = -5            # sound, but the update needs more room
    OUTCOME_STREAM_STATUS = -6   # consumed: the subscriber publishes its own

cdef struct Found:
    uint32_t size                # bytes of the update, or that it would need
    uint32_t object              # of its record
    uint32_t flags               # of its record: with RECORD_SNAPSHOT it is all that its object is
    uint32_t exchange_id
    uint32_t symbol_id
    uint32_t names_full          # names that the table had no room for
    uint16_t stream              # of its object, + 1; 0: the message's own
    uint16_t session             # of that stream
    bint last                    # nothing else comes of this message: there is no need to ask


cdef inline void found_count(int64_t* feed, int32_t result, const Found* found) noexcept nogil:
    # Add one call's outcome to the feed's counters, as decode_count does.
    if result >= KIND_BOOK:
        counter_add(&feed[FEED_UPDATES], 1)
        if found.names_full:
            counter_add(&feed[FEED_NAMES_FULL], found.names_full)
    elif result > 0:             # STALE, RECOVERED
        counter_add(&feed[FEED_RECORDS_CONTROL], 1)
    elif result == OUTCOME_OPAQUE:
        counter_add(&feed[FEED_TYPES_OPAQUE], 1)
    elif result == OUTCOME_UNKNOWN:
        counter_add(&feed[FEED_TYPES_UNKNOWN], 1)
    elif result == OUTCOME_REFUSED:
        counter_add(&feed[FEED_DECODE_REFUSED], 1)
    else:
        counter_add(&feed[FEED_RECORDS_TOO_LARGE], 1)
