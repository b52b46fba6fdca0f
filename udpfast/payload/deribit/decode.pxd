# Deribit: turns the messages of one datagram into changes. A book message names the change before
# it (its instrument's chain), then levels by price. Tickers repeat what books say, and are skipped.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.core.check cimport unlikely
from udpfast.market.change cimport *
from udpfast.market.found cimport OUTCOME_REFUSED
from udpfast.payload.deribit.layout cimport *
from udpfast.wire.load cimport le16, le32, le64

cdef struct DeribitMessage:
    const uint8_t* data          # the datagram's first message
    const uint8_t* root  # the message's root block
    const uint8_t* entries       # the entries of the first group
    const uint8_t* text          # the first text
    uint32_t block
    uint32_t entry
    uint32_t count
    uint32_t text_size
    Change* changes
    Change* stop


cdef inline double deribit_double(const uint8_t* at) noexcept nogil:
    cdef double value
    memcpy(&value, at, 8)
    return value


cdef inline Change* deribit_change(DeribitMessage* m, int verb, int64_t time_ms) noexcept nogil:
    cdef Change* change = m.changes
    memset(change, 0, sizeof(Change))
    change.verb = <uint8_t>verb
    change.instrument = le32(m.root) if m.block >= 4 else 0
    change.time_ns = <int64_t>(<uint64_t>time_ms * 1_000_000)
    change.price = PRICE_NONE
    change.side = SIDE_NONE
    m.changes += 1
    return change


cdef inline bint deribit_levels(
        DeribitMessage* m, uint32_t price, bint snapshot, int64_t time_ms) noexcept nogil:
    cdef const uint8_t* at
    cdef Change* change
    cdef uint32_t n
    if (m.count and m.entry < price + 16) or m.changes + m.count + 4 > m.stop:
        return False
    for n in range(m.count):
        at = m.entries + n * m.entry
        if at[DERIBIT_SIDE] > 1 or (not snapshot and at[DERIBIT_ACTION] > 2):
            return False
        change = deribit_change(m, VERB_SET, time_ms)
        change.side = SIDE_ASK if at[DERIBIT_SIDE] == 0 else SIDE_BID
        change.price = change_double(deribit_double(at + price))
        change.quantity = change_double(deribit_double(at + price + 8))
        change.flags = CHANGE_ROW if snapshot else 0
        if not snapshot and at[DERIBIT_ACTION] == 2:
            change.quantity = 0
    return True


cdef inline bint deribit_book(DeribitMessage* m) noexcept nogil:
    cdef Change* change
    cdef int64_t time_ms
    if m.block <= DERIBIT_IS_LAST or m.changes + 4 > m.stop:
        return False
    time_ms = <int64_t>le64(m.root + DERIBIT_TIME)
    if not m.root[DERIBIT_IS_LAST]:
        deribit_change(m, VERB_EVENT_BEGIN, 0)
    change = deribit_change(m, VERB_CHAIN, time_ms)
    change.order = le64(m.root + DERIBIT_CHANGE)
    change.order_before = le64(m.root + DERIBIT_PREVIOUS)
    change.flags = 0 if m.root[DERIBIT_IS_LAST] else CHANGE_MORE
    if m.root == m.data + DERIBIT_HEADER:
        # The message may continue one that began in the datagram before.
        change.flags |= CHANGE_PART
    if not deribit_levels(m, DERIBIT_PRICE, False, time_ms):
        return False
    if m.root[DERIBIT_IS_LAST]:
        deribit_change(m, VERB_EVENT_END, 0)
    return True


cdef inline bint deribit_snapshot(DeribitMessage* m) noexcept nogil:
    cdef Change* change
    cdef int64_t time_ms
    if m.block <= DERIBIT_SNAPSHOT_LAST or m.changes + 4 > m.stop:
        return False
    time_ms = <int64_t>le64(m.root + DERIBIT_TIME)
    change = deribit_change(m, VERB_BEGIN_SNAPSHOT, time_ms)
    change.order = le64(m.root + DERIBIT_SNAPSHOT_CHANGE)
    change.flags = CHANGE_PART
    if not deribit_levels(m, DERIBIT_PRICE - 1, True, time_ms):
        return False
    change = deribit_change(m, VERB_END_SNAPSHOT, 0)
    change.flags = 0 if m.root[DERIBIT_SNAPSHOT_LAST] else CHANGE_MORE
    return True


cdef inline bint deribit_trades(DeribitMessage* m) noexcept nogil:
    cdef const uint8_t* at
    cdef Change* change
    cdef uint32_t n
    if m.block < 4 or (m.count and m.entry < DERIBIT_TRADE_ID + 8) or (
            m.changes + m.count > m.stop):
        return False
    for n in range(m.count):
        at = m.entries + n * m.entry
        change = deribit_change(m, VERB_TRADE, <int64_t>le64(at + DERIBIT_TRADE_TIME))
        change.price = change_double(deribit_double(at + DERIBIT_TRADE_PRICE))
        change.quantity = change_double(deribit_double(at + DERIBIT_TRADE_AMOUNT))
        change.side = SIDE_BID if at[DERIBIT_DIRECTION] == 0 else SIDE_ASK
        change.order = le64(at + DERIBIT_TRADE_ID)
    return True


cdef inline uint64_t deribit_defined(const uint8_t* at) noexcept nogil:
    # Return a double with nine decimals, rounded; 0 if it is not positive or too large.
    cdef double value = deribit_double(at) * 1e9 + 0.5
    return <uint64_t>value if 0 < value < 9e18 else 0


cdef inline void deribit_define(
        const DeribitMessage* m, uint32_t earlier, Change* change) noexcept nogil:
    # Fill in the instrument's properties. In DERIBIT_INSTRUMENT_2 the later fields lie `earlier`
    # bytes further ahead.
    cdef const uint8_t* at = m.root - earlier
    cdef uint8_t kind
    if m.block < DERIBIT_TICK + 8 - earlier:
        return
    kind = m.root[DERIBIT_KIND]
    change.side = 0 if kind > 4 else SECURITY_OPTION if kind == 1 or kind == 3 else (
        SECURITY_SPOT if kind == 4 else SECURITY_FUTURES)
    change.order = deribit_defined(at + DERIBIT_TICK)
    change.order_before = deribit_defined(at + DERIBIT_CONTRACT)
    change.time_ns = <int64_t>min(le64(at + DERIBIT_EXPIRES), <uint64_t>DERIBIT_MS_MAX) * 1_000_000


cdef inline void deribit_option(DeribitMessage* m, uint32_t earlier) noexcept nogil:
    # Append an option's properties, which belong in front of its definition.
    cdef Change* change
    cdef uint64_t strike
    if m.block < DERIBIT_TICK + 8 - earlier or m.root[DERIBIT_KIND] != DERIBIT_IS_OPTION:
        return
    strike = deribit_defined(m.root + DERIBIT_STRIKE - earlier)
    change = deribit_change(m, VERB_OPTION, 0)
    change.place = m.root[DERIBIT_CALL_OR_PUT] if m.root[DERIBIT_CALL_OR_PUT] <= OPTION_PUT else 0
    if strike:
        change.price = <int64_t>strike


cdef inline bint deribit_message(DeribitMessage* m, int template) noexcept nogil:
    # Return False if the message does not fit its template, or the template is unknown.
    cdef Change* change
    if template == DERIBIT_BOOK:
        return deribit_book(m)
    if template == DERIBIT_TRADES:
        return deribit_trades(m)
    if template == DERIBIT_SNAPSHOT:
        return deribit_snapshot(m)
    if m.changes + 2 > m.stop or template < DERIBIT_INSTRUMENT or template > DERIBIT_INSTRUMENT_2:
        return False
    if template == DERIBIT_SNAPSHOT_START:
        # A snapshot that was not finished ends here; the next one says itself when it begins.
        deribit_change(m, VERB_END_SNAPSHOT, 0)
    elif (template == DERIBIT_INSTRUMENT or template == DERIBIT_INSTRUMENT_2) and m.text_size:
        deribit_option(m, 0 if template == DERIBIT_INSTRUMENT else 1)
        change = deribit_change(m, VERB_DEFINE, 0)
        change.name = <uint32_t>(m.text - m.data) + 1
        change.quantity = m.text_size
        deribit_define(m, 0 if template == DERIBIT_INSTRUMENT else 1, change)
    return True


cdef inline int32_t deribit_decode(
        const uint8_t* data, uint32_t size, Change* changes, uint32_t room) noexcept nogil:
    cdef DeribitMessage m
    cdef uint32_t at = 0, groups, texts, n
    cdef int template
    cdef uint64_t span
    m.data = data
    m.changes = changes
    m.stop = changes + room
    while at < size:
        if unlikely(size - at < DERIBIT_HEADER):
            return OUTCOME_REFUSED
        m.block = le16(data + at)
        template = le16(data + at + DERIBIT_TEMPLATE)
        groups = le16(data + at + DERIBIT_GROUPS)
        texts = le16(data + at + DERIBIT_TEXTS)
        at += DERIBIT_HEADER
        m.root = data + at
        m.count = m.entry = m.text_size = 0
        m.text = m.entries = NULL
        if unlikely(size - at < m.block):
            return OUTCOME_REFUSED
        at += m.block
        for n in range(groups):
            if unlikely(size - at < DERIBIT_GROUP_HEADER):
                return OUTCOME_REFUSED
            span = <uint64_t>le16(data + at) * le16(data + at + 2) + DERIBIT_GROUP_HEADER
            if unlikely(size - at < span):
                return OUTCOME_REFUSED
            if n == 0:
                m.entry = le16(data + at)
                m.count = le16(data + at + 2)
                m.entries = data + at + DERIBIT_GROUP_HEADER
            at += <uint32_t>span
        for n in range(texts):
            if unlikely(at == size or size - at - 1 < data[at]):
                return OUTCOME_REFUSED
            if n == 0:
                m.text = data + at + 1
                m.text_size = data[at]
            at += 1 + data[at]
        if unlikely(not deribit_message(&m, template)):
            return OUTCOME_REFUSED
    return <int32_t>(m.changes - changes)
