# Found: the result of one call of a decoder, the same for all payloads.

from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t

from udpfast.core.atomics cimport counter_add
from udpfast.core.counter cimport (
    FEED_DECODE_REFUSED,
    FEED_NAMES_FULL,
    FEED_NOTHING_NEW,
    FEED_RECORDS_CONTROL,
    FEED_RECORDS_TOO_LARGE,
    FEED_TOLD,
    FEED_TYPES_OPAQUE,
    FEED_TYPES_UNKNOWN,
    FEED_UPDATES,
    FEED_WITHHELD,
)
from udpfast.core.update_kinds cimport KIND_BOOK

# How decoders treat types that they do not know. Such a message may change any book, so it is
# refused, which puts its stream in doubt. It is UNKNOWN, and passed on, only if the publisher asks
# receivers to skip unknown types (Roq, IEX, Cboe), or if no book can be sound anyway (ICE). Each
# decoder lists the known types that change no book.
cdef enum:  # Outcome: returned instead of a kind
    OUTCOME_REFUSED = -1         # damaged: publish nothing
    OUTCOME_NONE = -2            # a message without a type: publish nothing
    OUTCOME_OPAQUE = -3          # sound, but no update is made of its type: publish as MESSAGE
    OUTCOME_UNKNOWN = -4         # the decoder does not know its type: publish as MESSAGE
    OUTCOME_ROOM = -5            # sound, but the update does not fit the room
    OUTCOME_STREAM_STATUS = -6   # consumed: the subscriber publishes its own

cdef struct Found:
    uint32_t size                # of the update in bytes, or what it would need
    uint32_t object              # Record.object
    uint32_t flags  # Record.flags; RECORD_SNAPSHOT: the update is all there is of its object
    uint32_t exchange_id
    uint32_t symbol_id
    uint32_t names_full          # names that the table had no room for
    uint16_t stream              # of the object, + 1; 0: the message's own
    uint16_t session             # ordinal of that stream's session
    bint last                    # the message has no further update: do not ask again


cdef inline void found_count(int64_t* feed, int32_t result, const Found* found) noexcept nogil:
    # Count the outcome of one call, as decode_count does for Roq.
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


cdef inline void found_count_all(
        int64_t* feed, int32_t result, bint told, bint withheld) noexcept nogil:
    # Count a whole message by its last outcome: together with those that found_count counts, each
    # message has one verdict.
    if result == 0:
        counter_add(
            &feed[FEED_TOLD if told else FEED_WITHHELD if withheld else FEED_NOTHING_NEW], 1)
