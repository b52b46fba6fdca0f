"""iceoryx2: shared memory without copies, from Python."""

from __future__ import annotations

import ctypes
from typing import Any

from .face import Peer, Place, Take

__all__ = ["PEER"]

QUEUE = 4096


class End:
    """What both ends need: a node and the service."""

    def __init__(self, place: Place, size: int) -> None:
        """Open or create the service; its name is that of the directory both ends share."""
        import iceoryx2

        self.iceoryx2 = iceoryx2
        iceoryx2.set_log_level(iceoryx2.LogLevel.Error)
        self.payload: Any = type(
            "Payload", (ctypes.Structure,), {"_fields_": [("content", ctypes.c_uint8 * size)]}
        )
        name = iceoryx2.ServiceName.new(f"{place.directory.name}/{size}")
        self.node = iceoryx2.NodeBuilder.new().create(iceoryx2.ServiceType.Ipc)
        self.service = (
            self.node.service_builder(name)
            .publish_subscribe(self.payload)
            .subscriber_max_buffer_size(QUEUE)
            .enable_safe_overflow(False)
            .open_or_create()
        )

    def close(self) -> None:
        """Let the handles go: the service ends with its last one."""
        del self.service, self.node


class Publisher(End):
    """Loan, fill, send; waits for a subscriber whose queue is full."""

    def __init__(self, place: Place, size: int) -> None:
        """Create the publisher."""
        super().__init__(place, size)
        builder = self.service.publisher_builder()
        strategy = getattr(self.iceoryx2, "UnableToDeliverStrategy", None)
        if strategy is not None:
            builder = builder.unable_to_deliver_strategy(strategy.Block)
        self.publisher = builder.create()

    def send(self, message: bytes) -> None:
        """Copy one message into a loaned sample."""
        sample = self.publisher.loan_uninit()
        sample.write_payload(self.payload.from_buffer_copy(message)).send()

    def close(self) -> None:
        """Let everything go."""
        del self.publisher
        super().close()


class Subscriber(End):
    """Poll for samples."""

    def __init__(self, place: Place, size: int, take: Take) -> None:
        """Create the subscriber."""
        super().__init__(place, size)
        self.take = take
        self.subscriber = self.service.subscriber_builder().buffer_size(QUEUE).create()

    def step(self) -> None:
        """Take what is there."""
        while (sample := self.subscriber.receive()) is not None:
            message = bytes(sample.payload().contents)
            sample.delete()
            self.take(message)

    def close(self) -> None:
        """Let everything go."""
        del self.subscriber
        super().close()


PEER = Peer(
    variant="iceoryx2",
    module="iceoryx2",
    package="iceoryx2",
    less="no network, no gaps, no decoding; one fixed size per service",
    messages=15_000,
    publisher=Publisher,
    subscriber=Subscriber,
)
