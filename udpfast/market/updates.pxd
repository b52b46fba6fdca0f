# The layouts of decoded payloads, which records of kind BOOK and above carry.
#
#   0               88                        sizeof(struct)              n * sizeof(row)
#   +---------------+--------------------------+-----+-----+-----+
#   | UpdateHeader  | the kind's own fields    | row | row | ... |
#   +---------------+--------------------------+-----+-----+-----+
#
# Every kind begins with an UpdateHeader; six kinds end with `row_count` rows of one struct. All
# sizes are multiples of 8, and every number is aligned to its own size, so numpy reads the columns
# in place. Fields keep the names of the schema; a field that a kind does not have is 0.
#
# Text: exchange and symbol are ids of the name table (names.pxd). Other strings are bytes of fixed
# width, padded with zeros; longer ones are cut at a character, and the record is flagged
# RECORD_TRUNCATED. A bit of `present` tells an absent string, list or table from an empty one.
#
# scripts/generate_layouts.py derives all lists of kinds from these structs: `Kind`, its size, dtype
# and stub, the table of exports, udpfast.h. So the comment behind a struct has a fixed form: its
# kind, its bytes, its rows, the event that it is made from. Whether an update is an event, is
# complete, or is a part of something is stated by hand; tests/market/test_kinds.py names where.
#
# Deprecated schema fields are not kept: no current publisher writes them.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from udpfast.market.update_header cimport *

# Widths of text: the limits of the origin (roq-api), rounded up for alignment.
cdef enum:
    SIZE_ACCOUNT = 32
    SIZE_CFI_CODE = 16           # six characters by ISO 10962
    SIZE_CURRENCY = 32
    SIZE_DESCRIPTION = 128
    SIZE_LABEL = 32
    SIZE_MEASUREMENT = 32        # the origin has 8; longer names stay apart
    SIZE_ORDER_ID = 36
    SIZE_SYMBOL = 64
    SIZE_TIME_ZONE = 32          # the longest name of the tz database has 32 bytes
    SIZE_TRADE_ID = 40
    SIZE_USER = 16

# --- rows ---------------------------------------------------------------------------------------

cdef packed struct Order:  # 64 bytes: MBOUpdate
    double price
    double quantity
    uint64_t priority
    char order_id[SIZE_ORDER_ID]
    uint8_t side                     # schema Side: 1 buy, 2 sell
    uint8_t action                   # schema UpdateAction
    uint8_t reason                   # schema UpdateReason
    uint8_t present                  # 1 order_id

cdef packed struct Trade:  # 136 bytes
    double price
    double quantity
    char trade_id[SIZE_TRADE_ID]
    char taker_order_id[SIZE_ORDER_ID]
    char maker_order_id[SIZE_ORDER_ID]
    uint8_t side                     # schema Side, of the taker
    uint8_t present                  # 1 trade_id, 2 taker_order_id, 4 maker_order_id
    uint8_t reserved[6]

cdef packed struct Statistic:  # 32 bytes: Statistics
    double value
    int64_t begin_time_utc           # UNIX seconds
    int64_t end_time_utc
    uint8_t type                     # schema StatisticsType
    uint8_t reserved[7]

cdef packed struct Measurement:  # 48 bytes
    double value
    char name[SIZE_MEASUREMENT]
    uint8_t present                  # 1 name
    uint8_t reserved[7]

cdef packed struct TickSizeStep:  # 16 bytes
    double min_price
    double tick_size

# --- kinds --------------------------------------------------------------------------------------

cdef packed struct Book:  # 16: 96 bytes, Level[bid_count], Level[ask_count]: MarketByPriceUpdate
    UpdateHeader header
    uint32_t bid_count
    uint32_t ask_count

cdef packed struct Orders:  # 17: 96 bytes, Order[row_count]: MarketByOrderUpdate
    UpdateHeader header
    uint32_t checksum
    uint32_t reserved2

cdef packed struct TopOfBook:  # 18: 120 bytes
    UpdateHeader header
    double bid_price                 # NaN: no such side
    double bid_quantity
    double ask_price
    double ask_quantity

cdef packed struct Trades:  # 19: 88 bytes, Trade[row_count]: TradeSummary
    UpdateHeader header

cdef packed struct Statistics:  # 20: 88 bytes, Statistic[row_count]: StatisticsUpdate
    UpdateHeader header

cdef packed struct ReferenceData:  # 21: 608 bytes, TickSizeStep[row_count]
    UpdateHeader header
    double tick_size
    double multiplier
    double min_trade_vol
    double max_trade_vol
    double trade_vol_step_size
    double strike_price
    double min_notional
    int64_t expiry_datetime          # UNIX seconds
    int64_t expiry_datetime_utc
    int32_t issue_date               # UNIX days
    int32_t settlement_date
    int32_t external_security_id
    uint8_t security_type            # schema SecurityType
    uint8_t option_type              # schema OptionType
    uint8_t discard                  # bool
    uint8_t reserved2
    char description[SIZE_DESCRIPTION]
    char quote_currency[SIZE_CURRENCY]
    char base_currency[SIZE_CURRENCY]
    char commission_currency[SIZE_CURRENCY]
    char strike_currency[SIZE_CURRENCY]
    char underlying[SIZE_SYMBOL]
    char time_zone[SIZE_TIME_ZONE]
    char margin_currency[SIZE_CURRENCY]
    char settlement_currency[SIZE_CURRENCY]
    char cfi_code[SIZE_CFI_CODE]

cdef packed struct MarketStatus:  # 22: 96 bytes
    UpdateHeader header
    uint8_t trading_status           # schema TradingStatus
    uint8_t reserved2[7]

cdef packed struct GatewayStatus:  # 23: 152 bytes
    UpdateHeader header
    uint64_t supported               # schema SupportType bits, masked by what the feed carries
    uint64_t available
    uint64_t unavailable
    uint64_t supported_by_origin     # as received
    char account[SIZE_ACCOUNT]

cdef packed struct GatewaySettings:  # 24: 136 bytes
    UpdateHeader header
    uint64_t supports                # schema SupportType bits
    uint64_t oms_cancel_all_orders
    double mbp_tick_size_multiplier
    double mbp_min_trade_vol_multiplier
    uint32_t mbp_max_depth           # 0 = unlimited
    uint16_t ts_max_history
    uint8_t mbp_allow_price_inversion    # bool, as the next four
    uint8_t mbp_allow_remove_non_existing
    uint8_t oms_download_has_state
    uint8_t oms_download_has_routing_id
    uint8_t mbp_checksum
    uint8_t oms_request_id_type      # schema RequestIdType
    uint8_t ts_interval              # schema Interval
    uint8_t reserved2[3]

cdef packed struct ExternalLatency:  # 25: 128 bytes
    UpdateHeader header
    int64_t latency                  # ns, one way
    char account[SIZE_ACCOUNT]

cdef packed struct CustomMetrics:  # 26: 168 bytes, Measurement[row_count]: CustomMetricsUpdate
    UpdateHeader header
    char user[SIZE_USER]
    char label[SIZE_LABEL]
    char account[SIZE_ACCOUNT]
