"""Types that nobody knows, later versions and other lengths, at every venue."""

import struct
from dataclasses import dataclass
from typing import Any

import pytest

from lab.conformance.books import Followed
from lab.framings import Sent, build
from lab.guarded_frame import GuardedPayload
from tests.payload import test_message_ends as makers
from tests.payload.test_venues import followed_raw, memx, put
from udpfast.config.lines import PAYLOADS
from udpfast.payload.roq.decode import Outcome

AT_NS = 1_700_000_000_000_000_000
REFUSED, OPAQUE, UNKNOWN = Outcome.REFUSED, Outcome.OPAQUE, Outcome.UNKNOWN
#: Bytes that a later version adds behind what is known.
LATER = b"\xa5" * 8


@dataclass(frozen=True)
class Venue:
    """A message that changes a book, how its type and version are changed, and what comes of it.

    `type_at` is where its type is, `unknown` a type that nobody knows, `silent` are types that
    touch no book, and `outcome` and `empty` are what comes of the unknown one and of no bytes.
    `sizes_at` are formats and offsets of its lengths, `behind` the bytes of groups behind its
    block, `short` by how many bytes a block is too short, `version_at` where the version is.
    """

    data: bytes
    type_at: int
    unknown: bytes
    silent: tuple[bytes, ...]
    outcome: int = REFUSED
    empty: int = REFUSED
    sizes_at: tuple[tuple[str, int], ...] = ()
    behind: int = 0
    short: int = 1
    version_at: int | None = None

    def of_type(self, kind: bytes) -> bytes:
        return self.data[: self.type_at] + kind + self.data[self.type_at + len(kind) :]

    def resized(self, by: int) -> bytes:
        """Return it with a block that is longer, or shorter, by some bytes."""
        block = self.data[: len(self.data) - self.behind]
        block = block + LATER[:by] if by > 0 else block[:by]
        data = bytearray(block + self.data[len(self.data) - self.behind :])
        for layout, at in self.sizes_at:
            (size,) = struct.unpack_from(layout, data, at)
            struct.pack_into(layout, data, at, size + by)
        return bytes(data)


def cme_book() -> bytes:
    root = struct.pack("<QBxx", AT_NS, 0x80)
    entry = struct.pack("<qiiIiBBc5x", 10**9, 5, 7, 1, 1, 1, 0, b"0")
    return makers.cme(46, len(root), root + struct.pack("<HB", 32, 1) + entry)


def deribit_book() -> bytes:
    root = struct.pack("<IQQQB", 7, 1, 0, 1, 1)
    levels = struct.pack("<HHHH", 18, 1, 0, 0) + struct.pack("<BBdd", 1, 0, 10.0, 1.0)
    return struct.pack("<HHHHHH", len(root), 1001, 1, 2, 1, 0) + root + levels


def csm_book() -> bytes:
    body = struct.pack(">IIIBBB", 1, 2, 1, 17, 0, 1) + struct.pack(
        ">BcBbiB", 0, b"0", 1, -2, 100, 0
    )
    return struct.pack(">HBcI", 8 + len(body), 18, b"X", 1) + body


ITCH = b"D" + bytes(10) + struct.pack(">Q", 1)
PITCH = struct.pack("<BBIQ", 14, 0x29, 0, 1)
ICE = struct.pack(">cHiq", b"F", 12, 7, 1)
MIAX = struct.pack("<cIIHHHc", b"B", 0, 7, 100, 1, 0, b"A")
IEX = struct.pack("<cBq8s", b"8", 1, AT_NS, b"ZIEXT   ") + struct.pack("<Iq", 100, 10_000)
IEX_QUOTE = struct.pack("<cBq8s", b"Q", 0, AT_NS, b"ZIEXT   ") + struct.pack("<IqqI", 1, 1, 2, 1)
IEX_ORDER = struct.pack("<cBq8s", b"R", 0, AT_NS, b"ZIEXT   ") + struct.pack("<Q", 11)
NYSE = struct.pack("<HHIIIQB", 25, 102, 0, 7, 1, 11, 0)
MAPPING = struct.pack("<HHI11sxHBcB", 25, 3, 7, b"A", 1, 1, b"N", 2)
EOBI = makers.eobi(13_103, 0, struct.pack("<qQ", 7, 0))
B3 = makers.b3(9, 20, struct.pack("<QB11x", 7, 0x80))


def le(*numbers: int) -> tuple[bytes, ...]:
    return tuple(struct.pack("<H", number) for number in numbers)


def chars(text: str) -> tuple[bytes, ...]:
    return tuple(char.encode() for char in text)


VENUES = {
    "itch": Venue(ITCH, 0, b"z", chars("BR")[:1], empty=OPAQUE),
    # Cboe says that a receiver has to skip what it does not know, IEX that it adds types at will.
    "pitch": Venue(
        PITCH,
        1,
        b"\x7f",
        (b"\x20", b"\x2c", b"\x2d", b"\x95", b"\x96", b"\x98"),
        UNKNOWN,
        sizes_at=(("<B", 0),),
    ),
    "iex_tops": Venue(IEX_QUOTE, 0, b"z", chars("SDPEX"), UNKNOWN),
    "iex_deep": Venue(IEX, 0, b"z", chars("SPEX"), UNKNOWN),
    "iex_deep_plus": Venue(IEX_ORDER, 0, b"z", chars("SPE"), UNKNOWN),
    "cme": Venue(
        cme_book(),
        4,
        le(999)[0],
        le(12),
        sizes_at=(("<H", 0), ("<H", 2)),
        behind=35,
        version_at=8,
        short=3,
    ),
    "deribit": Venue(
        deribit_book(),
        2,
        le(999)[0],
        le(1003, 1006, 1008),
        sizes_at=(("<H", 0),),
        behind=26,
        version_at=6,
    ),
    "csm": Venue(csm_book(), 2, b"\x63", (b"\x0d", b"\x10"), sizes_at=((">H", 0),)),
    # Nothing of it is ever sound: there is no book to doubt.
    "ice": Venue(ICE, 0, b"?", chars("JMN"), UNKNOWN, sizes_at=((">H", 1),)),
    "miax": Venue(MIAX, 0, b"z", chars("1PSXH")),
    "nyse_integrated": Venue(NYSE, 2, le(999)[0], le(1, 2, 31, 35, 223), sizes_at=(("<H", 0),)),
    "nyse_imbalances": Venue(MAPPING, 2, le(999)[0], le(1, 2, 105), OPAQUE, sizes_at=(("<H", 0),)),
    "memx": Venue(
        memx(11, "Q", 11)[2:],
        2,
        b"\x63",
        (b"\x02", b"\x03", b"\x05"),
        sizes_at=((">H", 0),),
        version_at=4,
    ),
    "coinbase": Venue(
        put(1, 5, 1, 10**9, 3),
        4,
        le(99)[0],
        le(120, 122, 124, 200),
        version_at=8,
        short=5,
        sizes_at=(("<H", 0), ("<H", 2)),
    ),
    "eobi": Venue(
        EOBI, 2, le(13_107)[0], le(13_001, 13_202, 13_301, 13_400, 13_503), sizes_at=(("<H", 0),)
    ),
    "b3": Venue(
        B3,
        6,
        le(58)[0],
        le(2, 3, 10, 15, 22, 29, 56),
        sizes_at=(("<H", 0), ("<H", 4)),
        version_at=10,
        short=12,
    ),
}


def test_every_venue_is_here() -> None:
    assert {*VENUES} == {*PAYLOADS} - {"none", "roq"}


def decoder(payload: str) -> GuardedPayload:
    return GuardedPayload(PAYLOADS.index(payload))


def changes(payload: str, data: bytes) -> list[dict[str, Any]]:
    return decoder(payload).changes(data)


@pytest.mark.parametrize("payload", VENUES)
def test_every_venue_has_a_decoder_of_its_own(payload: str) -> None:
    assert changes(payload, VENUES[payload].data) != []
    # No other number of a payload reads the message: there is no decoder that takes the rest.
    for number in (PAYLOADS.index("none"), PAYLOADS.index("roq"), len(PAYLOADS)):
        assert GuardedPayload(number).decode(VENUES[payload].data) == REFUSED


@pytest.mark.parametrize("payload", VENUES)
def test_unknown_type_is_a_doubt_unless_the_venue_says_to_skip_it(payload: str) -> None:
    venue = VENUES[payload]
    assert changes(payload, venue.data) != []
    assert decoder(payload).decode(venue.of_type(venue.unknown)) == venue.outcome


@pytest.mark.parametrize("payload", VENUES)
def test_types_that_touch_no_book_are_none(payload: str) -> None:
    venue = VENUES[payload]
    for kind in venue.silent:
        message = venue.of_type(kind) + bytes(80)
        if payload in ("coinbase", "eobi", "b3", "cme", "deribit", "memx"):
            message = venue.of_type(kind)  # its length is told: nothing may be behind it
        assert decoder(payload).decode(message) in (OPAQUE, 0), kind


@pytest.mark.parametrize("payload", VENUES)
def test_longer_block_of_a_later_version_says_what_the_known_one_says(payload: str) -> None:
    venue = VENUES[payload]
    longer = bytearray(venue.resized(len(LATER)))
    if venue.version_at is not None:
        longer[venue.version_at] ^= 0x40
    told = [one | {"name": bool(one["name"])} for one in changes(payload, bytes(longer))]
    assert told == [one | {"name": bool(one["name"])} for one in changes(payload, venue.data)]


@pytest.mark.parametrize("payload", VENUES)
def test_block_that_is_too_short_is_refused(payload: str) -> None:
    assert decoder(payload).decode(VENUES[payload].resized(-VENUES[payload].short)) == REFUSED


@pytest.mark.parametrize("payload", VENUES)
def test_message_of_no_bytes_says_nothing_where_the_venue_allows_it(payload: str) -> None:
    several = payload in ("cme", "deribit", "coinbase", "eobi", "b3")  # a datagram of no messages
    expected = (OPAQUE, 0) if several else (VENUES[payload].empty,)
    assert decoder(payload).decode(b"") in expected


def memx_known(*messages: bytes) -> Followed:
    datagrams = [
        struct.pack(">BBQQH", 2, 18, 1, number + 1, 1) + one for number, one in enumerate(messages)
    ]
    return followed_raw(datagrams, "memx_memoir", "memx")


def coinbase_known(*messages: bytes) -> Followed:
    datagrams = [
        struct.pack("<qqHBBi", AT_NS, number + 1, 1, 1, 1, 0) + one
        for number, one in enumerate(messages)
    ]
    return followed_raw(datagrams, "coinbase_derivatives", "coinbase")


def itch_known(*messages: bytes) -> Followed:
    datagrams = [
        build("moldudp64", Sent(number + 1, (one,), session=b"0000000042"))
        for number, one in enumerate(messages)
    ]
    return followed_raw(datagrams, "moldudp64", "itch")


def test_book_is_in_doubt_behind_a_type_that_nobody_knows() -> None:
    name = memx(1, "6s6sIBBq", b"AAPL", b"", 100, 0, 0, 10_000)
    begun = (name, memx(10, "QcIq", 11, b"B", 100, 20_000_000))
    more = memx(10, "QcIq", 12, b"B", 100, 20_000_000)
    status = memx(3, "cc", b"T", b"X")
    assert not memx_known(*begun, status, more).books["MEMX", "AAPL"].stale
    assert memx_known(*begun, memx(99, "Q", 11), more).books["MEMX", "AAPL"].stale
    begun = (put(1, 5, 1, 10**9, 3),)
    unknown = bytearray(put(2, 6, 1, 10**9, 3))
    struct.pack_into("<H", unknown, 4, 99)
    known = coinbase_known(*begun, bytes(unknown), put(3, 7, 1, 10**9, 3))
    assert known.books["COINBASE", "44"].stale
    assert not coinbase_known(*begun, put(2, 7, 1, 10**9, 3)).books["COINBASE", "44"].stale


def test_what_counts_in_an_instruments_numbers_continues_them_whatever_it_says() -> None:
    # A status, statistics and a definition of Coinbase have the header that changes have.
    rows = [put(1, 5, 1, 10**9, 3)]
    for seq, template in enumerate((17, 40, 41, 42, 43), 2):
        row = bytearray(put(seq, 0, 0, 0, 0))
        struct.pack_into("<H", row, 4, template)
        rows.append(bytes(row))
    head = struct.pack("<BbiIhhq", 3, 0, 44, 7, 0, 0, AT_NS)
    body = head + b"BIT".ljust(24, b"\0") + bytes(110)
    rows.append(struct.pack("<HHHHH", 10 + len(body), len(body), 10, 1201, 2) + body)
    known = coinbase_known(*rows, put(8, 6, -1, 2 * 10**9, 1))
    assert not known.books["COINBASE", "BIT"].stale
    assert [[*side] for side in known.levels["COINBASE", "BIT"]] == [[1.0], [2.0]]


def test_snapshot_of_coinbase_names_the_instrument_that_its_datagram_says() -> None:
    block = struct.pack("<HI24s", 1, 44, b"WRONG") + bytes(86)
    start = struct.pack("<HHHHH", 10 + len(block), len(block), 110, 1201, 2) + block
    snapshot = struct.pack("<qqHBBi", AT_NS, 1, 1, 2, 1, 211) + start
    update = struct.pack("<qqHBBi", AT_NS, 1, 1, 1, 1, 0) + put(1, 5, 1, 10**9, 3)
    again = struct.pack("<qqHBBi", AT_NS, 2, 1, 1, 1, 0) + put(2, 6, 1, 10**9, 3)
    known = followed_raw([update, snapshot, again], "coinbase_derivatives", "coinbase")
    assert [*known.books] == [("COINBASE", "44")]


def test_message_of_no_bytes_takes_a_number_of_moldudp64_and_says_nothing() -> None:
    one, two = (
        struct.pack(">cHH6sQcI8sI", b"A", 7, 0, bytes(6), order, b"B", 9, b"AAPL    ", 10_000)
        for order in (1, 2)
    )
    assert not itch_known(one, b"", two).books["NASDAQ", "AAPL"].stale
    assert itch_known(one, b"z" + bytes(30), two).books["NASDAQ", "AAPL"].stale
