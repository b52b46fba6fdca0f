# Encodes books, tops of book and trades as event payloads: the inverse of decode.
#
#   0      4              16      30                44                 88
#   +------+--------------+-------+-----------------+------------------+---------------------
#   | root | Event vtable | Event | SourceInfo vtbl | SourceInfo       | value: vtable, table,
#   |      |              | table | seqno @48       | stamps @56 .. 88 | names, vectors, rows
#   +------+--------------+-------+-----------------+------------------+---------------------
#
# It is written forwards: what is referred to lies behind what refers to it, as the format requires.
# The first 88 bytes have fixed places, so that a sender can stamp the time of sending with two
# stores. Default values are left out, as the official encoders do: fewer bytes, fewer fragments.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from udpfast.market.updates cimport *
from udpfast.payload.roq.schema cimport *

cdef enum:
    EVENT_TABLE_AT = 16
    EVENT_VALUE_AT = 24          # reference to the value
    EVENT_TYPE_AT = 28           # union code
    SOURCE_VTABLE_AT = 30
    SOURCE_TABLE_AT = 44
    SOURCE_SEQNO_AT = 48
    SOURCE_SEND_TIME_UTC_AT = 56
    SOURCE_CREATE_TIME_UTC_AT = 64
    SOURCE_SEND_TIME_AT = 72
    SOURCE_CREATE_TIME_AT = 80
    HEAD_SIZE = 88
    LEVEL_ENCODED_MAX = 48       # table 40, its reference 4, alignment 4
    LEVEL_VTABLES_MAX = 1152     # 64 combinations of present fields, 18 bytes each
    TRADE_ENCODED_MAX = 240      # table 40, vtable 16, reference 4, three texts of 48, alignment
    VALUE_ENCODED_MAX = 512      # head, vtable, table, two names without their text

cdef struct Text:
    const uint8_t* start         # NULL = absent
    uint32_t size

cdef struct Writer:  # the memory was zeroed before
    uint8_t* start
    uint32_t at

cdef struct FieldOut:
    uint16_t slot                # vtable slot
    uint16_t size                # 1, 2, 4 or 8; 0 = default, left out
    uint32_t at                  # where it was written
    uint64_t bits                # its value; references are patched later

cdef struct TableOut:  # fields of one table, collected before they are laid out
    FieldOut field[16]
    uint32_t count


cdef inline void store(uint8_t* at, uint64_t bits, uint32_t size) noexcept nogil:
    if size == 8:
        memcpy(at, &bits, 8)
    elif size == 4:
        memcpy(at, &bits, 4)
    elif size == 2:
        memcpy(at, &bits, 2)
    else:
        at[0] = <uint8_t> bits


cdef inline uint64_t bits_of(double value) noexcept nogil:
    cdef uint64_t bits
    memcpy(&bits, &value, 8)
    return bits


cdef inline void write_align(Writer* writer, uint32_t boundary, uint32_t rest) noexcept nogil:
    # Advance until at % boundary == rest.
    writer.at += (rest - writer.at) & (boundary - 1)


cdef inline uint32_t table_add(
        TableOut* table, uint16_t slot, uint16_t size, uint64_t bits) noexcept nogil:
    # Add a scalar, which is left out if it is 0. Return the field's index.
    cdef FieldOut* field = &table.field[table.count]
    field.slot = slot
    field.size = size if bits else 0
    field.bits = bits
    table.count += 1
    return table.count - 1


cdef inline uint32_t table_add_double(
        TableOut* table, uint16_t slot, double value) noexcept nogil:
    # Add a number whose default is NaN.
    cdef uint32_t index = table_add(table, slot, 8, bits_of(value))
    table.field[index].size = 8 if value == value else 0
    return index


cdef inline uint32_t table_add_reference(
        TableOut* table, uint16_t slot, bint there) noexcept nogil:
    return table_add(table, slot, 4, there)


cdef inline uint32_t write_table(Writer* writer, TableOut* table) noexcept nogil:
    # Write the vtable, then the table with its widest fields first. Return the table's place.
    cdef uint8_t* data = writer.start
    cdef uint32_t vtable, size, i, at
    cdef uint16_t end = 4
    cdef FieldOut* field
    for i in range(table.count):
        if table.field[i].size:
            end = max(end, <uint16_t> (table.field[i].slot + 2))
    write_align(writer, 2, 0)
    vtable = writer.at
    writer.at += end
    write_align(writer, 8, 4)  # then doubles behind the vtable distance are aligned
    at = writer.at
    writer.at += 4
    size = 8
    while size:
        for i in range(table.count):
            field = &table.field[i]
            if field.size == size:
                field.at = writer.at
                store(data + field.at, field.bits, size)
                store(data + vtable + field.slot, field.at - at, 2)
                writer.at += size
        size >>= 1
    store(data + vtable, end, 2)
    store(data + vtable + 2, writer.at - at, 2)
    store(data + at, at - vtable, 4)
    return at


cdef inline void write_reference(Writer* writer, uint32_t at) noexcept nogil:
    # Let the reference at `at` lead to what is written next.
    store(writer.start + at, writer.at - at, 4)


cdef inline void write_text(
        Writer* writer, const FieldOut* field, const uint8_t* text, uint32_t size) noexcept nogil:
    if field.size == 0:
        return
    write_align(writer, 4, 0)
    write_reference(writer, field.at)
    store(writer.start + writer.at, size, 4)
    memcpy(writer.start + writer.at + 4, text, size)
    writer.at += 4 + size + 1


cdef inline uint32_t write_vector(
        Writer* writer, const FieldOut* field, uint32_t count) noexcept nogil:
    # Write the references of a vector. Return the place of the first one.
    if field.size == 0:
        return 0
    write_align(writer, 4, 0)
    write_reference(writer, field.at)
    store(writer.start + writer.at, count, 4)
    writer.at += 4 + 4 * count
    return writer.at - 4 * count


cdef inline void write_head(
        Writer* writer, int message_type, const UpdateHeader* header) noexcept nogil:
    # Write the first 88 bytes; the value begins behind them.
    cdef uint8_t* data = writer.start
    cdef uint16_t[5] event = [10, 13, 4, 12, 8]
    cdef uint16_t[7] source = [14, 44, 4, 12, 20, 28, 36]
    if not header.present & PRESENT_SOURCE_INFO:
        event[2] = 0  # the source info is not referred to, but keeps its place
    store(data, EVENT_TABLE_AT, 4)
    memcpy(data + 4, event, sizeof(event))
    store(data + EVENT_TABLE_AT, EVENT_TABLE_AT - 4, 4)
    store(data + EVENT_TABLE_AT + 4, SOURCE_TABLE_AT - EVENT_TABLE_AT - 4, 4)
    data[EVENT_TYPE_AT] = <uint8_t> message_type
    memcpy(data + SOURCE_VTABLE_AT, source, sizeof(source))
    store(data + SOURCE_TABLE_AT, SOURCE_TABLE_AT - SOURCE_VTABLE_AT, 4)
    store(data + SOURCE_SEQNO_AT, header.source_seqno, 8)
    store(data + SOURCE_SEND_TIME_UTC_AT, header.source_send_time_utc, 8)
    store(data + SOURCE_CREATE_TIME_UTC_AT, header.source_create_time_utc, 8)
    store(data + SOURCE_SEND_TIME_AT, header.source_send_time, 8)
    store(data + SOURCE_CREATE_TIME_AT, header.source_create_time, 8)
    writer.at = HEAD_SIZE


cdef inline void write_value(Writer* writer, TableOut* table) noexcept nogil:
    store(writer.start + EVENT_VALUE_AT, write_table(writer, table) - EVENT_VALUE_AT, 4)


cdef inline void write_levels(
        Writer* writer, uint32_t references, const Level* rows, uint32_t count,
        uint16_t* vtables) noexcept nogil:
    # Write the tables of levels. Tables with the same fields share a vtable: vtables[mask] is its
    # place, 0 if it was not written yet.
    cdef uint8_t* data = writer.start
    cdef const Level* row
    cdef uint32_t i, mask, at, field
    for i in range(count):
        row = rows + i
        mask = ((row.price == row.price) | (bits_of(row.quantity) != 0) << 1
                | (bits_of(row.implied_quantity) != 0) << 2 | (row.price_level != 0) << 3
                | (row.number_of_orders != 0) << 4 | (row.update_action != 0) << 5)
        if vtables[mask] == 0:
            write_level_vtable(writer, mask, vtables)
        write_align(writer, 8, 4)
        at = writer.at
        store(data + references, at - references, 4)
        references += 4
        # A vtable lies in front of its tables, so the distance is positive.
        store(data + at, at - 2 * <uint32_t> vtables[mask], 4)
        field = at + 4
        if mask & 1:
            store(data + field, bits_of(row.price), 8)
            field += 8
        if mask & 2:
            store(data + field, bits_of(row.quantity), 8)
            field += 8
        if mask & 4:
            store(data + field, bits_of(row.implied_quantity), 8)
            field += 8
        if mask & 8:
            store(data + field, row.price_level, 4)
            field += 4
        if mask & 16:
            store(data + field, row.number_of_orders, 2)
            field += 2
        if mask & 32:
            data[field] = row.update_action
            field += 1
        writer.at = field


cdef inline void write_level_vtable(
        Writer* writer, uint32_t mask, uint16_t* vtables) noexcept nogil:
    cdef uint16_t[6] slots = [
        SLOT_MBP_UPDATE_PRICE, SLOT_MBP_UPDATE_QUANTITY, SLOT_MBP_UPDATE_IMPLIED_QUANTITY,
        SLOT_MBP_UPDATE_PRICE_LEVEL, SLOT_MBP_UPDATE_NUMBER_OF_ORDERS,
        SLOT_MBP_UPDATE_UPDATE_ACTION]
    cdef uint16_t[6] sizes = [8, 8, 8, 4, 2, 1]
    cdef uint32_t i, offset = 4, end = 4
    write_align(writer, 2, 0)
    # Halved to fit 16 bits: a message has 131,072 bytes.
    vtables[mask] = <uint16_t> (writer.at >> 1)
    for i in range(6):
        if mask >> i & 1:
            store(writer.start + writer.at + slots[i], offset, 2)
            offset += sizes[i]
            end = max(end, <uint32_t> slots[i] + 2)
    store(writer.start + writer.at, end, 2)
    store(writer.start + writer.at + 2, offset, 2)
    writer.at += end


# Encode into zeroed memory that is large enough for the message. Return the payload's size.
cdef uint32_t encode_book_update(
    uint8_t* into, const Book* book, const Level* rows, Text exchange, Text symbol) noexcept nogil
cdef uint32_t encode_top_of_book_update(
    uint8_t* into, const TopOfBook* top, Text exchange, Text symbol) noexcept nogil
cdef uint32_t encode_trades_update(
    uint8_t* into, const Trades* trades, const Trade* rows, Text exchange,
    Text symbol) noexcept nogil
