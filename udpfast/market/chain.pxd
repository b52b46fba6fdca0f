# Chain: which messages of an object a reader has seen, and what they tell of the feed's own word.
# The same for a strategy's books (client/track) and for what is kept for late joiners (state).

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from udpfast.core.layout cimport (
    CHANNEL_INCREMENTAL, GAP_ANEW, Gap, RECORD_RELEASED, RECORD_SIZE, RECORD_UNGATED, Record)

cdef enum:
    # A snapshot that the feed passes on may be older than messages without a gate which it passed
    # before, and which continue it: by what a snapshot channel lags.
    CHAIN_BEHIND_MAX = 1 << 24


cdef inline uint32_t chain_applied(
        bint begun, uint32_t applied, const Record* record) noexcept nogil:
    # The last incremental seqno that the object's state contains, once `record` is applied;
    # `begun`: `applied` was it before.
    cdef uint32_t seqno
    if record.channel == CHANNEL_INCREMENTAL and not record.flags & RECORD_RELEASED:
        return record.frame.seqno
    seqno = record.frame.seqno if record.channel == CHANNEL_INCREMENTAL else record.frame.last_seqno
    return applied if begun and applied - seqno < <uint32_t>CHAIN_BEHIND_MAX else seqno


cdef inline bint chain_sure(const Record* record) noexcept nogil:
    # The feed passes a message of the incremental channel while it is sure of its object, and says
    # RECOVERED first if it was not. Not so what it had collected, nor what it does not watch over.
    return record.channel == CHANNEL_INCREMENTAL and not (
        record.flags & (RECORD_RELEASED | RECORD_UNGATED))


cdef inline bint chain_doubted(const Record* record, const uint8_t* payload) noexcept nogil:
    # Whether a GAP puts every object in doubt: an incremental message was lost, which may have been
    # of any of them; or snapshots were, all along, somebody else's.
    cdef Gap gap
    if record.channel == CHANNEL_INCREMENTAL:
        return True
    if record.length < <int64_t> (RECORD_SIZE + sizeof(Gap)):
        return False
    memcpy(&gap, payload, sizeof(Gap))
    return gap.reason == GAP_ANEW
