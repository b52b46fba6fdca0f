"""What a venue cannot have said, and numberings that begin anew: the book is right, or in doubt."""

import struct
from collections.abc import Callable, Iterable

import pytest

from lab.conformance.books import Followed, follow, venue_config
from lab.framings import Sent
from tests.payload import test_b3 as b3
from tests.payload.test_venues import (
    AT_NS,
    NYSE_MAPPING,
    SMALL,
    add,
    bid,
    cme,
    coinbase_followed,
    definition,
    followed,
    followed_raw,
    memx,
    memx_followed,
    nyse_add,
    nyse_followed,
    plus,
    put,
    sent,
)
from udpfast.net.pcap import CapturedDatagram

LARGEST = 2**63 - 1


def in_doubt(known: Followed) -> bool:
    """Return whether no book of a feed is sound."""
    return all(book.stale for book in known.books.values())


def memx_sent(*datagrams: tuple[int, int, Iterable[bytes]]) -> Followed:
    """Return what a reader knows after datagrams of MEMX: session, first number, messages."""
    return followed_raw(
        (
            struct.pack(">BBQQH", 2, 18, session, first, len(rows)) + b"".join(rows)
            for session, first, rows in ((s, f, list(m)) for s, f, m in datagrams)
        ),
        "memx_memoir",
        "memx",
    )


def memx_named(number: int, name: bytes) -> bytes:
    # The number of an instrument stands behind the time.
    message = memx(1, "6s6sIBBq", name, b"", 100, 0, 0, 10_000)
    return message[:16] + struct.pack(">H", number) + message[18:]


def memx_add(order: int, price: int) -> bytes:
    return memx(10, "QcIq", order, b"B", 100, price)


def test_number_of_an_instrument_of_memx_is_another_one_in_the_next_session() -> None:
    begin = (1, 1, [memx_named(9, b"AAPL"), memx_named(8, b"MSFT"), memx_add(1, 20_000_000)])
    trade = memx(13, "QQIq", 2, 5, 20, 30_000_000)
    second = [memx(18, ""), memx_add(2, 30_000_000), trade]
    lost = [(2, 10, second), (2, 13, [memx_add(3, 30_000_000)]), (2, 14, [memx_add(4, 1)])]
    known = memx_sent(begin, *lost)
    assert known.trades == {("MEMX", "9"): [(30.0, 20.0)]}
    assert known.books["MEMX", "AAPL"].stale
    named = (2, 15, [memx_named(9, b"MSFT")])
    assert not memx_sent(begin, *lost, named).books["MEMX", "MSFT"].stale


def test_clear_of_an_instrument_whose_number_is_0_clears_that_alone() -> None:
    clear = memx(18, "")
    clear = clear[:16] + bytes(2) + clear[18:]
    known = memx_followed(memx_named(9, b"AAPL"), memx_add(1, 20_000_000), clear)
    assert known.levels["MEMX", "AAPL"][0] == {20.0: (100.0, 1, 0)}


def cme_order(number: int, kind: bytes, action: int) -> bytes:
    root = struct.pack("<QBxx", AT_NS, 0x80)
    entry = struct.pack("<QQqiiBc6x", 5, 5, 99 * 10**9, 5, 7, action, kind)
    return cme(number, 47, root, struct.pack("<HB", 40, 1) + entry)


def test_order_that_comes_back_on_the_other_side_is_a_doubt() -> None:
    assert in_doubt(coinbase_followed(put(1, 5, 1, 32, 3), put(2, 5, -1, 33, 3)))
    changed = b3.datagram(2, b3.order(13, "0", 11, 4, action=1))
    assert in_doubt(b3.followed(b3.BEGUN, changed))
    begin = (definition(1, 10), bid(2, 1, 1), cme_order(3, b"0", 0))
    assert ("CME", "ABC") not in followed_raw((*begin, cme_order(4, b"0", 1))).doubted
    assert ("CME", "ABC") in followed_raw((*begin, cme_order(4, b"1", 1))).doubted


@pytest.mark.parametrize("sizes", [(LARGEST,), (2**53, 1), (2**52, LARGEST), (2**53 - 1, 1, 1)])
def test_level_of_more_than_readers_can_be_told_is_a_doubt(sizes: tuple[int, ...]) -> None:
    orders = [b3.order(number, "0", 10, size) for number, size in enumerate(sizes, 1)]
    assert in_doubt(b3.followed(b3.datagram(1, b3.order(9, "1", 12, 1)), b3.datagram(2, *orders)))
    most = b3.followed(b3.datagram(1, b3.order(1, "0", 10, 2**53 - 1), b3.order(2, "0", 10, 1)))
    assert most.levels[b3.NAME][0] == {10.0: (2.0**53, 2, 0)}


def test_order_that_is_deleted_without_its_price_leaves_the_book() -> None:
    known = b3.followed(b3.BEGUN, b3.datagram(2, b3.delete(12, "0", None)))
    assert known.levels[b3.NAME][0] == {10.0: (3.0, 1, 0)}
    assert not known.books[b3.NAME].stale


def plus_followed(side: str) -> Followed:
    head_of = {"stream": (0x8005, 1), "session": 77, "sent_ns": AT_NS}
    rows = (
        plus("a", "8", 11, 100, 199_600, layout="QIq"),
        plus("a", side, 12, 100, 199_700, layout="QIq"),
    )
    return followed("iex_tp", "iex_deep_plus", [Sent(1, rows, **head_of)])[0]


def pitch_followed(side: str) -> Followed:
    rows = tuple(
        struct.pack("<BIQcI6sQB", 0x21, 0, n, of.encode(), 5, b"AAPL  ", 10_000, 1)
        for n, of in enumerate(("B", side))
    )
    return followed("cboe_pitch", "pitch", [Sent(1, rows, stream=(1,))])[0]


#: Two orders, the second one of a side.
SIDES: dict[str, Callable[[str], Followed]] = {
    "itch": lambda side: followed(
        "moldudp64", "itch", [sent(1, (add(1, "B", 5, 100), add(2, side, 5, 100)))]
    )[0],
    "pitch": pitch_followed,
    "iex_deep_plus": plus_followed,
    "nyse": lambda side: nyse_followed(
        (1, (NYSE_MAPPING, nyse_add(1, 1, b"B", 5), nyse_add(2, 2, side.encode(), 6)))
    ),
    "memx": lambda side: memx_followed(
        memx_add(1, 20_000_000), memx(10, "QcIq", 2, side.encode(), 5, 20_000_000)
    ),
    "coinbase": lambda side: coinbase_followed(
        put(1, 5, 1, 32, 3), put(2, 6, {"B": 1, "8": 1}.get(side, 0), 33, 3)
    ),
}


@pytest.mark.parametrize("venue", SIDES)
def test_order_of_no_side_is_a_doubt(venue: str) -> None:
    assert in_doubt(SIDES[venue]("?"))
    assert not in_doubt(SIDES[venue]("8" if venue == "iex_deep_plus" else "B"))


@pytest.mark.parametrize("action", [6, 255])
def test_action_of_cme_that_nobody_knows_is_refused(action: int) -> None:
    begin = (definition(1, 10), bid(2, 1, 1))
    assert not in_doubt(followed_raw((*begin, bid(3, 2, 1, 1))))
    assert in_doubt(followed_raw((*begin, bid(3, 2, 1, action))))
    assert ("CME", "ABC") in followed_raw((*begin, cme_order(3, b"0", action))).doubted


@pytest.mark.parametrize(("at", "value"), [(23, 3), (23, 4), (24, 0x32)])
def test_side_or_action_of_csm_that_nobody_knows_is_refused(at: int, value: int) -> None:
    def change(number: int) -> bytes:
        body = struct.pack(">IIIBBBBcBbiB", 1, 2, number, 17, 0, 1, 0, b"0", 1, -2, 100, 0)
        return struct.pack(">HBcI", 8 + len(body), 18, b"X", number) + body

    def datagram(number: int, message: bytes) -> bytes:
        return struct.pack(">BHQBI", 1, 16 + len(message), 1, 1, number) + message

    bad = bytearray(change(2))
    bad[at] = value
    begin = datagram(1, change(1))
    assert not in_doubt(followed_raw([begin, datagram(2, change(2))], "cboe_csm", "csm"))
    assert in_doubt(followed_raw([begin, datagram(2, bytes(bad))], "cboe_csm", "csm"))


def cme_snapshot(number: int, last: int, chain: int, *prices: int) -> bytes:
    root = struct.pack("<IIiIQQHBqqq", last, 1, 7, chain, AT_NS, AT_NS, 0, 17, 0, 0, 0)
    rows = [
        struct.pack("<qiibHBBc", price * 10**9, 5, 1, place, 0, 0, 0, b"0")
        for place, price in enumerate(prices, 1)
    ]
    return cme(number, 52, root, struct.pack("<HB", 22, len(rows)) + b"".join(rows))


def cme_healed(*events: tuple[int, bytes]) -> Followed:
    """Return what a reader knows after datagrams of the changes, 0, and of a loop of snapshots."""
    config = venue_config("cme_mdp3", "cme", 1, loops=2, wait_us=500, **SMALL)
    told = follow(
        config,
        (
            (line, CapturedDatagram(AT_NS + at * 1_000_000, ("", 0), ("", 0), data))
            for at, (line, data) in enumerate(
                [((1, 0), definition(1, 10))]
                + [((0, 0) if kind == 0 else (1, 1), data) for kind, data in events]
            )
        ),
    )
    *_, (known, _) = told
    return known


#: A book that a snapshot healed, with four changes in it.
HEALED = [
    *((0, bid(number, number, number)) for number in (1, 2, 4)),
    (1, cme_snapshot(1, 4, 4, 99, 98, 97, 96)),
]


def test_snapshot_heals_a_book_of_cme() -> None:
    known = cme_healed(*HEALED)
    assert not in_doubt(known)
    assert sorted(known.levels["CME", "ABC"][0]) == [96.0, 97.0, 98.0, 99.0]


def test_changes_behind_a_lost_reset_are_no_part_of_an_earlier_snapshot() -> None:
    """Datagram 5 empties the channel; its second change waits for the snapshot of the first."""
    behind = [(0, bid(7, 2, 2)), (0, bid(8, 3, 3)), (1, cme_snapshot(2, 7, 2, 99, 98))]
    known = cme_healed(*HEALED, *behind)
    assert not in_doubt(known)
    assert sorted(known.levels["CME", "ABC"][0]) == [97.0, 98.0, 99.0]


def test_first_number_behind_a_lost_reset_is_a_doubt() -> None:
    assert in_doubt(cme_healed(*HEALED, (0, bid(6, 1, 1)), (0, bid(7, 2, 2))))


def cme_queues(number: int, last: int, sides: bytes) -> bytes:
    """Return a snapshot of the orders of an instrument, one of each side."""
    root = struct.pack("<IIiIIQ", last, 1, 7, 1, 1, AT_NS)
    rows = [
        struct.pack("<QQqic", place, place, (98 + place) * 10**9, 5, bytes([side]))
        for place, side in enumerate(sides, 1)
    ]
    return cme(number, 53, root, struct.pack("<HB", 29, len(rows)) + b"".join(rows))


@pytest.mark.parametrize(("sides", "sound"), [(b"01", True), (b"0?", False), (b"?1", False)])
def test_snapshot_with_an_order_of_no_side_heals_no_queue(sides: bytes, sound: bool) -> None:
    begin = [(0, cme_order(1, b"0", 0)), (0, cme_order(3, b"1", 2)), (0, cme_order(4, b"1", 2))]
    known = cme_healed(*begin, (1, cme_queues(1, 4, sides)))
    assert (("CME", "ABC") not in known.doubted) == sound
