"""A gateway that publishes a market: events in, encoded messages on both channels out.

It keeps each instrument's book, so that a snapshot is encoded at its turn from the state as it is
then, and carries the seqno of the last update in it. All books that a subscriber can build from
what was published are `books`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from udpfast.agents.market_encoding import Encoded, MarketEncoder
from udpfast.agents.market_event import BookChange, Instrument, Levels, MarketEvent, Quote
from udpfast.feed.snapshot_cycle import SnapshotState
from udpfast.feed.transmitter import Transmitter

__all__ = ["MarketGateway"]

#: What the objects of each sort of message are called on the wire: any numbers but 0, one sort
#: each, so that `last_seqno` chains the messages of one sort about one instrument.
REFERENCE_DATA_TYPE = 9
MARKET_STATUS_TYPE = 10
QUOTE_TYPE = 17
TRADE_TYPE = 33
BOOK_TYPE = 41

#: About the gateway itself, not about an object: never gated, never chained (PROTOCOL 4).
NO_OBJECT_TYPE = 0

FIRST_OBJECT_ID = 101

#: ReferenceData, MarketStatus, TopOfBook, MarketByPrice, TradeSummary: what is published here.
SUPPORTED = 0x1 | 0x2 | 0x4 | 0x8 | 0x20

#: The latency to the exchange is published this often, in the market's time.
LATENCY_INTERVAL_NS = 1_000_000_000

Side = dict[float, float]


class MarketGateway:
    """Publish a market's events through a transmitter.

    Parameters
    ----------
    transmitter : Transmitter
    instruments : sequence of Instrument
        Of the source whose events will come.
    encoder : MarketEncoder, optional
    """

    def __init__(
        self,
        transmitter: Transmitter,
        instruments: Sequence[Instrument],
        encoder: MarketEncoder | None = None,
    ) -> None:
        self.transmitter = transmitter
        self.instruments = list(instruments)
        self.encoder = encoder if encoder is not None else MarketEncoder(instruments)
        self.messages = 0
        self._object_ids = [FIRST_OBJECT_ID + index for index in range(len(self.instruments))]
        self._books: list[tuple[Side, Side] | None] = [None] * len(self.instruments)
        self._updates: list[BookChange | None] = [None] * len(self.instruments)
        self._next_latency_ns = 0
        self._created_ns = 0  # UNIX ns of the event at hand

    def announce(self, now_ns: int) -> None:
        """Publish what a session begins with, and let it take part in the snapshot round.

        The gateway's status, each instrument's reference data and status, and the books that are
        known already.
        """
        created_ns = self._created_ns = now_ns + self.transmitter.utc_offset_ns
        status = self.encoder.gateway_status(SUPPORTED, created_ns)
        self._send(status, NO_OBJECT_TYPE, 0, now_ns)
        self._repeat(status, NO_OBJECT_TYPE, 0)
        for index, object_id in enumerate(self._object_ids):
            for object_type, message in (
                (REFERENCE_DATA_TYPE, self.encoder.reference_data(index, created_ns)),
                (MARKET_STATUS_TYPE, self.encoder.market_status(index, created_ns)),
            ):
                self._send(message, object_type, object_id, now_ns, snapshot=True)
                self._repeat(message, object_type, object_id)
            if self._books[index] is not None:
                self._send(self._encode_book(index), BOOK_TYPE, object_id, now_ns, snapshot=True)
                self._offer_book(index)

    def publish(self, event: MarketEvent, now_ns: int) -> None:
        """Publish one event on the incremental channel.

        Raises
        ------
        UdpfastError
            A book's snapshot does not fit into a message.
        """
        index = event.instrument
        object_id = self._object_ids[index]
        created_ns = self._created_ns = now_ns + self.transmitter.utc_offset_ns
        if isinstance(event, BookChange):
            first = self._books[index] is None
            self._apply(event)
            message = self.encoder.book(event, created_ns)
            self._send(message, BOOK_TYPE, object_id, now_ns, snapshot=event.snapshot)
            if first:
                self._offer_book(index)
        elif isinstance(event, Quote):
            self._send(self.encoder.quote(event, created_ns), QUOTE_TYPE, object_id, now_ns)
        else:
            self._send(self.encoder.trade(event, created_ns), TRADE_TYPE, object_id, now_ns)
        if event.recv_ns >= self._next_latency_ns and event.exchange_ns > 0:
            self._next_latency_ns = event.recv_ns + LATENCY_INTERVAL_NS
            self._send(self.encoder.external_latency(event, created_ns), NO_OBJECT_TYPE, 0, now_ns)

    def restart(self, now_ns: int, session_id: int | None = None) -> int:
        """Do what a restarted gateway does; return the new session's id.

        Numbers begin again, object ids are given to other instruments than before (nothing but
        the payload says what an id means), and everything is announced again.
        """
        self.transmitter.flush(now_ns)
        session_id = self.transmitter.restart(session_id)
        self._object_ids = self._object_ids[1:] + self._object_ids[:1]
        self.announce(now_ns)
        return session_id

    def books(self) -> dict[str, dict[str, list[list[float]]]]:
        """Return every book as published: by instrument name, [price, quantity], best first."""
        found = {}
        for instrument, book in zip(self.instruments, self._books, strict=True):
            if book is not None:
                bids, asks = ([[price, side[price]] for price in sorted(side)] for side in book)
                found[instrument.name] = {"bids": bids[::-1], "asks": asks}
        return found

    def _send(
        self,
        message: Encoded,
        object_type: int,
        object_id: int,
        now_ns: int,
        snapshot: bool = False,
    ) -> None:
        self.transmitter.send(
            message.payload,
            object_type,
            object_id,
            snapshot=snapshot,
            now_ns=now_ns,
            stamp_offset=message.stamp_offset,
        )
        self.messages += 1

    def _repeat(self, message: Encoded, object_type: int, object_id: int) -> None:
        self.transmitter.put_snapshot(
            message.payload, object_type, object_id, stamp_offset=message.stamp_offset
        )

    def _offer_book(self, index: int) -> None:
        object_id = self._object_ids[index]

        def state() -> SnapshotState:
            # Book and seqno are of the same moment: both change in `publish`, and only there.
            message = self._encode_book(index)
            return SnapshotState(
                message.payload,
                self.transmitter.publication.last_seqno(BOOK_TYPE, object_id),
                message.stamp_offset,
            )

        self.transmitter.put_snapshot_source(BOOK_TYPE, object_id, state)

    def _apply(self, event: BookChange) -> None:
        book = self._books[event.instrument]
        if book is None or event.snapshot:
            book = self._books[event.instrument] = ({}, {})
        for side, levels in zip(book, (event.bids, event.asks), strict=True):
            for price, quantity in levels.tolist():
                if quantity:
                    side[price] = quantity
                else:
                    side.pop(price, None)
        self._updates[event.instrument] = event

    def _encode_book(self, index: int) -> Encoded:
        book, update = self._books[index], self._updates[index]
        assert book is not None
        assert update is not None
        bids, asks = _levels(book[0])[::-1], _levels(book[1])
        return self.encoder.book(
            update._replace(snapshot=True, bids=bids, asks=asks), self._created_ns
        )


def _levels(side: Side) -> Levels:
    return np.array(sorted(side.items()), np.float64).reshape(-1, 2)
