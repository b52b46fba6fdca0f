"""A market through gateway and player, read back from the datagrams by other code."""

import itertools
from collections import Counter, defaultdict

import numpy as np
import pytest

from tests.feed.frames_out import messages
from tests.feed.list_line import ListLine
from udpfast.agents.market.market_event import BookChange, Instrument, Quote, Trade
from udpfast.agents.market.market_gateway import BOOK_TYPE, MarketGateway
from udpfast.agents.market.market_player import MarketPlayer
from udpfast.agents.market.market_simulation import SimulatedMarket
from udpfast.feed.transmitter import Transmitter
from udpfast.payload.roq.event import event_to_dict

MS = 1_000_000


class Rig:
    """A gateway on two list lines, and a player with a clock of its own."""

    def __init__(self, source, *, transmitter=None, levels_max=None, **settings):
        self.incremental, self.snapshot = ListLine(), ListLine()
        self.transmitter = Transmitter(
            [self.incremental], [self.snapshot], session_id=1, **(transmitter or {})
        )
        self.gateway = MarketGateway(self.transmitter, source.instruments, levels_max=levels_max)
        self.player = MarketPlayer(source, self.gateway, **settings)
        self.now_ns = 0

    def play(self, linger_ns=0):
        while not self.player.finished:
            self.player.do_work(self.now_ns)
            self.now_ns += MS
        stop_ns = self.now_ns + linger_ns
        while self.now_ns < stop_ns:
            self.player.do_work(self.now_ns)
            self.now_ns += MS
        return self

    def events(self, line):
        return [
            (message, event_to_dict(message.payload))
            for message in messages(line.datagrams)
            if message.payload
        ]


def apply(books, value):
    key = (value["exchange"], value["symbol"])
    if value["update_type"] == 1:
        books[key] = ({}, {})
    for side, levels in zip(books[key], (value["bids"], value["asks"]), strict=True):
        for level in levels or []:
            if level["quantity"] == 0:
                side.pop(level["price"], None)
            else:
                side[level["price"]] = level["quantity"]


def plain(books):
    return {
        ":".join(key): {
            "bids": [[price, bids[price]] for price in sorted(bids, reverse=True)],
            "asks": [[price, asks[price]] for price in sorted(asks)],
        }
        for key, (bids, asks) in books.items()
    }


@pytest.fixture(scope="module")
def rig():
    return Rig(
        SimulatedMarket(4, instruments=3, events=3000, rate_per_s=2000),
        transmitter={"snapshot_interval_ns": 100 * MS},
    ).play(linger_ns=200 * MS)


def test_gateway_incremental_stream_builds_the_books_it_says(rig):
    books = {}
    for _, event in rig.events(rig.incremental):
        if event["value_name"] == "MarketByPriceUpdate":
            apply(books, event["value"])
    assert plain(books) == rig.gateway.books()
    assert len(books) == 3


def test_gateway_publishes_one_message_per_event_and_its_announcement(rig):
    source = SimulatedMarket(4, instruments=3, events=3000, rate_per_s=2000)
    kinds = Counter(type(event) for event in source)
    found = Counter(event["value_name"] for _, event in rig.events(rig.incremental))
    assert found.pop("ExternalLatency") >= 1
    assert found == {
        "GatewayStatus": 1,
        "ReferenceData": 3,
        "MarketStatus": 3,
        "MarketByPriceUpdate": kinds[BookChange],
        "TopOfBook": kinds[Quote],
        "TradeSummary": kinds[Trade],
    }


def test_gateway_last_seqno_chains_objects_of_one_sort_and_instrument(rig):
    last, names = defaultdict(int), {}
    for message, event in rig.events(rig.incremental):
        key = (message.object_type, message.object_id)
        if message.object_type:
            assert message.last_seqno == last[key]
            last[key] = message.seqno
            name = (event["value_name"], event["value"]["symbol"])
            assert names.setdefault(key, name) == name
    assert len(names) == 3 * 5


def test_gateway_snapshots_equal_the_book_at_their_last_seqno(rig):
    incremental = rig.events(rig.incremental)
    checked = 0
    for message, event in rig.events(rig.snapshot):
        assert message.snapshot
        if message.object_type != BOOK_TYPE:
            continue
        books = {}
        for update, content in incremental:
            if update[4:6] == message[4:6] and update.seqno <= message.last_seqno:
                apply(books, content["value"])
        taken = {}
        apply(taken, event["value"])
        assert event["value"]["update_type"] == 1
        assert plain(taken) == plain(books)
        checked += 1
    assert checked > 30


def test_gateway_snapshot_round_carries_status_and_reference_data(rig):
    found = Counter(event["value_name"] for _, event in rig.events(rig.snapshot))
    assert found["ReferenceData"] == found["MarketStatus"] == 3 * found["GatewayStatus"] > 0


def test_gateway_stamps_send_times_and_keeps_exchange_times():
    source = SimulatedMarket(4, instruments=1, events=50)
    rig = Rig(source, transmitter={"utc_offset_ns": 10**18}).play()
    sent = [event["source_info"]["send_time_utc"] for _, event in rig.events(rig.incremental)]
    assert sent == sorted(sent)
    assert 10**18 <= sent[0] <= sent[-1] <= 10**18 + rig.now_ns
    times = [
        event["value"]["exchange_time_utc"]
        for _, event in rig.events(rig.incremental)
        if event["value_name"] == "TopOfBook"
    ]
    assert times == [event.exchange_ns for event in source if isinstance(event, Quote)]


def test_gateway_restart_announces_books_again_under_other_ids():
    source = SimulatedMarket(4, instruments=3, events=2000, rate_per_s=2000)
    rig = Rig(source, restart_after_ns=500 * MS).play()
    books, ids, sessions = {}, {}, []
    for message, event in rig.events(rig.incremental):
        if message.session_id not in sessions:
            sessions.append(message.session_id)
            books = {}
            assert message.seqno == 1
        if event["value_name"] == "MarketByPriceUpdate":
            apply(books, event["value"])  # KeyError: an update before its book
            ids.setdefault(message.session_id, {})[event["value"]["symbol"]] = message.object_id
    assert sessions == rig.transmitter.sessions
    assert len(sessions) == 2
    assert plain(books) == rig.gateway.books()
    assert all(ids[sessions[0]][symbol] != ids[sessions[1]][symbol] for symbol in ids[sessions[0]])


def test_gateway_book_too_dense_is_published_as_far_as_a_message_carries_it():
    market = SimulatedMarket(4, instruments=2, events=500, levels=50, rate_per_s=2000)
    rig = Rig(market, transmitter={"snapshot_interval_ns": 50 * MS}, levels_max=60)
    rig.play(linger_ns=100 * MS)
    books, taken = {}, {}
    for _, event in rig.events(rig.incremental):
        if event["value_name"] == "MarketByPriceUpdate":
            apply(books, event["value"])
    for _, event in rig.events(rig.snapshot):
        if event["value_name"] == "MarketByPriceUpdate":
            apply(taken, event["value"])
    assert plain(books) == plain(taken) == rig.gateway.books()
    for name, left in rig.gateway.left_out.items():
        book = rig.gateway.books()[name]
        assert len(book["bids"]) + len(book["asks"]) == 60
        assert left.levels_most >= 40
    assert list(rig.transmitter.events) == [
        f"simulated:{symbol}: its book has 100 levels, but a message can carry only 60: the levels "
        "furthest from the best prices were left out"
        for symbol in ("AMBER", "BASIL")
    ]


def test_gateway_refuses_what_is_no_message_and_goes_on_with_the_whole_book():
    instrument = Instrument("v", "S", 1, 0)
    line = ListLine()
    gateway = MarketGateway(Transmitter([line], session_id=1), [instrument])
    bids, asks = np.array([[9.0, 1.0]]), np.array([[10.0, 1.0]])
    gateway.publish(BookChange(0, 0, True, bids, asks, 0, 1), 0)
    lower = np.array([[8.0, 1.0]])
    gateway.publish(BookChange(1, 0, False, lower, asks[:0], 0, -1), 1)  # no such sequence
    gateway.publish(BookChange(2, 0, False, bids * np.nan, asks[:0], 0, 2), 2)
    gateway.publish(Quote(3, 0, 9.0, 1.0, 10.0, 1.0, 0, 1 << 65), 3)
    gateway.publish(Trade(4, 0, 1, 10.0, 1.0, "x" * 500, 0), 4)
    gateway.publish(BookChange(5, 0, False, lower - [1, 0], asks[:0], 0, 3), 5)
    gateway.transmitter.flush(5)
    sent = [event_to_dict(m.payload) for m in messages(line.datagrams)]
    assert [event["value_name"] for event in sent] == [
        "MarketByPriceUpdate",
        "TradeSummary",
        "MarketByPriceUpdate",
    ]
    assert not sent[1]["value"]["trades"][0]["trade_id"]
    assert sent[2]["value"]["update_type"] == 1
    assert [level["price"] for level in sent[2]["value"]["bids"]] == [9.0, 8.0, 7.0]
    assert gateway.refused == 3
    assert [event.partition(" was not sent: ")[0] for event in gateway.transmitter.events] == [
        "v:S: a BookChange",
        "v:S: a Quote",
    ]


def test_gateway_of_more_instruments_than_ids_is_refused():
    instruments = [Instrument("v", "S", 1, 0)] * 65_436
    with pytest.raises(ValueError, match=r"65435 instruments.* 65436"):
        MarketGateway(Transmitter([ListLine()], session_id=1), instruments)


def test_player_follows_the_recorded_pace_times_speed():
    source = SimulatedMarket(4, instruments=1, events=400, rate_per_s=1000)
    span_ns = [event.recv_ns for event in source][-1] - next(iter(source)).recv_ns
    rig = Rig(source, speed=4.0).play()
    assert rig.now_ns == pytest.approx(span_ns / 4, abs=2 * MS)


def test_player_rate_ignores_the_recorded_pace():
    rig = Rig(SimulatedMarket(4, instruments=1, events=401, rate_per_s=7), rate_per_s=2000).play()
    assert rig.now_ns == pytest.approx(200 * MS, abs=2 * MS)


def test_player_speed_zero_waits_for_nothing_and_ends_at_events_max():
    rig = Rig(
        SimulatedMarket(4, instruments=1, events=400, rate_per_s=1), speed=0.0, events_max=100
    ).play()
    assert rig.player.events == 100
    assert rig.now_ns == -(-100 // 16) * MS
    assert rig.player.wait_ns(rig.now_ns) == 0


def test_player_cuts_silences_short_and_says_by_how_much():
    source = SimulatedMarket(4, instruments=1, events=40, rate_per_s=10)
    events = list(source)
    silences = [b.recv_ns - a.recv_ns for a, b in itertools.pairwise(events)]
    rig = Rig(source, silence_max_ns=50 * MS).play()
    assert rig.player.market_ns == sum(min(silence, 50 * MS) for silence in silences)
    assert rig.player.market_ns + rig.player.skipped_ns == sum(silences)
    assert rig.now_ns == pytest.approx(rig.player.market_ns, abs=2 * MS)


def test_player_that_is_late_restarts_all_the_same():
    source = SimulatedMarket(4, instruments=1, events=1000, rate_per_s=10_000)
    rig = Rig(source, restart_after_ns=50 * MS, speed=1.0)
    rig.player.do_work(0)
    rig.player.do_work(100 * MS)
    assert len(rig.transmitter.sessions) == 1
    rig.player.do_work(100 * MS + 1)
    assert len(rig.transmitter.sessions) == 2


def test_player_says_how_long_to_wait():
    source = SimulatedMarket(4, instruments=1, events=2, rate_per_s=1)
    gap_ns = list(source)[1].recv_ns - next(iter(source)).recv_ns
    rig = Rig(source)
    rig.player.do_work(1000)
    assert rig.player.wait_ns(1000) == gap_ns
    assert rig.player.wait_ns(1000 + gap_ns + 1) == 0
