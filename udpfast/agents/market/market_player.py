"""When each event of a source goes out: at the recording's pace, at a rate, or at once."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from udpfast.agents.market.market_event import MarketEvent, MarketSource
from udpfast.agents.market.market_gateway import MarketGateway

__all__ = ["MarketPlayer"]

#: Most events of one turn. They share one send stamp, so a turn should stay below 1 ms.
TURN_EVENTS = 16


class MarketPlayer:
    """Play a source through a gateway; time is an argument.

    Parameters
    ----------
    source : MarketSource
    gateway : MarketGateway
    speed : float
        How much faster than it was recorded; 0: as fast as it goes.
    rate_per_s : float
        Events per second at equal distances, whatever the recording's pace; 0: by `speed`.
    restart_after_ns : int, optional
        The gateway restarts once, when so much of the market's time has passed; on a host that is
        too slow for the market, after twice the time that this should have taken.
    events_max : int
        End after so many events; 0: with the source.
    silence_max_ns : int
        A longer silence of the market counts as one of so long; 0: it is as long as it was. A
        recording may hold hours of different days.

    Attributes
    ----------
    finished : bool
        All events are published. The owner may go on with the gateway's transmitter, for the
        heartbeats and snapshots.
    events : int
        Published so far.
    market_ns : int
        How much of the market's time has passed, without what was cut out of its silences.
    skipped_ns : int
        That.
    """

    def __init__(
        self,
        source: MarketSource,
        gateway: MarketGateway,
        *,
        speed: float = 1.0,
        rate_per_s: float = 0.0,
        restart_after_ns: int | None = None,
        events_max: int = 0,
        silence_max_ns: int = 0,
    ) -> None:
        self.gateway = gateway
        self.finished = False
        self.events = 0
        self.market_ns = 0
        self.skipped_ns = 0
        self._source: Iterator[MarketEvent] = iter(source)
        self._speed = speed
        self._rate_per_s = rate_per_s
        self._restart_after_ns = restart_after_ns
        self._events_max = events_max
        self._silence_max_ns = silence_max_ns
        self._next: MarketEvent | None = None
        self._start_ns = 0
        self._due_ns = 0

    def do_work(self, now_ns: int) -> int:
        """Publish what is due, at most 16 events, and do the transmitter's work.

        Returns
        -------
        int
            How many events and datagrams that were; 0: nothing was due.
        """
        if self._next is None and not self.finished:
            self._begin(now_ns)
        work = 0
        while work < TURN_EVENTS and not self.finished and self._due_ns <= now_ns:
            self._publish_next(now_ns)
            work += 1
        return work + self.gateway.transmitter.do_work(now_ns)

    def wait_ns(self, now_ns: int) -> int:
        """Return how long it is until the next event is due; 0 when it is or none is left."""
        return 0 if self.finished else max(0, self._due_ns - now_ns)

    def _begin(self, now_ns: int) -> None:
        self._next = next(self._source, None)
        if self._next is None:
            self.finished = True
            return
        self._start_ns = self._due_ns = now_ns
        self.gateway.announce(now_ns)

    def _publish_next(self, now_ns: int) -> None:
        event = self._next
        assert event is not None
        if self._is_restart_due(now_ns):
            self._restart_after_ns = None
            self.gateway.restart(now_ns)
        self.gateway.publish(event, now_ns)
        self.events += 1
        following = next(self._source, None)
        if following is None or self.events == self._events_max:
            self.finished = True
            return
        self._next = following
        silence_ns = following.recv_ns - event.recv_ns
        if self._silence_max_ns and silence_ns > self._silence_max_ns:
            self.skipped_ns += silence_ns - self._silence_max_ns
            silence_ns = self._silence_max_ns
        self.market_ns += silence_ns
        if self._rate_per_s:
            self._due_ns = self._start_ns + int(self.events * 1e9 / self._rate_per_s)
        elif self._speed:
            self._due_ns = self._start_ns + int(self.market_ns / self._speed)

    def _is_restart_due(self, now_ns: int) -> bool:
        after_ns = self._restart_after_ns
        if after_ns is None:
            return False
        late_ns = 2 * after_ns / self._speed if self._speed and not self._rate_per_s else inf
        return self.market_ns >= after_ns or now_ns - self._start_ns > late_ns
