"""Publish an order book as a gateway does, with fragments, heartbeats and snapshots.

python docs/examples/publish.py docs/examples/publish.toml
"""

import sys
import time

import udpfast
from udpfast.payload.roq.encode import encode_book

BOOK, OBJECT = 41, 1  # object_type and object_id: any numbers, but always the same for one object


def main(path: str, updates: int = 100) -> None:
    """Send a snapshot, then updates that move the best bid."""
    bids = [(100.0 - i, 1.0) for i in range(10)]
    asks = [(101.0 + i, 1.0) for i in range(10)]
    with udpfast.Publisher(path) as publisher:
        snapshot = encode_book("example", "BTC", bids=bids, asks=asks, update_type=1)
        publisher.send(snapshot, object_type=BOOK, object_id=OBJECT, snapshot=True)
        for quantity in range(1, updates + 1):
            update = encode_book("example", "BTC", bids=[(100.0, float(quantity))])
            publisher.send(update, object_type=BOOK, object_id=OBJECT)
            time.sleep(0.001)


if __name__ == "__main__":
    main(sys.argv[1])
