# CME MDP 3.0, schema 1: offsets of fields. Little endian. Block lengths are read from the wire,
# because later versions have longer blocks. Offsets count from the root block, or from an entry.

cdef enum:  # a message: u16 size, then SBE's header
    CME_SIZE = 0
    CME_BLOCK = 2
    CME_TEMPLATE = 4
    CME_ROOT = 10

cdef enum:  # templates; prices of those below CME_BOOK have seven decimals
    CME_RESET = 4
    CME_FUTURE_5 = 27
    CME_SPREAD_5 = 29
    CME_STATUS = 30
    CME_BOOK_7 = 32
    CME_DAILY_7 = 33
    CME_LIMITS_7 = 34
    CME_STATISTICS_7 = 35
    CME_VOLUME = 37
    CME_SNAPSHOT_7 = 38
    CME_OPTION_8 = 41
    CME_TRADES_7 = 42
    CME_ORDERS_8 = 43
    CME_SNAPSHOT_ORDERS_8 = 44
    CME_BOOK = 46
    CME_ORDERS = 47
    CME_TRADES = 48
    CME_DAILY = 49
    CME_LIMITS = 50
    CME_STATISTICS = 51
    CME_SNAPSHOT = 52
    CME_SNAPSHOT_ORDERS = 53
    CME_FUTURE = 54              # to 58: option, spread, fixed income, repo
    CME_OPTION = 55
    CME_REPO = 58
    CME_FX = 63
    CME_BOOK_LONG = 64           # from version 13 on, with quantities of 64 bits
    CME_TRADES_LONG = 65
    CME_VOLUME_LONG = 66
    CME_STATISTICS_LONG = 67
    CME_SNAPSHOT_LONG = 69

cdef enum:  # templates that change no book
    CME_HEARTBEAT = 12
    CME_LOGIN = 15
    CME_LOGOUT = 16
    CME_QUOTE_REQUEST = 39
    CME_TOP_ORDERS = 59          # to 62: workups, snapshots over TCP, collateral
    CME_COLLATERAL = 62
    CME_SNAPSHOT_TCP = 68

cdef enum:  # root blocks
    CME_TIME = 0                 # u64 ns
    CME_INDICATOR = 8            # bit 7: the event ends
    CME_EVENT_END = 0x80
    CME_STATUS_ID = 20
    CME_STATUS_STATE = 27
    CME_LAST = 0                 # u32 in snapshots: the last datagram that they include
    CME_SNAPSHOT_ID = 8
    CME_SNAPSHOT_CHAIN = 12
    CME_SNAPSHOT_TIME = 16
    CME_CHUNKS = 12
    CME_CHUNK = 16
    CME_SYMBOL = 35              # c20 in definitions
    CME_SYMBOL_SIZE = 20
    CME_DEFINED_ID = 55
    CME_ACTION = 5               # A, D, M
    CME_TICK = 91                # i64 in CME_FUTURE, nine decimals
    CME_CALL_OR_PUT = 71         # in options: 0 put, 1 call
    CME_STRIKE = 80              # i64
    CME_OPTION_TICK = 111        # i64
    CME_LAST_TRADED = 7          # type of an event of 9 bytes; a u64 in UNIX ns follows

cdef enum:  # entries of CME_BOOK: price, size, id, RptSeq, orders, level, action, type
    # In the LONG templates all fields behind the size lie CME_LONGER further back.
    CME_LONGER = 4
    CME_ENTRY_SIZE = 8
    CME_ENTRY_ID = 12
    CME_ENTRY_CHAIN = 16
    CME_ENTRY_ORDERS = 20
    CME_ENTRY_LEVEL = 24
    CME_ENTRY_ACTION = 25        # 0 new, 1 change, 2 delete, 3 thru, 4 from, 5 overlay
    CME_ACTION_LAST = 5
    CME_ENTRY_TYPE = 26
    CME_TRADE_AGGRESSOR = 24     # in CME_TRADES
    CME_TRADE_ID = 26            # u32, from version 7 on
    CME_TRADE_ID_LONG = 28       # in CME_TRADES_LONG, all of it: CME_LONGER is not added
    CME_TRADE_AGGRESSOR_LONG = 32
    CME_LIMITS_ID = 24
    CME_LIMITS_CHAIN = 28
    CME_STATISTICS_ID = 8
    CME_STATISTICS_CHAIN = 12
    CME_VOLUME_ID = 4
    CME_VOLUME_CHAIN = 8

cdef enum:  # entries of orders begin with id and priority
    CME_REFER_QUANTITY = 16      # in CME_BOOK
    CME_REFER_ENTRY = 20         # the level that it belongs to, from 1
    CME_REFER_ACTION = 21
    CME_ORDER_PRICE = 16         # in CME_ORDERS and CME_SNAPSHOT_ORDERS
    CME_ORDER_QUANTITY = 24
    CME_ORDER_ID = 28            # in CME_ORDERS
    CME_ORDER_ACTION = 32        # 0 new, 1 change, 2 delete
    CME_ORDER_ACTION_LAST = 2
    CME_ORDER_TYPE = 33
    CME_ORDER_TYPE_53 = 28

cdef enum:  # entries of CME_SNAPSHOT: price, size, orders, level, .., type
    CME_LEVEL_SIZE = 8
    CME_LEVEL_ORDERS = 12
    CME_LEVEL_PLACE = 16
    CME_LEVEL_TYPE = 21
    CME_LEVEL_ORDERS_LONG = 16   # in CME_SNAPSHOT_LONG
    CME_LEVEL_PLACE_LONG = 20
    CME_LEVEL_TYPE_LONG = 22

cdef enum:
    CME_NULL_32 = 0x7FFFFFFF
    CME_NULL_64 = 0x7FFFFFFFFFFFFFFF
    CME_NULL_ID = 0xFFFFFFFF
