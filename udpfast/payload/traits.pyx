"""The traits of venues: what books consist of, how a loss shows, and what repairs it."""

from udpfast.market.change cimport *
from udpfast.payload.iex.layout cimport (
    IEX_PROTOCOL_DEEP, IEX_PROTOCOL_DEEP_PLUS, IEX_PROTOCOL_TOPS, IEX_PROTOCOL_TOPS_OLD)

__all__ = ["is_said_once"]

cdef Traits ITCH, PITCH, CME, DERIBIT, CSM, ICE, MIAX, IEX_TOPS, IEX_DEEP, IEX_DEEP_PLUS
cdef Traits NYSE_INTEGRATED, NYSE_IMBALANCES, MEMX, COINBASE, EOBI, B3

# The traits of a venue, unless its row says otherwise.
DEFAULT = dict(
    orders=False, chain=CHAIN_NONE, empty_at_start=False, heals=False, loops=False,
    orders_by_instrument=False, keeps_prices=False, nameless=False, doubles=False, depth=0,
    depth_implied=0, defined_first=False, renumbers=False, snapshots_from=0, absolute=False,
    protocols=[0, 0])

ITCH = dict(
    DEFAULT, exchange=b"NASDAQ", levels=LEVELS_OF_ORDERS, orders=True, empty_at_start=True,
    names=NAMES_MENTIONED, renumbers=True, keeps_prices=True, decimals=4)
PITCH = dict(
    DEFAULT, exchange=b"CBOE", levels=LEVELS_OF_ORDERS, orders=True, empty_at_start=True,
    names=NAMES_IN_ID, nameless=True, decimals=4)
CME = dict(
    DEFAULT, exchange=b"CME", levels=LEVELS_BY_PLACE, orders=True, chain=CHAIN_DENSE,
    empty_at_start=True, heals=True, loops=True, names=NAMES_DEFINED, orders_by_instrument=True,
    decimals=9, depth=10, depth_implied=2, defined_first=True)
DERIBIT = dict(
    DEFAULT, exchange=b"DERIBIT", levels=LEVELS_BY_PRICE, chain=CHAIN_PREVIOUS, heals=True,
    names=NAMES_DEFINED, doubles=True, decimals=0, snapshots_from=100)
CSM = dict(
    DEFAULT, exchange=b"CBOE", levels=LEVELS_BY_PLACE, chain=CHAIN_DENSE, heals=True,
    names=NAMES_DEFINED, decimals=8, depth=5)
ICE = dict(
    DEFAULT, exchange=b"ICE", levels=LEVELS_OF_ORDERS, orders=True, names=NAMES_DEFINED,
    orders_by_instrument=True, decimals=0, depth_implied=1)
MIAX = dict(
    DEFAULT, exchange=b"MIAX", levels=LEVELS_OF_QUOTES, names=NAMES_DEFINED, decimals=4)

IEX_TOPS = dict(
    DEFAULT, exchange=b"IEX", levels=LEVELS_OF_QUOTES, names=NAMES_IN_ID, decimals=4,
    protocols=[IEX_PROTOCOL_TOPS_OLD, IEX_PROTOCOL_TOPS])
IEX_DEEP = dict(
    DEFAULT, exchange=b"IEX", levels=LEVELS_BY_PRICE, empty_at_start=True, names=NAMES_IN_ID,
    decimals=4, absolute=True, protocols=[IEX_PROTOCOL_DEEP, 0])
IEX_DEEP_PLUS = dict(
    DEFAULT, exchange=b"IEX", levels=LEVELS_OF_ORDERS, orders=True, empty_at_start=True,
    names=NAMES_IN_ID, decimals=4, protocols=[IEX_PROTOCOL_DEEP_PLUS, 0])
NYSE_INTEGRATED = dict(
    DEFAULT, exchange=b"NYSE", levels=LEVELS_OF_ORDERS, orders=True, chain=CHAIN_DENSE,
    empty_at_start=True, heals=True, loops=True, names=NAMES_DEFINED, orders_by_instrument=True,
    decimals=0, defined_first=True)
NYSE_IMBALANCES = dict(
    DEFAULT, exchange=b"NYSE", levels=LEVELS_NONE, names=NAMES_DEFINED, decimals=0)
MEMX = dict(
    DEFAULT, exchange=b"MEMX", levels=LEVELS_OF_ORDERS, orders=True, empty_at_start=True,
    names=NAMES_DEFINED, renumbers=True, decimals=6)
COINBASE = dict(
    DEFAULT, exchange=b"COINBASE", levels=LEVELS_OF_ORDERS, orders=True, chain=CHAIN_DENSE,
    names=NAMES_DEFINED, orders_by_instrument=True, decimals=9)
EOBI = dict(
    DEFAULT, exchange=b"EUREX", levels=LEVELS_OF_ORDERS, orders=True, empty_at_start=True,
    heals=True, loops=True, names=NAMES_DEFINED, orders_by_instrument=True, decimals=8)
B3 = dict(
    DEFAULT, exchange=b"B3", levels=LEVELS_OF_ORDERS, orders=True, empty_at_start=True,
    heals=True, loops=True, names=NAMES_DEFINED, orders_by_instrument=True, decimals=4)


cdef const Traits* venue_traits(int payload) noexcept nogil:
    # Return NULL if the payload is not a venue's.
    if payload == PAYLOAD_ITCH:
        return &ITCH
    if payload == PAYLOAD_PITCH:
        return &PITCH
    if payload == PAYLOAD_CME:
        return &CME
    if payload == PAYLOAD_DERIBIT:
        return &DERIBIT
    if payload == PAYLOAD_CSM:
        return &CSM
    if payload == PAYLOAD_ICE:
        return &ICE
    if payload == PAYLOAD_IEX_TOPS:
        return &IEX_TOPS
    if payload == PAYLOAD_IEX_DEEP:
        return &IEX_DEEP
    if payload == PAYLOAD_IEX_DEEP_PLUS:
        return &IEX_DEEP_PLUS
    if payload == PAYLOAD_NYSE_INTEGRATED:
        return &NYSE_INTEGRATED
    if payload == PAYLOAD_NYSE_IMBALANCES:
        return &NYSE_IMBALANCES
    if payload == PAYLOAD_MEMX:
        return &MEMX
    if payload == PAYLOAD_COINBASE:
        return &COINBASE
    if payload == PAYLOAD_EOBI:
        return &EOBI
    if payload == PAYLOAD_B3:
        return &B3
    return &MIAX if payload == PAYLOAD_MIAX else NULL


def is_said_once(payload: int) -> bool:
    """Return whether a late reader may lack something that the venue says only once.

    That is so if the venue adds single orders or defines instruments. Levels and quotes that name
    their symbol are said again whenever they change.

    Parameters
    ----------
    payload : int
        Index in `config.PAYLOADS`. The result is False for one that is not a venue's.
    """
    cdef const Traits* traits = venue_traits(payload)
    return traits != NULL and (traits.orders or traits.names == NAMES_DEFINED)
