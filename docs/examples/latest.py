"""A strategy slower than its feed: it gets only the newest record of each object.

python docs/examples/latest.py ring:NAME
"""

import sys

import udpfast


def main(address: str) -> None:
    """Print the newest records of each poll, and in the end how many were superseded."""
    with udpfast.Reader(address, start="oldest") as reader:
        latest = udpfast.Latest(reader)
        while reader.wait():
            for record in latest.poll(timeout=0):
                print(record.kind.name, record.symbol, record.index, flush=True)
        print(latest.superseded, "superseded")


if __name__ == "__main__":
    main(sys.argv[1])
