"""Follow an instance: python -m flow_strategy ring:NAME [THRESHOLD]."""

import sys

import udpfast

from .flow import Flow


def main(address: str, threshold: str = "1000") -> None:
    """Print every signal, and in the end the counts."""
    with udpfast.Reader(address, idle="spin", start="oldest") as reader:
        flow = Flow(float(threshold))
        flow.run(reader, print)
        print(flow.records, "records", flow.doubts, "doubts", flow.signals, "signals")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(*sys.argv[1:])
