# Deribit multicast, schema 1. Little endian. A message: header of six u16, root block, groups
# (header of four u16: block, count, 0, 0), texts (u8 length). Nothing tells its length in front.

cdef enum:
    DERIBIT_HEADER = 12
    DERIBIT_TEMPLATE = 2
    DERIBIT_GROUPS = 8
    DERIBIT_TEXTS = 10
    DERIBIT_GROUP_HEADER = 8

cdef enum:  # templates
    DERIBIT_INSTRUMENT = 1000    # to INSTRUMENT_2: known
    DERIBIT_BOOK = 1001
    DERIBIT_TRADES = 1002
    DERIBIT_SNAPSHOT = 1004
    DERIBIT_SNAPSHOT_START = 1005
    DERIBIT_INSTRUMENT_2 = 1010

cdef enum:  # root blocks: 0 u32 instrument
    DERIBIT_KIND = 5             # of instruments: 0 future, 1 option, 2 3 combos of them, 4 spot
    DERIBIT_IS_OPTION = 1
    DERIBIT_CALL_OR_PUT = 7      # 0 neither, 1 call, 2 put
    DERIBIT_EXPIRES = 60         # u64 ms; this and what follows one earlier in INSTRUMENT_2
    DERIBIT_STRIKE = 68          # f64
    DERIBIT_CONTRACT = 76        # f64
    DERIBIT_TICK = 92
    DERIBIT_MS_MAX = 9_000_000_000_000
    DERIBIT_TIME = 4             # u64 ms, of books and snapshots
    DERIBIT_PREVIOUS = 12        # of books: u64
    DERIBIT_CHANGE = 20
    DERIBIT_IS_LAST = 28
    DERIBIT_SNAPSHOT_CHANGE = 12
    DERIBIT_SNAPSHOT_LAST = 21

cdef enum:  # entries
    DERIBIT_SIDE = 0             # of books: 0 ask, 1 bid
    DERIBIT_ACTION = 1           # of books: 2 deleted
    DERIBIT_PRICE = 2            # of books: f64, then f64 amount; one less in snapshots
    DERIBIT_DIRECTION = 0        # of trades: 0 buy, 1 sell
    DERIBIT_TRADE_PRICE = 1
    DERIBIT_TRADE_AMOUNT = 9
    DERIBIT_TRADE_TIME = 17
    DERIBIT_TRADE_ID = 49
