"""Measure the lines between two hosts: round trips, one way, loss, order, duplicates and races.

`Receiver` listens on one host, `Sender` measures from the other, and both give a `Result` with
numpy arrays, an element per probe. `udpfast wire` is the same from the command line; docs/wire.md
explains both. (`udpfast.wire` is another thing: how venues pack messages into datagrams.)
"""

from udpfast.net.line import LineAddress
from udpfast.probe.offset import Offset
from udpfast.probe.receiver import Receiver
from udpfast.probe.result import LineResult, Race, Result
from udpfast.probe.sender import Sender

__all__ = ["LineAddress", "LineResult", "Offset", "Race", "Receiver", "Result", "Sender"]
