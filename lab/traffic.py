"""What a gateway sends, in time: updates, rounds of snapshots, heartbeats, on several lines."""

from collections.abc import Sequence

from udpfast.core.layout import Channel
from udpfast.net.bad_network import Arrival

from .origin import Origin

__all__ = ["Traffic"]


class Traffic:
    """The datagrams of one origin with their times; time only goes on.

    Parameters
    ----------
    origin : Origin
        Who speaks.
    start_ns, interval_ns : int
        Time of the first message, and from one incremental message to the next.
    lines : (int, int)
        Copies of the incremental and of the snapshot channel.
    """

    def __init__(
        self,
        origin: Origin,
        *,
        start_ns: int = 1_000_000_000,
        interval_ns: int = 20_000,
        lines: tuple[int, int] = (1, 1),
    ) -> None:
        self.origin = origin
        self.now_ns = start_ns
        self.interval_ns = interval_ns
        self.lines = lines
        self._round = 0

    def updates(self, count: int, *, snapshot_every: int = 0) -> list[Arrival]:
        """Return `count` updates of random objects, and after every n-th one snapshot."""
        sent: list[Arrival] = []
        origin = self.origin
        for number in range(count):
            key = origin.keys[origin.rng.randrange(len(origin.keys))]
            self._send(sent, Channel.INCREMENTAL, origin.update(key))
            if snapshot_every and number % snapshot_every == 0:
                self._snapshot(sent)
            self.now_ns += self.interval_ns
        return sent

    def cycle(self, *, updates_between: int = 1) -> list[Arrival]:
        """Return one snapshot of every object, with updates between them."""
        sent: list[Arrival] = []
        for _ in self.origin.keys:
            sent += self.updates(updates_between)
            self._snapshot(sent)
        return sent

    def heartbeats(self, count: int, interval_ns: int) -> list[Arrival]:
        """Return heartbeats, the first one after an interval."""
        sent: list[Arrival] = []
        for _ in range(count):
            self.now_ns += interval_ns
            self._send(sent, Channel.INCREMENTAL, [self.origin.heartbeat()])
        return sent

    def message(self, datagrams: Sequence[bytes], channel: int = 0) -> list[Arrival]:
        """Return these datagrams as sent now, on all lines of their channel."""
        sent: list[Arrival] = []
        self._send(sent, channel, datagrams)
        self.now_ns += self.interval_ns
        return sent

    def pause(self, time_ns: int) -> None:
        """Let time pass in silence."""
        self.now_ns += time_ns

    def _snapshot(self, sent: list[Arrival]) -> None:
        key = self.origin.keys[self._round % len(self.origin.keys)]
        self._round += 1
        self._send(sent, Channel.SNAPSHOT, self.origin.snapshot(key))

    def _send(self, sent: list[Arrival], channel: int, datagrams: Sequence[bytes]) -> None:
        for datagram in datagrams:
            for line in range(self.lines[channel]):
                sent.append(Arrival(self.now_ns, int(channel), line, datagram))
