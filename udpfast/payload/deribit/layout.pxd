# Deribit multicast, schema 1. Little endian. A message is a header of six u16, the root block,
# groups (each with a header of four u16: block, count, 0, 0), and texts (each with a u8 length). No
# field has the message's length.

cdef enum:
    DERIBIT_HEADER = 12
    DERIBIT_TEMPLATE = 2
    DERIBIT_GROUPS = 8
    DERIBIT_TEXTS = 10
    DERIBIT_GROUP_HEADER = 8

cdef enum:  # templates
    DERIBIT_INSTRUMENT = 1000    # all templates up to DERIBIT_INSTRUMENT_2 are known
    DERIBIT_BOOK = 1001
    DERIBIT_TRADES = 1002
    DERIBIT_SNAPSHOT = 1004
    DERIBIT_SNAPSHOT_START = 1005
    DERIBIT_INSTRUMENT_2 = 1010

cdef enum:  # root blocks; 0 is the u32 instrument
    DERIBIT_KIND = 5  # in instruments: 0 future, 1 option, 2 and 3 combos of them, 4 spot
    DERIBIT_IS_OPTION = 1
    DERIBIT_CALL_OR_PUT = 7      # 0 neither, 1 call, 2 put
    DERIBIT_EXPIRES = 60  # u64 ms; from here on each field is one byte earlier in INSTRUMENT_2
    DERIBIT_STRIKE = 68          # f64
    DERIBIT_CONTRACT = 76        # f64
    DERIBIT_TICK = 92
    DERIBIT_MS_MAX = 9_000_000_000_000
    DERIBIT_TIME = 4             # u64 ms, in books and snapshots
    DERIBIT_PREVIOUS = 12        # u64, in books
    DERIBIT_CHANGE = 20
    DERIBIT_IS_LAST = 28
    DERIBIT_SNAPSHOT_CHANGE = 12
    DERIBIT_SNAPSHOT_LAST = 21

cdef enum:  # entries
    DERIBIT_SIDE = 0             # in books: 0 ask, 1 bid
    DERIBIT_ACTION = 1           # in books: 2 deleted
    DERIBIT_PRICE = 2  # in books: f64, then the amount, f64; one byte earlier in snapshots
    DERIBIT_DIRECTION = 0        # in trades: 0 buy, 1 sell
    DERIBIT_TRADE_PRICE = 1
    DERIBIT_TRADE_AMOUNT = 9
    DERIBIT_TRADE_TIME = 17
    DERIBIT_TRADE_ID = 49
