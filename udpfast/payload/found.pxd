# Found: what one call of a decoder found, whatever the payload is.

from libc.stdint cimport int32_t, int64_t, uint32_t

from udpfast.core.atomics cimport counter_add
from udpfast.core.counter cimport (
    FEED_DECODE_REFUSED,
    FEED_NAMES_FULL,
    FEED_RECORDS_TOO_LARGE,
    FEED_TYPES_OPAQUE,
    FEED_TYPES_UNKNOWN,
    FEED_UPDATES,
)
from udpfast.market.decode cimport DECODE_OPAQUE, DECODE_REFUSED, DECODE_UNKNOWN

cdef struct Found:
    uint32_t size                # bytes of the update, or that it would need
    uint32_t object              # of its record
    uint32_t flags               # of its record: with RECORD_SNAPSHOT it is all that its object is
    uint32_t exchange_id
    uint32_t symbol_id
    uint32_t names_full          # names that the table had no room for


cdef inline void found_count(int64_t* feed, int32_t result, const Found* found) noexcept nogil:
    # Add one call's outcome to the feed's counters, as decode_count does.
    if result > 0:
        counter_add(&feed[FEED_UPDATES], 1)
        if found.names_full:
            counter_add(&feed[FEED_NAMES_FULL], found.names_full)
    elif result == DECODE_OPAQUE:
        counter_add(&feed[FEED_TYPES_OPAQUE], 1)
    elif result == DECODE_UNKNOWN:
        counter_add(&feed[FEED_TYPES_UNKNOWN], 1)
    elif result == DECODE_REFUSED:
        counter_add(&feed[FEED_DECODE_REFUSED], 1)
    else:
        counter_add(&feed[FEED_RECORDS_TOO_LARGE], 1)
