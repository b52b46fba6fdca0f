from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from udpfast.core.layout import Kind
from udpfast.core.layouts import Layouts

__all__ = [
    "BOOK",
    "CUSTOM_METRICS",
    "EXTERNAL_LATENCY",
    "GATEWAY_SETTINGS",
    "GATEWAY_STATUS",
    "LAYOUTS",
    "LEVEL",
    "MARKET_STATUS",
    "MEASUREMENT",
    "ORDER",
    "ORDERS",
    "PAYLOAD_HASH",
    "REFERENCE_DATA",
    "ROW_DTYPES",
    "STATISTIC",
    "STATISTICS",
    "TICK_SIZE_STEP",
    "TOP_OF_BOOK",
    "TRADE",
    "TRADES",
    "UPDATE_DTYPES",
    "Update",
    "view_update",
]

BOOK: np.dtype[np.void]
CUSTOM_METRICS: np.dtype[np.void]
EXTERNAL_LATENCY: np.dtype[np.void]
GATEWAY_SETTINGS: np.dtype[np.void]
GATEWAY_STATUS: np.dtype[np.void]
LEVEL: np.dtype[np.void]
MARKET_STATUS: np.dtype[np.void]
MEASUREMENT: np.dtype[np.void]
ORDER: np.dtype[np.void]
ORDERS: np.dtype[np.void]
REFERENCE_DATA: np.dtype[np.void]
STATISTIC: np.dtype[np.void]
STATISTICS: np.dtype[np.void]
TICK_SIZE_STEP: np.dtype[np.void]
TOP_OF_BOOK: np.dtype[np.void]
TRADE: np.dtype[np.void]
TRADES: np.dtype[np.void]
UPDATE_DTYPES: dict[Kind, np.dtype[np.void]]
ROW_DTYPES: dict[Kind, np.dtype[np.void]]
PAYLOAD_HASH: int
LAYOUTS: Layouts

class Update(NamedTuple):
    kind: Kind
    header: np.void
    rows: NDArray[Any]
    @property
    def bids(self) -> NDArray[Any]: ...
    @property
    def asks(self) -> NDArray[Any]: ...

def view_update(kind: int, payload: Buffer) -> Update: ...
