"""What benchmarks use of the lab, which lies beside them under a name like theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING or __name__.partition(".")[0] == "bench":
    from lab.bus_memory import MemoryLog
    from lab.frames import datagram
    from lab.framings import Sent, build
else:  # installed
    from udpfast_lab.bus_memory import MemoryLog
    from udpfast_lab.frames import datagram
    from udpfast_lab.framings import Sent, build

__all__ = ["MemoryLog", "Sent", "build", "datagram"]
