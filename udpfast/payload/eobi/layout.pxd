# T7 Enhanced Order Book Interface, versions 6 and 13. Little endian. A message has 0 u16 size, 2
# u16 template, 4 u32 number, then its fields. Offsets count from the size.
#
# Messages about one order end with its details: 0 u64 priority, then
#   in version 6 (24 bytes):   8 i32 quantity, 12 u8 side, 16 i64 price
#   in version 13 (28 bytes):  8 i64 quantity with four decimals, 16 u8 side, 20 i64 price

cdef enum:  # templates
    EOBI_HEARTBEAT = 13001
    EOBI_ADD = 13100
    EOBI_MODIFY = 13101
    EOBI_DELETE = 13102
    EOBI_MASS_DELETE = 13103
    EOBI_FULL_EXECUTION = 13104
    EOBI_PARTIAL_EXECUTION = 13105
    EOBI_MODIFY_SAME_PRIORITY = 13106
    EOBI_REVERSAL = 13200        # to EOBI_REPORT_OFF_BOOK: reports of trades
    EOBI_REPORT_OFF_BOOK = 13203
    EOBI_PRODUCT_STATE = 13300   # to EOBI_STATES
    EOBI_STATES = 13302
    EOBI_INSTRUMENT = 13400      # to EOBI_INSTRUMENT_SCALED: instruments created today
    EOBI_INSTRUMENT_SCALED = 13402
    EOBI_AUCTION = 13500  # to EOBI_TOP: auctions, quote requests, the best prices in auctions
    EOBI_TOP = 13504
    EOBI_PRODUCT = 13600         # to EOBI_SNAPSHOT_ORDER: messages of snapshots
    EOBI_SUMMARY = 13601
    EOBI_SNAPSHOT_ORDER = 13602

cdef enum:  # offsets
    EOBI_TEMPLATE = 2
    EOBI_MESSAGE = 4             # u32: the message's number within its product
    EOBI_FIELDS = 8
    EOBI_TIME = 8                # u64 UNIX ns
    EOBI_ADD_ID = 16             # i64, the instrument's
    EOBI_ADD_DETAILS = 24        # EOBI_DELETE has a second time before its details
    EOBI_DELETE_ID = 24
    EOBI_DELETE_DETAILS = 32
    EOBI_PREVIOUS_PRIORITY = 16
    EOBI_PREVIOUS_PRICE = 24
    EOBI_MODIFY_ID = 40
    EOBI_MODIFY_DETAILS = 48
    EOBI_SAME_ID = 32
    EOBI_SAME_DETAILS = 40
    EOBI_MASS_DELETE_ID = 8
    EOBI_MASS_DELETE_TIME = 16

cdef enum:  # executions
    EOBI_EXECUTED_SIDE = 8
    EOBI_MATCH_13 = 12           # u32; version 6 has zeros there
    EOBI_EXECUTED_PRICE = 16     # the order's own price
    EOBI_EXECUTED_PRIORITY = 24
    EOBI_EXECUTED_ID = 32
    EOBI_MATCH = 40
    EOBI_LAST_QUANTITY = 44      # i32
    EOBI_LAST_QUANTITY_13 = 40   # i64 with four decimals
    EOBI_LAST_PRICE = 48
    EOBI_EXECUTED_SIZE = 56

cdef enum:  # in the details
    EOBI_QUANTITY = 8
    EOBI_SIDE = 12
    EOBI_PRICE = 16
    EOBI_DETAILS = 24
    EOBI_SIDE_13 = 16
    EOBI_PRICE_13 = 20
    EOBI_DETAILS_13 = 28
    EOBI_DETAILS_PADDED = 32
    EOBI_PRICE_NULL_UPPER = 0x80000000
    EOBI_BUY = 1
    EOBI_SELL = 2
    EOBI_QUANTITY_UNIT = 10000

cdef enum:  # snapshots, where an order is its details alone
    # In a product's summary, u32: the last message of changes that the cycle includes.
    EOBI_PROCESSED = 8
    EOBI_SUMMARY_ID = 8          # i64, the instrument's
    EOBI_ORDERS = 32             # u16: how many orders follow
    EOBI_ORDERS_NULL = 0xFFFF
