"""Batches as tables: any library that speaks the Arrow PyCapsule interface takes them.

python docs/examples/arrow_tables.py ring:NAME
"""

import sys

import pyarrow

import udpfast


def main(address: str) -> None:
    """Print the mean spread of each symbol, per batch."""
    with udpfast.Reader(address, start="oldest") as reader:
        while reader.wait():
            quotes = pyarrow.table(reader.poll(timeout=0).table(udpfast.Kind.TOP_OF_BOOK))
            # A batch is too small for threads to help, and Arrow's threads may abort a process
            # that ends while they do.
            means = quotes.group_by("symbol", use_threads=False).aggregate(
                [("bid_price", "mean"), ("ask_price", "mean")]
            )
            for row in means.to_pylist():
                spread = row["ask_price_mean"] - row["bid_price_mean"]
                print(row["symbol"], f"{spread:.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
