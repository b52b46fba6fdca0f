from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray
from typing_extensions import Buffer

from udpfast.market.names import NameTable

__all__ = [
    "SourceInfo",
    "encode_book",
    "encode_top_of_book",
    "encode_trades",
    "encode_update",
    "stamp",
]

class SourceInfo(NamedTuple):
    seqno: int = 0
    send_time_utc: int = 0
    create_time_utc: int = 0
    send_time: int = 0
    create_time: int = 0

def encode_book(
    exchange: str | bytes | None,
    symbol: str | bytes | None,
    *,
    bids: NDArray[Any] | Sequence[Sequence[float]] | None = None,
    asks: NDArray[Any] | Sequence[Sequence[float]] | None = None,
    update_type: int = 2,
    stream_id: int = 0,
    exchange_time_utc: int = 0,
    exchange_sequence: int = 0,
    sending_time_utc: int = 0,
    price_precision: int = 0,
    quantity_precision: int = 0,
    max_depth: int = 0,
    source: SourceInfo | None = ...,
) -> bytearray: ...
def encode_top_of_book(
    exchange: str | bytes | None,
    symbol: str | bytes | None,
    bid_price: float = ...,
    bid_quantity: float = 0.0,
    ask_price: float = ...,
    ask_quantity: float = 0.0,
    *,
    update_type: int = 2,
    stream_id: int = 0,
    exchange_time_utc: int = 0,
    exchange_sequence: int = 0,
    sending_time_utc: int = 0,
    price_precision: int = 0,
    quantity_precision: int = 0,
    source: SourceInfo | None = ...,
) -> bytearray: ...
def encode_trades(
    exchange: str | bytes | None,
    symbol: str | bytes | None,
    trades: NDArray[Any] | Sequence[Sequence[Any]],
    *,
    stream_id: int = 0,
    exchange_time_utc: int = 0,
    exchange_sequence: int = 0,
    sending_time_utc: int = 0,
    price_precision: int = 0,
    quantity_precision: int = 0,
    source: SourceInfo | None = ...,
) -> bytearray: ...
def encode_update(kind: int, payload: Buffer, names: NameTable) -> bytes | bytearray: ...
def stamp(payload: Buffer, send_time_utc: int, send_time: int) -> bool: ...
