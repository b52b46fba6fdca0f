"""A relay whose line is short: what goes first, what is merged, and that all of it is counted."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.agents.test_relay import NAME, STEP_NS, World
from udpfast.agents.relay.relay_lines import RelayLines, line_budget
from udpfast.config import RelayLine, parse_relay
from udpfast.core.layout import Kind, RecordFlag
from udpfast.errors import ConfigError
from udpfast.feed.publication import Publication
from udpfast.log.readers import list_readers
from udpfast.market.updates import TOP_OF_BOOK, TRADE, TRADES
from udpfast.shm.relay_counts import RELAY_VERDICTS

BITS_PER_S, BURST_BYTES = 200_000, 2_048
HEADERS = 46


def line(name: str = "thin", **fields: Any) -> RelayLine:
    return parse_relay({"lines": [{"name": name, "incremental": "127.0.0.1:7", **fields}]}).lines[0]


class ShortWorld(World):
    """A relay whose one line takes 200 kbit per second."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        thin = line(bits_per_s=BITS_PER_S, burst_bytes=BURST_BYTES)
        super().__init__(directory, lines=(thin,), **settings)

    def trade(self, quantity: float) -> None:
        update = self.near.update(TRADES, *NAME, row_count=1, present=2)
        row = np.zeros(1, TRADE)
        row["price"], row["quantity"] = 1.0, quantity
        payload = update.tobytes() + row.tobytes()
        self.near.append(Kind.TRADES, payload, RecordFlag.UNGATED, session=1, object_type=5)

    def top_of(self, symbol: str, bid: float) -> None:
        update = self.near.update(TOP_OF_BOOK, NAME[0], symbol, bid_price=bid, present=8)
        fields = {"object_type": 4, "object_id": 1 + int(symbol[1:]), "session": 1}
        self.near.append(Kind.TOP_OF_BOOK, update.tobytes(), RecordFlag.UNGATED, **fields)

    def fill(self) -> None:
        """Change one level more often than the line can tell."""
        for number in range(100):
            self.book((2.0, float(1 + number)))
        self.turn()

    def add_up(self) -> None:
        counts = self.counts
        assert sum(counts[key] for key in RELAY_VERDICTS) == counts["records"], counts


@pytest.fixture
def short(tmp_path: Path) -> Iterator[ShortWorld]:
    made = ShortWorld(tmp_path)
    yield made
    made.add_up()
    made.close()


def test_newest_state_of_each_level_arrives(short: ShortWorld) -> None:
    short.book(*((float(price), 1.0) for price in range(1, 21)), snapshot=True)
    short.turn()
    for quantity in range(1, 200):
        short.book((5.0, float(quantity)), (6.0, float(quantity % 2)))
    short.turn()
    assert short.counts["waiting"] + short.counts["conflated"] > 100
    short.quiet()
    expected = {float(price): 1.0 for price in range(1, 21)} | {5.0: 199.0, 6.0: 1.0}
    assert short.bids == expected
    counts = short.counts
    assert counts["waiting"] == 0
    assert counts["conflated"] > 100
    assert counts["delayed"] >= 1
    assert counts["updates"] + counts["delayed"] + counts["conflated"] == 199


def test_level_that_is_gone_when_there_is_room_is_gone_there(short: ShortWorld) -> None:
    short.book((1.0, 1.0), (2.0, 1.0), snapshot=True)
    short.turn()
    for _ in range(30):
        short.book((3.0, 1.0))
        short.book((2.0, 0.0), (3.0, 0.0))
    short.quiet()
    assert short.bids == {1.0: 1.0}


def test_book_with_too_many_changes_is_sent_whole(short: ShortWorld) -> None:
    short.book((1.0, 1.0), snapshot=True)
    short.turn()
    for price in range(2, 202):
        short.book((float(price), 2.0))
    whole = short.counts["whole"]
    for _ in range(4):
        short.quiet()
    assert short.bids == {1.0: 1.0, **{float(price): 2.0 for price in range(2, 202)}}
    assert short.counts["whole"] > whole


def test_every_trade_arrives_however_short_the_line_is(short: ShortWorld) -> None:
    short.book((1.0, 1.0), snapshot=True)
    short.turn()
    for number in range(300):
        short.trade(float(number))
        short.book((2.0, float(1 + number)))
    for _ in range(10):
        short.quiet()
    arrived = [
        record.update.rows["quantity"].tolist()
        for record in short.records
        if record.kind == Kind.TRADES
    ]
    assert arrived == [[float(number)] for number in range(300)]
    assert short.bids == {1.0: 1.0, 2.0: 300.0}
    assert short.relay.index == short.counts["records"]


def test_tops_go_before_levels(short: ShortWorld) -> None:
    short.book(*((float(price), 1.0) for price in range(1, 60)), snapshot=True)
    short.turn()
    for number in range(40):
        short.book(*((float(price), 2.0 + number) for price in range(1, 60)))
        short.top_of(f"S{number % 3}", float(number))
    newest: dict[str, float] = {}
    book_at = None
    for _ in range(70):
        for record in short.turn():
            if record.kind == Kind.TOP_OF_BOOK:
                newest[record.symbol] = float(record.update.header["bid_price"])
        if book_at is None and short.bids and short.bids.get(1.0) == 41.0:
            book_at = dict(newest)
    assert book_at == {"S0": 39.0, "S1": 37.0, "S2": 38.0}


def test_no_more_leaves_than_the_budget_has_room_for(short: ShortWorld) -> None:
    short.book((1.0, 1.0), snapshot=True)
    sent: list[tuple[int, int]] = []
    for number in range(200):
        short.trade(1.0)
        for price in range(1, 40):
            short.book((float(price), 1.0 + number))
        short.near.ring.flush()
        short.now_ns += STEP_NS
        while short.relay.work(short.now_ns) > 0:
            pass
        kept = [datagram for channel in short.relay.feed.kept for datagram in channel]
        for channel in short.relay.feed.kept:
            channel.clear()
        sent.append((short.now_ns, 8 * sum(len(each) + HEADERS for each in kept)))
    one_more = 8 * (528 + HEADERS)
    for first in range(len(sent)):
        bits = 0
        for now_ns, size in sent[first:]:
            bits += size
            room = (now_ns - sent[first][0]) * BITS_PER_S / 1e9 + 8 * BURST_BYTES + one_more
            assert bits <= room
    # Without a rest that nobody uses.
    assert sum(size for _, size in sent) > 0.9 * BITS_PER_S * len(sent) * STEP_NS / 1e9


def test_book_that_waits_too_long_is_in_doubt_until_it_is_told(tmp_path: Path) -> None:
    short = ShortWorld(tmp_path, late_ms=100)
    short.book((1.0, 1.0), snapshot=True)
    short.turn()
    assert short.bids == {1.0: 1.0}
    for number in range(8):
        short.trade(float(number))
    short.book((1.0, 2.0))
    seen = []
    for at in range(70):
        for _ in range(2 if at < 30 else 0):  # as many as the line carries
            short.trade(1.0)
        short.turn()
        seen.append(short.bids)
    assert {1.0: 1.0} in seen
    assert None in seen
    assert seen[-1] == {1.0: 2.0}
    late = seen.index(None)
    assert {1.0: 1.0} not in seen[late:]
    assert (short.counts["late"], short.counts["behind"]) == (1, 0)
    short.add_up()
    short.close()


def test_far_end_believes_no_book_while_trades_take_all_of_the_line(tmp_path: Path) -> None:
    short = ShortWorld(tmp_path, late_ms=100)
    short.book((1.0, 1.0), snapshot=True)
    short.turn()
    for number in range(600):
        short.trade(float(number))
        short.book((1.0, 2.0 + number))
    seen = []
    for _ in range(360):
        short.turn()
        seen.append(short.bids)
    assert short.counts["behind"] == 1
    assert seen[-1] == {1.0: 601.0}
    doubted = seen.index(None)
    assert seen[doubted:].count(None) > 50
    assert all(each in (None, seen[-1]) for each in seen[doubted:])
    trades = [record for record in short.records if record.kind == Kind.TRADES]
    assert len(trades) == 600
    short.add_up()
    short.close()


def test_far_end_is_told_that_the_line_is_short_and_no_longer_is(short: ShortWorld) -> None:
    def said() -> list[int]:
        return [
            int(header["supported"] & ~(header["available"] | header["unavailable"]))
            for header in (
                record.update.header
                for record in short.records
                if record.kind == Kind.GATEWAY_STATUS
            )
        ]

    short.book((1.0, 1.0), snapshot=True)
    short.quiet()
    assert set(said()) == {0}
    short.fill()
    for _ in range(3):
        short.quiet()
    assert short.counts["short"] == 0
    assert 0x4 | 0x8 in said()
    assert said()[-1] == 0


def test_gap_here_while_a_book_waits_costs_it_nothing(short: ShortWorld) -> None:
    short.book((1.0, 1.0), snapshot=True)
    short.turn()
    short.fill()
    assert short.counts["waiting"]
    short.gap()
    short.turn()
    assert short.bids is None
    short.say(Kind.RECOVERED, status=1, continues=1)
    short.book((3.0, 1.0))
    short.quiet()
    assert short.bids == {1.0: 1.0, 2.0: 100.0, 3.0: 1.0}


def test_book_that_is_in_doubt_here_is_no_longer_waited_for(short: ShortWorld) -> None:
    short.book((1.0, 1.0), snapshot=True)
    short.turn()
    short.fill()
    assert short.counts["waiting"]
    short.say(Kind.STALE, status=3, waits=1)
    short.quiet()
    assert short.counts["waiting"] == 0
    assert short.bids is None


def test_session_that_begins_while_a_book_waits_forgets_it(short: ShortWorld) -> None:
    short.book((1.0, 1.0), snapshot=True)
    short.turn()
    short.fill()
    short.begin(2, 2)
    short.book((7.0, 1.0), snapshot=True, session=2)
    short.quiet()
    assert short.counts["waiting"] == 0
    assert short.bids == {7.0: 1.0}


def test_line_that_leaves_out_sends_tops_and_leaves_levels_to_others() -> None:
    ends = []
    for _ in range(4):
        ends.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        ends[-1].bind(("127.0.0.1", 0))
    ports = [end.getsockname()[1] for end in ends]
    wide, thin = (
        {
            "name": name,
            "incremental": f"127.0.0.1:{ports[at]}",
            "snapshot": f"127.0.0.1:{ports[at + 1]}",
        }
        for at, name in ((0, "wide"), (2, "thin"))
    )
    thin |= {"bits_per_s": BITS_PER_S, "burst_bytes": BURST_BYTES, "short": "leave_out"}
    lines = parse_relay({"lines": [wide, thin]}).lines
    assert line_budget(lines) == {}
    counts = np.zeros((2, 16), np.int64)
    sender = RelayLines(lines, counts)
    publication = Publication(1)
    for number in range(60):
        kind = 3 if number % 6 == 0 else 1
        publication.publish(b"x" * 100, kind, 1, now_ns=STEP_NS)
    sender.send_publication(publication, STEP_NS)
    sender.close()
    arrived = [[], []]
    for at, end in enumerate((ends[0], ends[2])):
        end.setblocking(False)
        for _ in range(int(counts[at, 0])):
            arrived[at].append(end.recv(2048))
    for end in ends:
        end.close()
    names = ("datagrams", "bytes", "unsent", "parity", "left_out")
    assert dict(zip(names, counts[0].tolist(), strict=False)) == {
        "datagrams": 60, "bytes": 60 * 116, "unsent": 0, "parity": 0, "left_out": 0,
    }  # fmt: skip
    assert counts[1, 0] + counts[1, 4] == 60
    kinds = [datagram[3] for datagram in arrived[1]]
    assert kinds.count(3) / 10 > kinds.count(1) / 50
    assert set(arrived[1]) < set(arrived[0])


def test_strictest_line_gives_the_budget() -> None:
    table = [
        {"name": "a", "incremental": "127.0.0.1:7", "bits_per_s": 10_000_000},
        {"name": "b", "incremental": "[::1]:7", "bits_per_s": 5_000_000, "burst_bytes": 4096},
        {"name": "c", "incremental": "127.0.0.2:7", "bits_per_s": 1, "short": "leave_out"},
        {"name": "d", "incremental": "127.0.0.3:7"},
    ]
    lines = parse_relay({"lines": table}).lines
    assert line_budget(lines) == {"bits_per_s": 5_000_000, "burst_bytes": 4096, "headers": 66}
    with pytest.raises(ConfigError, match="what a line leaves out another one has to carry"):
        parse_relay({"lines": [table[2]]})


def test_records_that_wait_for_room_count_as_read(short: ShortWorld) -> None:
    """What ties a reader's counts together holds after each turn, with half a batch done, too."""
    for number in range(2_000):
        short.trade(1.0 + number)
    short.near.ring.flush()
    waited, before = False, 0
    for _ in range(200):
        short.now_ns += STEP_NS
        short.relay.work(short.now_ns)
        (reader,) = list_readers(short.near.directory)
        assert reader.began_index + reader.read + reader.lapped == reader.index
        waited |= reader.index == before < 2_000
        before = reader.index
        for kept in short.relay.feed.kept:
            kept.clear()
    assert waited
