"""pyzmq: PUB and SUB over TCP on the loopback interface; else as in `pyzmq_ipc`."""

from __future__ import annotations

from dataclasses import replace

from . import pyzmq_ipc
from .face import Place

__all__ = ["PEER"]


class Publisher(pyzmq_ipc.Publisher):
    """A PUB socket."""

    def address(self, place: Place) -> str:
        """Return where it is bound."""
        return f"tcp://127.0.0.1:{place.port}"


class Subscriber(pyzmq_ipc.Subscriber):
    """A SUB socket."""

    def address(self, place: Place) -> str:
        """Return where it connects."""
        return f"tcp://127.0.0.1:{place.port}"


PEER = replace(pyzmq_ipc.PEER, variant="pyzmq tcp", publisher=Publisher, subscriber=Subscriber)
