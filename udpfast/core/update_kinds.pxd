# The kinds of decoded updates, apart from those of layout.pxd, which nearly every module reads: a
# new one compiles only what names one.
#
# Generated from market/updates.pxd by scripts/generate_layouts.py.

cdef enum:  # Kind
    KIND_BOOK = 16           # MarketByPriceUpdate
    KIND_ORDERS = 17         # MarketByOrderUpdate
    KIND_TOP_OF_BOOK = 18
    KIND_TRADES = 19         # TradeSummary
    KIND_STATISTICS = 20     # StatisticsUpdate
    KIND_REFERENCE_DATA = 21
    KIND_MARKET_STATUS = 22
    KIND_GATEWAY_STATUS = 23
    KIND_GATEWAY_SETTINGS = 24
    KIND_EXTERNAL_LATENCY = 25
    KIND_CUSTOM_METRICS = 26  # CustomMetricsUpdate
