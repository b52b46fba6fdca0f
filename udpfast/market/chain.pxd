# Chain: what the records of an object tell of the feed's own word on it.
# The same for a strategy's books (client/track) and for what is kept for late joiners (state).

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from udpfast.core.layout cimport (
    CHANNEL_INCREMENTAL, CHANNEL_SNAPSHOT, GAP_ANEW, Gap, RECORD_RELEASED, RECORD_SIZE,
    RECORD_UNGATED, Record)

cdef inline bint chain_sure(const Record* record) noexcept nogil:
    # The feed passes a message of the incremental channel while it is sure of its object, and says
    # RECOVERED first if it was not. Not so what it had collected, nor what it does not watch over.
    return record.stream == CHANNEL_INCREMENTAL and not (
        record.flags & (RECORD_RELEASED | RECORD_UNGATED))


cdef inline bint chain_doubted(const Record* record, const uint8_t* payload) noexcept nogil:
    # Whether a GAP puts every object in doubt: a message was lost that may have been of any of
    # them; or snapshots were, all along, somebody else's.
    cdef Gap gap
    if record.stream != CHANNEL_SNAPSHOT:
        return True
    if record.length < <int64_t> (RECORD_SIZE + sizeof(Gap)):
        return False
    memcpy(&gap, payload, sizeof(Gap))
    return gap.reason == GAP_ANEW
