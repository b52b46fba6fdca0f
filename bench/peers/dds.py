"""Cyclone DDS: a reliable topic of byte sequences, polled."""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any

from .face import Peer, Place, Take

__all__ = ["PEER"]

TAKE = 64


class End:
    """What both ends need: a participant of a domain of their own, and the topic."""

    def __init__(self, place: Place) -> None:
        """Join the domain."""
        from cyclonedds.core import Policy, Qos
        from cyclonedds.domain import DomainParticipant
        from cyclonedds.idl import IdlStruct
        from cyclonedds.idl.types import sequence, uint8
        from cyclonedds.topic import Topic
        from cyclonedds.util import duration

        # Annotations that are objects, not strings: the library reads them. To a type checker its
        # `sequence` is a plain class.
        octets: Any = sequence

        def fields(namespace: dict[str, Any]) -> None:
            namespace["__annotations__"] = {"content": octets[uint8]}

        self.message: Any = dataclass(
            types.new_class("Message", (IdlStruct,), {"typename": "Message"}, fields)
        )
        self.qos = Qos(Policy.Reliability.Reliable(duration(seconds=10)), Policy.History.KeepAll)
        self.participant = DomainParticipant(place.port % 100)
        self.topic = Topic(self.participant, place.directory.name, self.message, qos=self.qos)

    def close(self) -> None:
        """Let everything go: the entities end with their last reference."""
        del self.topic, self.participant


class Publisher(End):
    """A writer."""

    def __init__(self, place: Place, _: int) -> None:
        """Create it."""
        from cyclonedds.pub import DataWriter

        super().__init__(place)
        self.writer = DataWriter(self.participant, self.topic, qos=self.qos)

    def send(self, message: bytes) -> None:
        """Write one message."""
        self.writer.write(self.message(content=message))

    def close(self) -> None:
        """Let everything go."""
        del self.writer
        super().close()


class Subscriber(End):
    """A reader."""

    def __init__(self, place: Place, _: int, take: Take) -> None:
        """Create it."""
        from cyclonedds.sub import DataReader

        super().__init__(place)
        self.take = take
        self.reader = DataReader(self.participant, self.topic, qos=self.qos)

    def step(self) -> None:
        """Take what is there, 64 messages at most."""
        for message in self.reader.take(N=TAKE):
            self.take(bytes(message.content))

    def close(self) -> None:
        """Let everything go."""
        del self.reader
        super().close()


PEER = Peer(
    variant="Cyclone DDS",
    module="cyclonedds",
    package="cyclonedds",
    less="no gaps told, no second line, no decoding beyond a byte sequence",
    messages=5_000,
    publisher=Publisher,
    subscriber=Subscriber,
)
