"""A capture of IEX DEEP: two runs of a sender that keeps its session id."""

import struct
from pathlib import Path

from lab.framings import Sent, build
from tests.net.test_pcap import ethernet, ipv4, pcap, udp

__all__ = ["FLIGHT_NS", "write_iex_capture"]

BEGIN_NS = 1_493_149_020_000_000_000
#: From the sender's clock to the stamp of the capture.
FLIGHT_NS = 25_000
SESSION = 1_132_527_616


def message(kind: str, at_ns: int, symbol: bytes, content: bytes) -> bytes:
    """Return a message whose flags say that its event is complete."""
    return struct.pack("<cBq8s", kind.encode(), 1, at_ns, symbol.ljust(8)) + content


def write_iex_capture(path: Path) -> Path:
    """Write it: a bid of AA and one of BB, a trade of each; in the second run two of AA alone."""
    frames = []
    at_ns = BEGIN_NS
    for symbols in ((b"AA", b"BB"), (b"AA", b"AA")):
        number = 1
        for symbol in symbols:
            at_ns += 1_000_000_000
            level = message("8", at_ns, symbol, struct.pack("<Iq", 100, 500_000 + number))
            trade = message("T", at_ns, symbol, struct.pack("<Iqq", 10, 500_000, number))
            sent = Sent(number, (level, trade), (0x8004, 1), SESSION, at_ns)
            frames.append((at_ns + FLIGHT_NS, ethernet(ipv4(udp(build("iex_tp", sent))))))
            number += 2
    path.write_bytes(pcap(frames, nanoseconds=True))
    return path
