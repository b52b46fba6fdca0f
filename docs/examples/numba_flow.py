"""The flow of trades in a loop that Numba compiles: no Python object, and no call, per record.

python docs/examples/numba_flow.py ring:NAME
"""

import sys

import numba
import numpy as np

import udpfast
from udpfast.core.layout import CONTROL_DTYPES
from udpfast.market.updates import TOP_OF_BOOK, TRADE, TRADES

SYMBOLS = 65536  # ids are dense and begin at 1; no feed has nearly as many
BUY = 1  # schema Side, of the taker
QUOTE_KIND, TRADES_KIND = int(udpfast.Kind.TOP_OF_BOOK), int(udpfast.Kind.TRADES)
DOUBTS = tuple(int(udpfast.Kind[kind]) for kind in ("GAP", "SESSION", "RESTART"))
STALE_KIND, IN_DOUBT = int(udpfast.Kind.STALE), int(udpfast.RecordFlag.DOUBT)


def without_padding(dtype: np.dtype) -> np.dtype:
    """Return the same layout without its unnamed bytes, a type that Numba does not know."""
    return dtype[[name for name in dtype.names if dtype[name].kind != "V"]]


QUOTE, HEAD, ROW = (without_padding(dtype) for dtype in (TOP_OF_BOOK, TRADES, TRADE))
STATE = CONTROL_DTYPES[udpfast.Kind.STALE]
QUOTE_SIZE, HEAD_SIZE, ROW_SIZE = QUOTE.itemsize, HEAD.itemsize, ROW.itemsize
STATE_SIZE = STATE.itemsize


@numba.njit
def step(headers, offsets, payloads, middle, flow):
    """Update `middle` and `flow` of each symbol from one batch; return the number of doubts."""
    doubts = 0
    for i in range(len(headers)):
        kind = headers[i].kind
        payload = payloads[np.int64(offsets[i]) :]
        if kind == QUOTE_KIND:
            quote = payload[:QUOTE_SIZE].view(QUOTE)[0]
            if quote.symbol_id < SYMBOLS:
                sure = not headers[i].flags & IN_DOUBT
                quoted = 0.5 * (quote.bid_price + quote.ask_price)
                middle[quote.symbol_id] = quoted if sure else 0.0
        elif kind == TRADES_KIND:
            head = payload[:HEAD_SIZE].view(HEAD)[0]
            rows = payload[HEAD_SIZE : HEAD_SIZE + head.row_count * ROW_SIZE].view(ROW)
            traded = 0.0
            for row in rows:
                traded += row.price * (row.quantity if row.side == BUY else -row.quantity)
            if head.symbol_id < SYMBOLS:
                flow[head.symbol_id] += traded
        elif kind == STALE_KIND:
            state = payload[:STATE_SIZE].view(STATE)[0]
            doubts += 1
            if state.symbol_id < SYMBOLS:
                middle[state.symbol_id] = flow[state.symbol_id] = 0
        elif kind in DOUBTS:
            doubts += 1
            middle[:] = 0
            flow[:] = 0
    return doubts


def main(address: str) -> None:
    """Print each symbol's middle and flow when the ring has ended."""
    middle, flow = np.zeros(SYMBOLS), np.zeros(SYMBOLS)
    records = doubts = 0
    with udpfast.Reader(address, start="oldest") as reader:
        names = reader.names
        while reader.wait():
            batch = reader.poll(timeout=0)
            if batch.lapped:
                middle[:] = flow[:] = 0
            doubts += (batch.lapped > 0) + step(
                batch.headers, batch.offsets, batch.payloads, middle, flow
            )
            records, names = records + len(batch), batch.names
            print(len(batch), "records", flush=True)
    for symbol_id in np.flatnonzero(flow[1:]) + 1:
        print(names[symbol_id], middle[symbol_id], flow[symbol_id])
    print(records, "records", doubts, "doubts")


if __name__ == "__main__":
    main(sys.argv[1])
