# Generated from updates.pxd by scripts/generate_layouts.py.

from libc.stdint cimport uint16_t, uint32_t

from udpfast.core.update_kinds cimport (
    KIND_BOOK, KIND_CUSTOM_METRICS, KIND_EXTERNAL_LATENCY, KIND_GATEWAY_SETTINGS,
    KIND_GATEWAY_STATUS, KIND_MARKET_STATUS, KIND_ORDERS, KIND_REFERENCE_DATA, KIND_STATISTICS,
    KIND_TOP_OF_BOOK, KIND_TRADES)
from udpfast.market.update_header cimport Level
from udpfast.market.updates cimport (
    Book, CustomMetrics, ExternalLatency, GatewaySettings, GatewayStatus, MarketStatus,
    Measurement, Order, Orders, ReferenceData, Statistic, Statistics, TickSizeStep, TopOfBook,
    Trade, Trades)


cdef inline uint32_t update_fixed(uint16_t kind, uint32_t* row) noexcept nogil:
    # Bytes of a kind's fixed part and of one of its rows; 0: there is no such kind.
    row[0] = 0
    if kind == KIND_BOOK:
        row[0] = sizeof(Level)
        return sizeof(Book)
    if kind == KIND_ORDERS:
        row[0] = sizeof(Order)
        return sizeof(Orders)
    if kind == KIND_TOP_OF_BOOK:
        return sizeof(TopOfBook)
    if kind == KIND_TRADES:
        row[0] = sizeof(Trade)
        return sizeof(Trades)
    if kind == KIND_STATISTICS:
        row[0] = sizeof(Statistic)
        return sizeof(Statistics)
    if kind == KIND_REFERENCE_DATA:
        row[0] = sizeof(TickSizeStep)
        return sizeof(ReferenceData)
    if kind == KIND_MARKET_STATUS:
        return sizeof(MarketStatus)
    if kind == KIND_GATEWAY_STATUS:
        return sizeof(GatewayStatus)
    if kind == KIND_GATEWAY_SETTINGS:
        return sizeof(GatewaySettings)
    if kind == KIND_EXTERNAL_LATENCY:
        return sizeof(ExternalLatency)
    if kind == KIND_CUSTOM_METRICS:
        row[0] = sizeof(Measurement)
        return sizeof(CustomMetrics)
    return 0
