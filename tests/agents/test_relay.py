"""The relay: what it sends of what it reads, how doubt is handed on, and what it refuses."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.relaycheck import End, far_config
from tests.client.instance import Instance
from udpfast.agents.relay.relay import Relay
from udpfast.config import RelayConfig, parse_feed, parse_relay
from udpfast.core.layout import GAP, OBJECT_STATE, SESSION, Kind, RecordFlag
from udpfast.errors import ConfigError
from udpfast.market.updates import (
    ORDERS,
    REFERENCE_DATA,
    STATISTIC,
    STATISTICS,
    TOP_OF_BOOK,
    TRADE,
    TRADES,
)

STEP_NS = 10_000_000
BOOK = {"object_type": 3, "object_id": 7, "session": 1}
NAME = ("binance-usdm", "BTCUSDT")


class World:
    """An instance that a test fills, its relay, and the feed at the far end."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.now_ns = 1_000_000_000
        self.near = Instance(directory / "near", 1 << 22)
        # So often that the far end's clock goes on with each step.
        self.relay = Relay(
            RelayConfig(heartbeat_ms=STEP_NS // 1_000_000, **settings),
            self.near.directory,
            keep=True,
        )
        self.relay.on_start()
        small = {
            "window": {"size": 1024, "slab_cells": 1024},
            "objects": {"max": 256, "collect_bytes": 1 << 20},
            "ring": {"capacity_bytes": 1 << 22, "names": 64},
        }
        self.far = End(far_config(**small), directory / "far")
        self.records: list[Any] = []
        self.begin()

    def begin(self, session_id: int = 1, session: int = 1) -> None:
        self.session = session
        payload = np.zeros((), SESSION)
        payload["new_id"] = session_id
        self.near.append(Kind.SESSION, payload.tobytes(), session=session)

    def book(self, *bids: tuple[float, float], snapshot: bool = False, **fields: Any) -> None:
        """Publish a book as a feed does, which says of a whole one that it is sound."""
        if snapshot:
            self.say(Kind.RECOVERED, status=1)
        self.near.book(list(bids), [], snapshot=snapshot, **{"follows": 1, **BOOK, **fields})

    def top(self, bid: float) -> None:
        update = self.near.update(TOP_OF_BOOK, *NAME, bid_price=bid, present=8)
        self.near.append(Kind.TOP_OF_BOOK, update.tobytes(), RecordFlag.UNGATED, **BOOK)

    def trade(self, price: float, flags: int = 0) -> None:
        row = np.zeros(1, TRADE)
        row["price"], row["quantity"], row["side"] = price, 2.0, 1
        update = self.near.update(TRADES, *NAME, row_count=1, present=2)
        payload = update.tobytes() + row.tobytes()
        self.near.append(Kind.TRADES, payload, RecordFlag.UNGATED | flags, session=1)

    def say(self, kind: Kind, flags: int = 0, **fields: int) -> None:
        payload = np.zeros((), OBJECT_STATE)
        payload["exchange_id"] = self.near.names.intern(NAME[0])
        payload["symbol_id"] = self.near.names.intern(NAME[1])
        for name, value in fields.items():
            payload[name] = value
        key = self.session, BOOK["object_type"] << 16 | BOOK["object_id"]
        follows = self.near.contained.get(key, 0) if fields.get("continues") else -1
        header = BOOK | {"session": self.session, "follows": follows}
        self.near.append(kind, payload.tobytes(), flags, **header)

    def gap(self) -> None:
        payload = np.zeros((), GAP)
        payload["count"], payload["reason"] = 1, 2
        self.near.append(Kind.GAP, payload.tobytes(), session=1)

    def turn(self, *, lost: bool = False, ended: bool = False) -> list[Any]:
        """Let the relay and the far end run; return the records that are new there.

        `lost`: all that the relay sends first is lost on the way.
        """
        if not ended:
            self.near.ring.flush()
        found = []
        for _ in range(3):  # what a hole holds back comes later
            self.now_ns += STEP_NS
            while self.relay.work(self.now_ns) > 0:
                pass
            for channel, kept in enumerate(self.relay.feed.kept):
                datagrams = list(kept)
                kept.clear()
                for datagram in () if lost else datagrams:
                    found += self.far.send(datagram, (channel, 0), self.now_ns)
            lost = False
        if ended:
            self.far.replayer.finish()
            found += self.far.records()
        self.records += found
        return found

    def quiet(self) -> list[Any]:
        return [record for _ in range(70) for record in self.turn()]

    @property
    def bids(self) -> dict[float, float] | None:
        """Return the far end's book; None: it is in doubt."""
        book = self.far.followed.books.get(NAME)
        if book is None or book.stale:
            return None
        return {price: row[0] for price, row in self.far.followed.levels[NAME][0].items()}

    @property
    def counts(self) -> dict[str, int]:
        return self.relay.read_counts()["relay"]

    def close(self) -> None:
        self.relay.on_stop()
        self.far.close()
        self.near.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def kinds(records: list[Any]) -> list[Kind]:
    return [record.kind for record in records if record.kind != Kind.GATEWAY_STATUS]


def test_book_arrives_as_it_is(world: World) -> None:
    world.book((100.0, 1.0), (99.0, 2.0), snapshot=True)
    world.book((100.0, 3.0), (99.0, 0.0))
    world.turn()
    assert world.bids == {100.0: 3.0}
    assert (world.counts["whole"], world.counts["updates"]) == (1, 1)


def test_gap_here_is_a_gap_there_until_the_book_continues(world: World) -> None:
    world.book((100.0, 1.0), snapshot=True)
    world.turn()
    world.gap()
    assert Kind.GAP in kinds(world.turn())
    assert world.bids is None
    world.say(Kind.RECOVERED, status=1, continues=1)
    world.book((99.0, 1.0))
    assert Kind.RECOVERED in kinds(world.turn())
    assert world.bids == {100.0: 1.0, 99.0: 1.0}


def test_several_gaps_in_a_row_are_one_number(world: World) -> None:
    world.book((100.0, 1.0), snapshot=True)
    world.turn()
    for _ in range(5):
        world.gap()
    assert kinds(world.turn()).count(Kind.GAP) == 1
    assert world.counts["gaps"] == 5


def test_book_that_is_stale_here_is_stale_there_alone(world: World) -> None:
    world.book((100.0, 1.0), snapshot=True)
    world.near.book(
        [(5.0, 5.0)], [], "ETH", True, RecordFlag.UNGATED, object_type=4, object_id=8, session=1
    )
    world.turn()
    world.say(Kind.STALE, status=3, waits=1)
    found = world.turn()
    assert Kind.STALE in kinds(found)
    assert Kind.GAP not in kinds(found)
    assert world.bids is None
    assert not world.far.followed.books[NAME[0], "ETH"].stale
    assert world.quiet()  # rounds do not heal what is in doubt here
    assert world.bids is None
    world.say(Kind.RECOVERED, status=1, continues=0)
    world.book((98.0, 1.0), snapshot=True)
    assert Kind.RECOVERED in kinds(world.turn())
    assert world.bids == {98.0: 1.0}


def test_book_recovers_that_was_never_doubted_by_a_reader_here(world: World) -> None:
    world.book((100.0, 1.0), snapshot=True)
    world.turn()
    world.gap()
    world.turn()
    world.say(Kind.RECOVERED, status=1, continues=1)
    world.quiet()
    assert world.bids == {100.0: 1.0}


def test_loss_on_the_way_is_healed_by_a_round(world: World) -> None:
    world.book((100.0, 1.0), snapshot=True)
    world.turn()
    world.book((99.0, 1.0))
    world.turn(lost=True)
    world.book((98.0, 1.0))
    world.turn()
    assert world.bids is None
    world.quiet()
    assert world.bids == {100.0: 1.0, 99.0: 1.0, 98.0: 1.0}


def test_last_message_that_is_lost_is_shown_by_a_heartbeat(world: World) -> None:
    world.book((100.0, 1.0), snapshot=True)
    world.turn()
    world.book((99.0, 1.0))
    world.turn(lost=True)
    world.quiet()
    assert world.bids == {100.0: 1.0, 99.0: 1.0}


def test_top_is_withdrawn_while_its_object_is_in_doubt(world: World) -> None:
    world.top(1.0)
    world.turn()
    world.say(Kind.STALE, RecordFlag.UNGATED, status=3)
    (told,) = (each for each in world.turn() if each.kind == Kind.TOP_OF_BOOK)
    assert told.update.header["update_type"] == 3
    assert np.isnan(told.update.header["bid_price"])


def test_top_that_was_lost_comes_with_the_next_round(world: World) -> None:
    world.book((100.0, 1.0), snapshot=True)
    world.turn()
    world.top(1.0)
    world.turn(lost=True)
    world.quiet()
    assert world.far.followed.tops[NAME][0] == 1.0


def test_trades_pass_and_are_not_repeated(world: World) -> None:
    world.trade(7.0)
    world.quiet()
    assert world.far.followed.trades[NAME] == [(7.0, 2.0)]
    assert world.counts["doubt_not_carried"] == 0


def test_trade_in_doubt_comes_behind_the_doubt_of_its_book_and_is_counted(world: World) -> None:
    world.trade(6.0, RecordFlag.DOUBT)
    world.turn()
    assert world.bids is None  # there never was a book
    world.book((100.0, 1.0), snapshot=True)
    world.turn()
    world.say(Kind.STALE, status=3, waits=1)
    world.trade(7.0, RecordFlag.DOUBT)
    stale, trade = (each for each in world.turn() if each.kind in (Kind.STALE, Kind.TRADES))
    assert (stale.kind, trade.kind) == (Kind.STALE, Kind.TRADES)
    # The message has no word for it.
    assert not trade.flags & RecordFlag.DOUBT
    assert world.bids is None
    assert world.counts["doubt_not_carried"] == 2
    assert world.counts["updates"] == 2


def test_other_kinds_come_whole_and_in_every_round(world: World) -> None:
    rows = np.zeros(1, STATISTIC)
    rows["type"], rows["value"] = 1, 3.5
    update = world.near.update(STATISTICS, *NAME, row_count=1, present=2, update_type=1)
    world.near.append(
        Kind.STATISTICS, update.tobytes() + rows.tobytes(),
        RecordFlag.SNAPSHOT | RecordFlag.UNGATED, object_type=5, object_id=1, session=1,
    )  # fmt: skip
    reference = world.near.update(REFERENCE_DATA, *NAME, tick_size=0.5)
    world.near.append(
        Kind.REFERENCE_DATA, reference.tobytes(),
        RecordFlag.SNAPSHOT | RecordFlag.UNGATED, object_type=6, object_id=1, session=1,
    )  # fmt: skip
    told = {record.kind: record for record in world.turn()}
    assert told[Kind.STATISTICS].update.rows["value"].tolist() == [3.5]
    assert told[Kind.REFERENCE_DATA].update.header["tick_size"] == 0.5
    world.quiet()
    assert world.counts["snapshots"] >= 2


def test_session_here_is_a_session_there(world: World) -> None:
    world.book((100.0, 1.0), snapshot=True)
    world.turn()
    world.begin(2, 2)
    world.book((50.0, 1.0), snapshot=True, session=2)
    assert Kind.SESSION in kinds(world.turn())
    assert world.bids == {50.0: 1.0}


def test_orders_are_counted_and_not_carried(world: World) -> None:
    update = world.near.update(ORDERS, *NAME)
    world.near.append(Kind.ORDERS, update.tobytes(), session=1, object_type=9, object_id=1)
    world.near.append(Kind.MESSAGE, b"x" * 20, session=1)
    world.turn()
    assert world.counts["not_carried"] == 2


def test_book_that_fits_no_message_is_in_doubt_there(world: World) -> None:
    many = [(float(price), 1.0) for price in range(6_000, 0, -1)]
    world.book(*many[:2_000], snapshot=True)
    world.turn()
    assert world.bids is not None
    assert len(world.bids) == 2_000
    world.book(*many, snapshot=True)
    world.turn()
    assert world.bids is None
    assert world.counts["refused"] == 1
    world.quiet()
    assert world.counts["refused"] == 1  # it is not encoded again and again
    world.book((1.0, 1.0), snapshot=True)
    world.turn()
    assert world.bids == {1.0: 1.0}


def test_relay_that_was_lapped_says_so_there(world: World) -> None:
    world.book((100.0, 1.0), snapshot=True)
    world.turn()
    levels = [(float(1 + i), 1.0) for i in range(2_000)]
    for _ in range(100):  # more than the ring holds
        world.book(*levels)
    assert Kind.GAP in kinds(world.turn())
    assert world.counts["lapped"] > 0
    assert world.bids is None
    world.quiet()
    assert world.bids is None
    world.book((7.0, 1.0), snapshot=True)
    world.turn()
    assert world.bids == {7.0: 1.0}


def test_end_of_the_ring_is_doubt_there(world: World) -> None:
    world.book((100.0, 1.0), snapshot=True)
    world.turn()
    world.near.ring.close()
    found = world.turn(ended=True)
    assert Kind.GAP in kinds(found)
    assert world.bids is None
    status = [each for each in found if each.kind == Kind.GATEWAY_STATUS][-1].update.header
    assert status["available"] == 0
    assert status["unavailable"] > 0


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"enabled": True}, "relay.lines: expected at least one line, found none"),
        (
            {"lines": [{"name": "a", "incremental": "127.0.0.1:0"}]},
            "expected ip:port or [ip6]:port, with a port from 1 to 65535, found '127.0.0.1:0'",
        ),
        (
            {"lines": [{"name": "a", "incremental": "127.0.0.1:65535"}]},
            "expected `snapshot` of line 'a', because no port follows 65535",
        ),
        (
            {"lines": [{"name": "a", "incremental": f"127.0.0.1:{7 + i}"} for i in (0, 2)]},
            "expected distinct names, found 'a' twice",
        ),
        (
            {"lines": [{"name": n, "incremental": f"[::1]:{7 + i}"} for i, n in enumerate("ab")]},
            "expected an address of its own for b.incremental, found [::1]:8, which a.snapshot has",
        ),
    ],
)
def test_wrong_settings_are_told_in_a_sentence(table: dict[str, Any], words: str) -> None:
    lines = [{"name": "A", "address": "127.0.0.1:9001"}]
    with pytest.raises(ConfigError) as caught:
        parse_feed({"name": "feed", "incremental": {"lines": lines}, "relay": table})
    assert words in str(caught.value)


def test_snapshots_go_to_the_next_port_unless_told_otherwise() -> None:
    lines = [{"name": "a", "incremental": "[::1]:7"}]
    assert parse_relay({"lines": lines}).lines[0].snapshot == "[::1]:8"
