# The common beginning of all updates, and a level of a book: all that most readers of updates need.
# A new kind (updates.pxd) changes neither of them, so these readers are not recompiled.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:  # Present, in UpdateHeader.present
    PRESENT_SOURCE_INFO = 1
    PRESENT_ROWS = 2             # the list (of a book: its bids) was present, perhaps empty
    PRESENT_ASKS = 4             # Book; if it is absent, that side did not change
    PRESENT_LAYER = 8            # TopOfBook
    PRESENT_MORE = 16            # Book: its event goes on in the next update of the book
    PRESENT_TEXT = 256           # the kind's first text; << i for the i-th in struct order
    PRESENT_ROW_TEXT = 1         # the first text of a row, in the `present` of the row

# Objects of a venue, told apart by these bits; the symbol's id is below 2^24.
cdef enum:
    OBJECT_IMPLIED = 0x10000000
    OBJECT_ORDERS = 0x20000000
    OBJECT_TRADES = 0x40000000
    OBJECT_STATUS = 0x80000000
    OBJECT_REFERENCE = 0xC0000000

cdef packed struct UpdateHeader:  # 88 bytes
    uint64_t source_seqno            # of the origin's stream
    uint64_t source_send_time_utc    # UNIX ns, the origin's real-time clock
    uint64_t source_create_time_utc
    uint64_t source_send_time        # ns, the origin's monotonic clock
    uint64_t source_create_time
    int64_t exchange_time_utc        # UNIX ns
    uint64_t exchange_sequence
    int64_t sending_time_utc         # UNIX ns, by the exchange
    uint32_t exchange_id             # name table; 0 = absent, or no room for it (TRUNCATED)
    uint32_t symbol_id
    uint32_t present                 # Present
    uint32_t row_count
    uint16_t stream_id
    uint16_t max_depth               # Book, Orders; 0 = unlimited
    uint8_t update_type              # schema UpdateType: 1 snapshot, 2 incremental, 3 stale
    uint8_t price_precision          # schema Precision: decimal digits + 1, 0 = unknown
    uint8_t quantity_precision
    uint8_t reserved

cdef packed struct Level:  # 32 bytes: MBPUpdate
    double price
    double quantity                  # 0 removes the level
    double implied_quantity
    uint32_t price_level
    uint16_t number_of_orders
    uint8_t update_action            # schema UpdateAction
    uint8_t reserved


cdef inline bint level_refused(double price, double quantity) noexcept nogil:
    # The one check of what a level says, whoever keeps it (book.pxd, ladder.pxd): what is no number
    # cannot be ordered or added, and nobody offers a quantity below 0. Infinite prices are numbers.
    return price != price or not quantity >= 0
