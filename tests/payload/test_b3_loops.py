"""B3's loops of snapshots and definitions: markets from seeds, with losses on all lines."""

import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from lab.conformance.books import Followed, Line, follow
from tests.payload.seeded_markets import Sent, captured, compare_sound
from tests.payload.test_b3 import delete, message, order
from tests.payload.test_venues import AT_NS
from udpfast.config import FeedConfig, parse_feed
from udpfast.core.layout import Kind

Book = dict[int, tuple[str, int, int]]  # by secondary id: side, price, size
VERSION = 1
NAME = ("B3", "7")


def datagram(number: int, *messages: bytes, version: int = VERSION) -> bytes:
    return struct.pack("<BxHIQ", 50, version, number, AT_NS) + b"".join(messages)


def header(last: int, book: Book, version: int = VERSION, instrument: int = 7) -> bytes:
    bids = sum(side == "0" for side, *_ in book.values())
    counts = (last, 1, bids, len(book) - bids)
    return message(30, struct.pack("<QIIIIHxxIHxx", instrument, *counts, 0, 0, version))


def rows(book: Book, ids: list[int], instrument: int = 7) -> bytes:
    entries = b"".join(
        struct.pack("<qq4xIQQcB", book[n][1] * 10_000, book[n][2], 0, 0, n, book[n][0].encode(), 0)
        for n in ids
    )
    block = struct.pack("<Q", instrument)
    whole = message(71, block + struct.pack("<HB", 42, len(ids)) + entries)
    return whole[:4] + struct.pack("<H", len(block)) + whole[6:]


def snapshot(last: int, book: Book, version: int = VERSION, part: int = 2) -> list[bytes]:
    ids = sorted(book)
    parts = [ids[at : at + part] for at in range(0, len(ids), part)]
    return [header(last, book, version), *(rows(book, some) for some in parts)]


def config(**definitions: str) -> FeedConfig:
    """Return the settings of a feed of one line of changes and two of snapshots."""
    tables: dict[str, Any] = {
        "name": "b3",
        "wire": {"framing": "b3_umdf", "payload": "b3", "streams_max": 4},
        "streams": {"lines": [{"name": "A", "address": "127.0.0.1:9001"}]},
        "recovery": {
            "lines": [{"name": f"S{i}", "address": f"127.0.0.1:{9101 + i}"} for i in range(2)]
        },
        "window": {"size": 256, "lost_packet_wait_us": 20_000},
        "ring": {"capacity_bytes": 1 << 22, "names": 256},
        "books": {"orders": True, "orders_max": 1_000},
    }
    if definitions:
        tables["definitions"] = {"lines": [definitions]}
    return parse_feed(tables)


def known_of(sent: list[Sent], **definitions: str) -> Followed:
    *_, (known, _) = follow(config(**definitions), captured(sent, 30_000_000))
    return known


def queue(known: Followed, name: tuple[str, str] = NAME) -> list[tuple[int, int, int, int]]:
    found = known.orders[name].items()
    return sorted((int(n), row[0], int(row[1]), int(row[2])) for n, row in found)


BOOK: Book = {11: ("0", 10, 3), 12: ("0", 10, 5), 13: ("1", 11, 4)}
LIVE, LOOP, OTHER = (0, 0), (1, 0), (1, 1)
MORE = order(14, "1", 12, 1)
LATE = [(LIVE, datagram(5, order(12, "0", 10, 5))), (LIVE, datagram(6, MORE))]
WHOLE = [(14, 1, 12, 1)]


def looped(*messages: bytes, where: tuple[int, int] = LOOP, first: int = 2) -> list[Sent]:
    return [(where, datagram(first + n, one)) for n, one in enumerate(messages)]


def test_snapshot_and_what_came_behind_it_are_a_book() -> None:
    known = known_of([*LATE, *looped(*snapshot(5, BOOK))])
    assert not known.books[NAME].stale
    assert queue(known) == [(11, 0, 10, 3), (12, 0, 10, 5), (13, 1, 11, 4), (14, 1, 12, 1)]
    empty = known_of([*LATE, *looped(*snapshot(5, {}))])
    assert (queue(empty), empty.books[NAME].stale) == (WHOLE, False)


def without(parts: list[bytes], at: int) -> list[Sent]:
    return [one for n, one in enumerate(looped(*parts)) if n != at]


PARTS = snapshot(5, BOOK)


@pytest.mark.parametrize(
    "loop",
    [
        without(PARTS, 0),  # its header is lost
        without(PARTS, 1),
        without(PARTS, 2),
        looped(PARTS[0], PARTS[1]) + looped(PARTS[1], first=4),  # one part twice
        looped(PARTS[0], PARTS[2], PARTS[1], first=2)[:1] + looped(PARTS[2], first=4),
        looped(*snapshot(3, BOOK)),  # of before what was missed
        looped(*snapshot(99, BOOK)),  # of what never came
        looped(*snapshot(5, BOOK, version=9)),  # of another numbering
        looped(PARTS[0]) + looped(PARTS[1], PARTS[2], where=OTHER, first=3),  # two lines' halves
        # Two lost halves of two rounds that add up to the counts.
        looped(PARTS[0], PARTS[1]) + looped(rows({20: ("1", 15, 1)}, [20]), first=9),
        looped(PARTS[0], rows(BOOK, [11, 12]), rows({21: ("0", 9, 9)}, [21])),  # more bids
    ],
)
def test_snapshot_that_is_not_whole_or_not_in_time_heals_nothing(loop: list[Sent]) -> None:
    known = known_of([*LATE, *loop])
    assert NAME not in known.books or known.books[NAME].stale
    again = known_of([*LATE, *loop, *looped(*PARTS, first=40)])  # the next round does
    assert not again.books[NAME].stale
    assert len(queue(again)) == 4


def test_loss_in_the_middle_of_a_snapshot_is_not_healed_by_it() -> None:
    gap = (LIVE, datagram(9, order(15, "1", 13, 1)))
    parts = looped(*PARTS)
    known = known_of([*LATE, *parts[:2], gap, *[(LIVE, datagram(10 + n)) for n in range(40)]])
    assert NAME not in known.books or known.books[NAME].stale
    known = known_of(
        [*LATE, *parts[:2], gap, *[(LIVE, datagram(10 + n)) for n in range(40)], *parts[2:]]
    )
    assert NAME not in known.books or known.books[NAME].stale


DEFINED = {"name": "D", "address": "127.0.0.1:9301"}


def defined() -> list[Sent]:
    block = bytearray(220)
    struct.pack_into("<Q4sc3s20scB", block, 0, 7, b"BVMF", b"8", b"GRP", b"PETR4", b"A", 3)
    struct.pack_into("<q8xq8xq", block, 44, 1_000_000, 100_000_000, 1_800_000_000)
    return looped(message(12, bytes(block)), where=(1, 0))


def test_definition_names_an_instrument() -> None:
    begun = [(LIVE, datagram(1, order(11, "0", 10, 3)))]
    assert NAME not in known_of(begun, **DEFINED).levels
    assert not known_of([*begun, *defined()], **DEFINED).books["B3", "PETR4"].stale


def test_loss_among_changes_puts_no_definition_of_a_loop_in_doubt() -> None:
    # The loop says it again, and it is told again only if it changed: nothing would end the doubt.
    begun = [(LIVE, datagram(1, order(11, "0", 10, 3)))]
    lost = [(LIVE, datagram(n)) for n in range(9, 50)]
    sent = captured([*begun, *defined(), *lost], 30_000_000)
    followed = follow(config(**DEFINED), sent)
    streams = {record.kind: record.stream for _, record in followed if record is not None}
    assert streams[Kind.BOOK] == streams[Kind.GAP] != streams[Kind.REFERENCE_DATA]


def test_channels_that_share_a_line_heal_each_by_its_own_snapshots() -> None:
    def both(line: Line, number: int, *messages: bytes) -> list[Sent]:
        sent = datagram(number, *messages)
        seven, eight = (struct.pack("<Q", instrument) for instrument in (7, 8))
        return [(line, sent), (line, b"\x33" + sent[1:].replace(seven, eight))]

    sent = both(LIVE, 5, order(12, "0", 10, 5)) + both(LIVE, 6, MORE)
    for n, part in enumerate(PARTS):
        sent += both(LOOP, 2 + n, part)
    known = known_of(sent)
    for name in (NAME, ("B3", "8")):
        assert not known.books[name].stale
        assert len(queue(known, name)) == 4


def market(seed: int) -> Iterator[tuple[Sent | None, int, Book]]:
    """Yield what arrives, and the book as of each number of the changes."""
    chance, ids = random.Random(seed), 0
    book: Book = {}
    pending: list[Sent] = []
    loop_number = {0: 0, 1: 0}
    for number in range(1, 401):
        events = []
        for _ in range(chance.randrange(1, 4)):
            if book and chance.random() < 0.45:
                one = chance.choice(sorted(book))
                side, price, size = book[one]
                if chance.random() < 0.5:
                    events.append(delete(one, side, price))
                    del book[one]
                else:
                    book[one] = (side, price, size + 1)
                    events.append(order(one, side, price, size + 1, action=1))
            else:
                ids += 1
                side = chance.choice("01")
                book[ids] = (side, chance.randrange(90, 100) + 10 * (side == "1"), ids)
                events.append(order(ids, *book[ids]))
        sent = (LIVE, datagram(number, *events))
        yield (None if chance.random() < 0.03 else sent), number, dict(book)
        if not pending and number % 5 == 0:
            for line in (0, 1):
                for one in snapshot(number, dict(book), part=30):
                    loop_number[line] += 1
                    pending.append(((1, line), datagram(loop_number[line], one)))
            if chance.random() < 0.5:  # the lines' halves mixed, each in its order
                first = [one for one in pending if one[0] == LOOP]
                second = [one for one in pending if one[0] == OTHER]
                pending = []
                while first or second:
                    pending.append(
                        (first if not second or (first and chance.random() < 0.5) else second).pop(
                            0
                        )
                    )
        for _ in range(chance.randrange(3)):
            if pending:
                one_sent = pending.pop(0)
                yield (None if chance.random() < 0.1 else one_sent), number, dict(book)


@pytest.mark.parametrize("seed", range(9200, 9212))
def test_sound_book_of_any_market_is_that_of_the_venue(seed: int) -> None:
    def listed(book: Book) -> list[tuple[int, int, int, int]]:
        return sorted((n, int(one[0]), *one[1:]) for n, one in book.items())

    compared, healed = compare_sound(market(seed), config(), NAME, queue, listed)
    assert compared > 30
    assert healed >= 2
