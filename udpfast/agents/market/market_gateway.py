"""A gateway that publishes a market: events in, encoded messages on both channels out.

It keeps each instrument's book, so that a snapshot is encoded at its turn from the state as it is
then, and carries the seqno of the last update in it. Of a book that is denser than a message can
carry the levels nearest the touch are published. All books that a subscriber can build from what
was published are `books`; what was left out or refused is counted and said, and never ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from udpfast.agents.market.market_encoding import Encoded, MarketEncoder
from udpfast.agents.market.market_event import BookChange, Instrument, MarketEvent, Quote
from udpfast.errors import FormatError
from udpfast.feed.snapshot_cycle import SnapshotState
from udpfast.feed.transmitter import Transmitter
from udpfast.payload.roq.fitted_book import BookMessage, FittedBook, LeftOut, levels_that_fit

__all__ = ["MarketGateway"]

#: What the objects of each sort of message are called on the wire: any numbers but 0, one sort
#: each, so that `last_seqno` chains the messages of one sort about one instrument.
REFERENCE_DATA_TYPE = 9
MARKET_STATUS_TYPE = 10
QUOTE_TYPE = 17
TRADE_TYPE = 33
BOOK_TYPE = 41

#: About the gateway itself, not about an object: never gated, never chained (docs/protocol.md).
NO_OBJECT_TYPE = 0

FIRST_OBJECT_ID = 101
OBJECT_ID_MAX = 65_535

#: ReferenceData, MarketStatus, TopOfBook, MarketByPrice, TradeSummary: what is published here.
SUPPORTED = 0x1 | 0x2 | 0x4 | 0x8 | 0x20

#: The latency to the exchange is published this often, in the market's time.
LATENCY_INTERVAL_NS = 1_000_000_000


class MarketGateway:
    """Publish a market's events through a transmitter.

    Parameters
    ----------
    transmitter : Transmitter
    instruments : sequence of Instrument
        Of the source whose events will come.
    encoder : MarketEncoder, optional
    levels_max : int, optional
        Published of each book at most; by default as many as a message carries.

    Attributes
    ----------
    messages : int
        Published on the incremental channel.
    refused : int
        Events that are no message and were not published: a price that is no number, a field that
        is out of range. A book that missed one is published whole with its next event.
    object_ids : list of int
        Of the instruments, in their order; others after a restart.

    Raises
    ------
    ValueError
        There are more instruments than object ids.
    """

    def __init__(
        self,
        transmitter: Transmitter,
        instruments: Sequence[Instrument],
        encoder: MarketEncoder | None = None,
        levels_max: int | None = None,
    ) -> None:
        room = OBJECT_ID_MAX + 1 - FIRST_OBJECT_ID
        if len(instruments) > room:
            raise ValueError(f"expected at most {room} instruments, found {len(instruments)}")
        self.transmitter = transmitter
        self.instruments = list(instruments)
        self.encoder = encoder if encoder is not None else MarketEncoder(instruments)
        self.messages = 0
        self.refused = 0
        self.object_ids = [FIRST_OBJECT_ID + index for index in range(len(self.instruments))]
        self._books = [
            FittedBook(levels_max or levels_that_fit(instrument.exchange, instrument.symbol))
            for instrument in self.instruments
        ]
        self._updates: list[BookChange | None] = [None] * len(self.instruments)
        self._behind = [False] * len(self.instruments)  # the book has changed, and nobody was told
        self._said: set[tuple[int, str]] = set()
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
        for index, object_id in enumerate(self.object_ids):
            for object_type, message in (
                (REFERENCE_DATA_TYPE, self.encoder.reference_data(index, created_ns)),
                (MARKET_STATUS_TYPE, self.encoder.market_status(index, created_ns)),
            ):
                self._send(message, object_type, object_id, now_ns, snapshot=True)
                self._repeat(message, object_type, object_id)
            update = self._updates[index]
            if update is not None:
                self._offer_book(index)
                self._behind[index] = True
                self._attempt(update, self._send_book, update, None, now_ns)

    def publish(self, event: MarketEvent, now_ns: int) -> None:
        """Publish one event on the incremental channel; one that is no message is refused."""
        self._created_ns = now_ns + self.transmitter.utc_offset_ns
        self._attempt(event, self._publish, event, now_ns)

    def restart(self, now_ns: int, session_id: int | None = None) -> int:
        """Do what a restarted gateway does; return the new session's id.

        Numbers begin again, object ids are given to other instruments than before (nothing but
        the payload says what an id means), and everything is announced again.
        """
        self.transmitter.flush(now_ns)
        session_id = self.transmitter.restart(session_id)
        self.object_ids = self.object_ids[1:] + self.object_ids[:1]
        self.announce(now_ns)
        return session_id

    def books(self) -> dict[str, dict[str, list[list[float]]]]:
        """Return every book as published: by instrument name, [price, quantity], best first."""
        found = {}
        for instrument, book, update in zip(
            self.instruments, self._books, self._updates, strict=True
        ):
            if update is not None:
                whole = book.whole()
                found[instrument.name] = {"bids": whole.bids.tolist(), "asks": whole.asks.tolist()}
        return found

    @property
    def left_out(self) -> dict[str, LeftOut]:
        """What messages could not carry, of each book that was ever too dense; by its name."""
        return {
            instrument.name: book.left_out
            for instrument, book in zip(self.instruments, self._books, strict=True)
            if book.left_out.levels_most
        }

    def _attempt(self, event: MarketEvent, act: Callable[..., None], *arguments: object) -> None:
        try:
            act(*arguments)
        except (ValueError, OverflowError, FormatError) as error:
            self.refused += 1
            kind = type(event).__name__
            self._say_once(event.instrument, kind, f"a {kind} was not sent: {error}")

    def _publish(self, event: MarketEvent, now_ns: int) -> None:
        object_id = self.object_ids[event.instrument]
        if isinstance(event, BookChange):
            self._publish_book(event, now_ns)
        elif isinstance(event, Quote):
            message = self.encoder.quote(event, self._created_ns)
            self._send(message, QUOTE_TYPE, object_id, now_ns)
        else:
            message = self.encoder.trade(event, self._created_ns)
            self._send(message, TRADE_TYPE, object_id, now_ns)
        if event.recv_ns >= self._next_latency_ns and event.exchange_ns > 0:
            self._next_latency_ns = event.recv_ns + LATENCY_INTERVAL_NS
            latency = self.encoder.external_latency(event, self._created_ns)
            self._send(latency, NO_OBJECT_TYPE, 0, now_ns)

    def _publish_book(self, event: BookChange, now_ns: int) -> None:
        index = event.instrument
        book = self._books[index]
        message = book.apply(event.bids, event.asks, snapshot=event.snapshot)
        if book.beyond:
            self._say_once(index, "dense", book.describe())
        self._send_book(event, message, now_ns)
        first = self._updates[index] is None
        self._updates[index] = event
        if first:
            self._offer_book(index)

    def _send_book(self, event: BookChange, message: BookMessage | None, now_ns: int) -> None:
        index = event.instrument
        if self._behind[index]:
            message = self._books[index].whole()
        if message is None:
            return
        self._behind[index] = True  # until it is out
        encoded = self._encode(event, message)
        self._send(encoded, BOOK_TYPE, self.object_ids[index], now_ns, snapshot=message.snapshot)
        self._behind[index] = False

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
        object_id = self.object_ids[index]

        def state() -> SnapshotState:
            # Book and seqno are of the same moment: both change in `publish`, and only there.
            message = self._encode_book(index)
            return SnapshotState(
                message.payload,
                self.transmitter.publication.last_seqno(BOOK_TYPE, object_id),
                message.stamp_offset,
            )

        self.transmitter.put_snapshot_source(BOOK_TYPE, object_id, state)

    def _encode(self, event: BookChange, message: BookMessage) -> Encoded:
        return self.encoder.book(event._replace(**message._asdict()), self._created_ns)

    def _encode_book(self, index: int) -> Encoded:
        update = self._updates[index]
        assert update is not None
        return self._encode(update, self._books[index].whole())

    def _say_once(self, index: int, what: str, sentence: str) -> None:
        if (index, what) not in self._said:
            self._said.add((index, what))
            self.transmitter.events.append(f"{self.instruments[index].name}: {sentence}")
