"""A book that a program publishes: `Publisher.open_book` makes one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from udpfast.feed.snapshot_cycle import SnapshotState
from udpfast.payload.roq.encode import SourceInfo, encode_book
from udpfast.payload.roq.fitted_book import BookMessage, FittedBook, LeftOut, levels_that_fit

if TYPE_CHECKING:
    from udpfast.client.publisher import Publisher

__all__ = ["PublishedBook"]

SNAPSHOT, INCREMENTAL = 1, 2  # UpdateType

#: Offset at which `payload.roq.encode` always puts send_time_utc.
STAMP_OFFSET = 56


class PublishedBook:
    """The book of one instrument: give it every change, and it publishes them as messages.

    An update is sent at once; the book's state is sent in every snapshot round. If the book has
    more levels than fit a message, only those nearest the touch are published: the others are
    counted (`left_out`) and reported once (`Publisher(..., on_event=)`). Made by
    `Publisher.open_book`. Its methods may be called from any thread.
    """

    def __init__(
        self,
        publisher: Publisher,
        exchange: str,
        symbol: str,
        object_type: int,
        object_id: int,
        *,
        stream_id: int,
        price_precision: int,
        quantity_precision: int,
    ) -> None:
        self._publisher = publisher
        self._transmitter = publisher._transmitter  # type: ignore[attr-defined]
        self._lock = publisher._lock  # type: ignore[attr-defined]
        self._names = (exchange, symbol)
        self._object = (object_type, object_id)
        self._common: dict[str, Any] = {
            "stream_id": stream_id,
            "price_precision": price_precision,
            "quantity_precision": quantity_precision,
        }
        self._times: dict[str, Any] = {"exchange_time_utc": 0, "exchange_sequence": 0}
        self._book = FittedBook(levels_that_fit(exchange, symbol))
        self._said = self._closed = False
        self._session = -1  # ordinal of the session in which the whole book was sent
        # Encode once: a book that cannot be published is refused here, not at its first update.
        state = self._encode(self._book.whole(), **self._times)
        self._transmitter.publication.check(state, *self._object, stamp_offset=STAMP_OFFSET)

    def update(
        self,
        bids: npt.ArrayLike = (),
        asks: npt.ArrayLike = (),
        *,
        snapshot: bool = False,
        exchange_time_utc: int = 0,
        exchange_sequence: int = 0,
    ) -> int | None:
        """Publish changes to the book, or (`snapshot`) the whole book.

        Parameters
        ----------
        bids, asks : array-like
            Shape (n, 2): price and quantity of each level; quantity 0 removes the level.
        snapshot : bool
            True: `bids` and `asks` are the whole book.
        exchange_time_utc, exchange_sequence : int
            The exchange's time (UNIX ns) and sequence number of the change.

        Returns
        -------
        int or None
            The message's seqno; None: every change lies beyond the levels that are published.

        Raises
        ------
        ValueError
            A price or quantity is not finite, a number is out of range, or the book was closed.
        OSError
            As for `Publisher.send`.
        """
        times = {"exchange_time_utc": exchange_time_utc, "exchange_sequence": exchange_sequence}
        with self._lock:
            if self._closed:
                raise ValueError("this book is closed")
            message = self._book.apply(bids, asks, snapshot=snapshot)
            self._say_dense()
            session = len(self._transmitter.sessions)
            begins = session != self._session
            if begins:
                message = self._book.whole()
            if message is None:
                return None
            self._session = -1  # if sending fails, the next update sends the whole book again
            payload = self._encode(message, **times)
            seqno: int = self._publisher._send_locked(  # type: ignore[attr-defined]
                payload, *self._object, snapshot=message.snapshot, stamp_offset=STAMP_OFFSET
            )
            self._session, self._times = session, times
            if begins:
                self._transmitter.put_snapshot_source(*self._object, self._state)
            return seqno

    def close(self) -> None:
        """Stop publishing the book. Idempotent."""
        if not self._closed:
            self._closed = True
            self._publisher.remove(*self._object)

    @property
    def left_out(self) -> LeftOut:
        """The levels that did not fit the messages."""
        with self._lock:
            return self._book.left_out

    def _state(self) -> SnapshotState:
        # Called with the lock held, so that book and seqno belong together.
        return SnapshotState(
            self._encode(self._book.whole(), **self._times),
            self._transmitter.publication.last_seqno(*self._object),
            STAMP_OFFSET,
        )

    def _encode(self, message: BookMessage, **times: Any) -> bytearray:
        return encode_book(
            self._names[0],
            self._names[1],
            bids=message.bids,
            asks=message.asks,
            update_type=SNAPSHOT if message.snapshot else INCREMENTAL,
            source=SourceInfo(),
            **self._common,
            **times,
        )

    def _say_dense(self) -> None:
        if self._book.beyond and not self._said:
            self._said = True
            self._transmitter.events.append(f"{':'.join(self._names)}: {self._book.describe()}")
