"""Markets of a seed and a feed that follows them: sound books must be those of the venue."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from lab.conformance.books import Followed, Line, follow
from tests.payload.test_venues import AT_NS
from udpfast.config import FeedConfig
from udpfast.core.layout import Kind
from udpfast.net.pcap import CapturedDatagram

#: A datagram, and the line that brings it.
Sent = tuple[Line, bytes]
Book = TypeVar("Book")


def captured(sent: Iterable[Sent], apart_ns: int) -> list[tuple[Line, CapturedDatagram]]:
    """Return datagrams as a capture has them, each so long after the one before."""
    return [
        (line, CapturedDatagram(AT_NS + i * apart_ns, ("", 0), ("", 0), data))
        for i, (line, data) in enumerate(sent)
    ]


def compare_sound(
    market: Iterable[tuple[Sent | None, int, Book]],
    config: FeedConfig,
    name: tuple[str, str],
    queue: Callable[[Followed], Any],
    listed: Callable[[Book], Any],
) -> tuple[int, int]:
    """Compare each sound book with what it was at the venue behind the same number.

    Parameters
    ----------
    market : iterable
        A datagram (None: it is lost), the last number of the changes, and the book then.
    config : FeedConfig
        The feed's settings.
    name : (str, str)
        Exchange and symbol of the book.
    queue, listed : callable
        The book as the feed knows it, and one of the market's, in one form.

    Returns
    -------
    (int, int)
        Books that were compared, and how often one was healed.
    """
    truth: dict[int, Book] = {}
    arrived: list[Sent] = []
    for sent, number, book in market:
        truth[number] = book
        if sent is not None:
            arrived.append(sent)
    compared = healed = last = 0
    for known, record in follow(config, captured(arrived, 1_000_000)):
        # What is known is what was said before this record.
        if (
            last
            and name in known.orders
            and not known.books[name].stale
            and (record is None or record.number != last)
        ):
            assert queue(known) == listed(truth[last]), last
            compared += 1
        last = 0
        if record is not None:
            healed += record.kind == Kind.RECOVERED
            last = record.number if record.kind in (Kind.BOOK, Kind.ORDERS) else 0
    return compared, healed
