"""Follow a running instance in numpy batches: no Python object per message.

python docs/examples/poll_numpy.py ring:NAME
"""

import sys

import udpfast


def main(address: str) -> None:
    """Print, per batch, how many records came, how late, and the mean spread of the quotes."""
    with udpfast.Reader(address, start="oldest") as reader:
        while True:
            try:
                batch = reader.poll(4096)  # waits for one record; at most 4,096
            except udpfast.RingClosedError:
                break
            headers = batch.headers
            latency_us = (headers["published_ns"] - headers["received_ns"]).max() / 1e3
            quotes = batch.select(udpfast.Kind.TOP_OF_BOOK)
            spread = (quotes["ask_price"] - quotes["bid_price"]).mean() if len(quotes) else 0
            print(f"{len(batch)} records, {batch.lapped} missed, {latency_us:.1f} us, {spread:.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
