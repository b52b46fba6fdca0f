"""A strategy slower than the feed: of each object the newest record only, books always up to date.

python docs/examples/latest.py ring:NAME
"""

import sys

import udpfast


def main(address: str) -> None:
    """Print what changed since the last look, and how much was left out."""
    with udpfast.Reader(address, start="oldest") as reader:
        latest = udpfast.Latest(reader)
        while reader.wait():
            for record in latest.poll(timeout=0):
                print(record.kind.name, record.symbol, record.index, flush=True)
        print(latest.superseded, "superseded")


if __name__ == "__main__":
    main(sys.argv[1])
