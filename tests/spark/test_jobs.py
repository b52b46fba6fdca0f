"""Every gold table beside the same question answered row by row in Python."""

import json
import math
import random
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from msgspec import structs

from tests.cases import nightly
from tests.iex_capture import write_iex_capture
from tests.spark.small_export import HOUR_NS, INSTRUMENTS, SmallExport
from udpfast.cli.main import cli
from udpfast.shm.histogram import LatencyHistogram
from udpfast.spark.bronze import Bronze
from udpfast.spark.gold import Gold
from udpfast.spark.jobs import JOBS, Parameters
from udpfast.spark.jobs.book import depth, in_order
from udpfast.spark.jobs.losses import PERIODS_MAX, step_of
from udpfast.spark.pipeline import run_jobs, write_run
from udpfast.spark.quantiles import slot_value
from udpfast.spark.report import page, read_report, text_tables

NS_PER_S = 1_000_000_000
SEED = 20_261_121
#: What a run says of itself, beside its jobs.
RUN: dict[str, Any] = {"sources": ["here"], "finished": "2026-11-23T00:00:00+00:00"}
RUN |= {"master": "local", "spark": "4", "parameters": {}}
#: Records of the feed itself, which carry no message.
OWN_KINDS = ("GAP", "SESSION", "RECOVERED")


@pytest.fixture(scope="module")
def export() -> SmallExport:
    """Return the rows."""
    return SmallExport(SEED)


@pytest.fixture(scope="module")
def bronze(spark, export: SmallExport, tmp_path_factory: pytest.TempPathFactory) -> Bronze:
    """Return the tables as Spark reads them."""
    root = tmp_path_factory.mktemp("export")
    export.write(root)
    return Bronze(spark, (str(root),))


def table(bronze: Bronze, name: str, parameters: Parameters | None = None) -> list[dict]:
    """Run a job, as a run does, and return its rows."""
    parameters = parameters or Parameters()
    job = JOBS[name]
    reduced = job.reduce(bronze, parameters).persist()
    rows = [row.asDict() for row in job.finish(reduced, bronze, parameters).collect()]
    reduced.unpersist()
    return rows


def by(rows: list[dict], *keys: str) -> dict:
    """Return rows by some of their columns; no two may share them."""
    found = {tuple(row[key] for key in keys): row for row in rows}
    assert len(found) == len(rows)
    return found


def epoch_s(time) -> int:
    """Return the seconds of a naive UTC time as Spark's Python shows it, of this host's zone."""
    return int(time.timestamp())


def test_losses_add_up_per_channel_and_hour(bronze: Bronze, export: SmallExport) -> None:
    expected = defaultdict(Counter)
    for row in export.rows["messages"]:
        if row["kind"] not in OWN_KINDS:
            expected[row["stream"], row["received_ns"] // HOUR_NS]["messages"] += 1
    for row in export.rows["gaps"]:
        sums = expected[row["stream"], row["received_ns"] // HOUR_NS]
        sums["gaps"] += 1
        sums["lost"] += row["lost"]
        sums[f"lost_by_gap_{row['reason'].lower()}"] += row["lost"]
    found = by(table(bronze, "losses"), "stream", "hour")
    assert len(found) == len(expected) > 1
    for (channel, hour), row in found.items():
        sums = expected[channel, epoch_s(hour) // 3600]
        for name in ("messages", "gaps", "lost", "lost_by_gap_count", "lost_by_gap_time"):
            assert row[name] == sums[name], name
        whole = sums["messages"] + sums["lost"]
        # Only those snapshots become records that an object waited for.
        assert row["loss"] == (None if channel == 1 else sums["lost"] / whole)


def test_rates_add_up_per_channel_and_period(bronze: Bronze, export: SmallExport) -> None:
    rows = table(bronze, "rates")
    (step_s,) = {row["seconds"] for row in rows}
    times = [row["received_ns"] for name in ("messages", "gaps") for row in export.rows[name]]
    span_s = (max(times) - min(times)) // NS_PER_S
    assert span_s / PERIODS_MAX <= step_s < max(2, 5 * span_s / PERIODS_MAX)
    expected = defaultdict(Counter)
    for row in export.rows["messages"]:
        if row["kind"] not in OWN_KINDS:
            expected[row["stream"], row["received_ns"] // NS_PER_S // step_s]["messages"] += 1
    for row in export.rows["gaps"]:
        expected[row["stream"], row["received_ns"] // NS_PER_S // step_s]["lost"] += row["lost"]
    found = by(rows, "stream", "time")
    assert len(found) == len(expected) > 4
    for (channel, time), row in found.items():
        sums = expected[channel, epoch_s(time) // step_s]
        assert epoch_s(time) % step_s == 0
        assert (row["messages"], row["lost"]) == (sums["messages"], sums["lost"])


@pytest.mark.parametrize(
    ("span_s", "step_s"),
    [(1, 1), (400, 1), (401, 2), (3600, 10), (86_400, 300), (30 * 86_400, 7200)],
)
def test_period_of_a_chart_suits_its_span(span_s: int, step_s: int) -> None:
    assert step_of(span_s) == step_s


def test_period_of_years_is_whole_days() -> None:
    assert step_of(3000 * 86_400) == 8 * 86_400


def test_lines_say_what_each_line_missed(bronze: Bronze, export: SmallExport) -> None:
    expected = defaultdict(Counter)
    for row in export.rows["races"]:
        for line, delay in enumerate(row["delays_ns"]):
            sums = expected[row["stream"], line, row["received_ns"] // HOUR_NS]
            sums["datagrams"] += 1
            sums["missing"] += delay is None
            sums["first"] += row["winner"] == line
    found = by(table(bronze, "lines"), "stream", "line", "hour")
    assert len(found) == len(expected)
    for (channel, line, hour), row in found.items():
        sums = expected[channel, line, epoch_s(hour) // 3600]
        assert {name: row[name] for name in sums} == dict(sums)
        assert row["brought"] + row["missing"] == row["datagrams"]


def first_of(race: dict) -> tuple[int, int | None]:
    """Return the line that was first by the stamps, and by how much."""
    came = sorted(
        (delay, line) for line, delay in enumerate(race["delays_ns"]) if delay is not None
    )
    return came[0][1], came[1][0] - came[0][0] if len(came) > 1 else None


def test_races_are_exact_to_three_digits(bronze: Bronze, export: SmallExport) -> None:
    found = by(table(bronze, "races"), "stream", "line")
    for (channel, line), row in found.items():
        raced = [race for race in export.rows["races"] if race["stream"] == channel]
        own = [race for race in raced if first_of(race)[0] == line]
        leads = sorted(lead for race in own if (lead := first_of(race)[1]) is not None)
        taken = [race for race in raced if race["winner"] == line]
        assert row["wins"] == row["stamped"] == len(own)
        assert row["messages_completed"] == sum(race["completed"] for race in own)
        assert row["only_copy"] == len(own) - len(leads)
        assert row["saved_ns"] == sum(leads)
        assert row["taken_first"] == len(taken)
        assert row["taken_alone"] == sum(race["lead_ns"] is None for race in taken)
        # The feed adds the negative ones, too: where stamps contradict its order.
        assert row["taken_ns"] == sum(race["lead_ns"] or 0 for race in taken)
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)):
            true = leads[max(int(share * len(leads) + 0.5), 1) - 1]
            assert true <= row[f"lead_{name}_ns"] <= true + abs(true) * 0.001, name
    rates = defaultdict(float)
    for (channel, _), row in found.items():
        rates[channel] += row["win_rate"]
    assert list(rates.values()) == pytest.approx([1.0] * len(rates))


def test_hops_are_the_sum_of_their_histograms(bronze: Bronze, export: SmallExport) -> None:
    found = by(table(bronze, "hops"), "hop")
    for hop in ("kernel_to_loop", "loop_to_ring"):
        merged = LatencyHistogram()
        for row in export.rows["latency"]:
            if row["hop"] == hop:
                for value, count in zip(row["values_ns"], row["counts"], strict=True):
                    for _ in range(count):
                        merged.record(value)
        row = found[(hop,)]
        assert row["count"] == merged.total
        percents = {"p50_ns": 50, "p90_ns": 90, "p99_ns": 99, "p99_9_ns": 99.9, "max_ns": 100}
        for name, percent in percents.items():
            # Slots of one nanosecond below 2048, of two up to 3000.
            assert abs(row[name] - merged.percentile(percent)) <= 1, name


def test_slot_value_is_that_of_the_histogram(spark) -> None:
    values = [0, 1, 2047, 2048, 2049, 4096, 123_456_789, 2**40 - 1, 2**40, 3_599_999_999_999]
    frame = spark.createDataFrame([(value, -value) for value in values], "up BIGINT, down BIGINT")
    found = frame.select(slot_value("up").alias("up"), slot_value("down").alias("down")).collect()
    for value, row in zip(values, found, strict=True):
        histogram = LatencyHistogram()
        histogram.record(value)
        lowest = int(LatencyHistogram.values()[histogram.counts().nonzero()[0][0]])
        assert row.up == histogram.percentile(100)
        assert row.down == -lowest


def test_hops_of_a_range_are_those_of_its_own_records(bronze: Bronze, export: SmallExport) -> None:
    times = sorted(row["published_ns"] for row in export.rows["messages"])
    start_ns, end_ns = times[len(times) // 3], times[2 * len(times) // 3]
    own = [
        row
        for row in export.rows["messages"]
        if row["kind"] not in OWN_KINDS and start_ns <= row["published_ns"] < end_ns
    ]
    between = replace(bronze, start_ns=start_ns, end_ns=end_ns)
    (row,) = table(between, "hops")
    assert (row["hop"], row["count"]) == ("kernel_to_published", len(own))
    assert {row["p50_ns"], row["max_ns"]} == {1500}


def test_instruments_have_sums_and_vwap_of_their_trades(
    bronze: Bronze, export: SmallExport
) -> None:
    found = by(table(bronze, "instruments"), "exchange", "symbol")
    assert set(found) == set(INSTRUMENTS)
    for instrument, row in found.items():
        own = export.of("trades", instrument)
        volume = sum(trade["quantity"] for trade in own)
        notional = sum(trade["quantity"] * trade["price"] for trade in own)
        assert row["trades"] == len(own)
        assert row["volume"] == volume
        assert row["notional"] == pytest.approx(notional, rel=1e-12)
        assert row["vwap"] == pytest.approx(notional / volume, rel=1e-12)
        assert (row["open"], row["close"]) == (own[0]["price"], own[-1]["price"])
        assert row["taker_buys"] == sum(trade["side"] == "Buy" for trade in own)


def test_bars_have_first_and_last_of_their_period(bronze: Bronze, export: SmallExport) -> None:
    found = by(table(bronze, "bars", Parameters(bar_s=2)), "exchange", "symbol", "time")
    expected = defaultdict(list)
    for row in export.rows["trades"]:
        key = (row["exchange"], row["symbol"], row["received_ns"] // (2 * NS_PER_S) * 2)
        expected[key].append(row)
    assert len(found) == len(expected) > 10
    for (exchange, symbol, time), row in found.items():
        own = expected[exchange, symbol, epoch_s(time)]
        prices = [trade["price"] for trade in own]
        assert (row["open"], row["high"], row["low"], row["close"]) == (
            prices[0],
            max(prices),
            min(prices),
            prices[-1],
        )
        assert row["trades"] == len(own)


def test_spreads_count_quotes_that_have_both_sides(bronze: Bronze, export: SmallExport) -> None:
    found = table(bronze, "spreads", Parameters(bar_s=86_400))
    for instrument in INSTRUMENTS:
        own = [quote for quote in export.of("tops", instrument) if quote["bid_price"] is not None]
        spreads = [quote["ask_price"] - quote["bid_price"] for quote in own]
        (row,) = (row for row in found if (row["exchange"], row["symbol"]) == instrument)
        assert row["quotes"] == len(own)
        assert row["spread_mean"] == pytest.approx(sum(spreads) / len(spreads))
        assert (row["spread_min"], row["spread_max"]) == (min(spreads), max(spreads))
        assert row["ask_price"] == own[-1]["ask_price"]


@pytest.mark.parametrize("name", ["spreads", "imbalance"])
def test_top_of_a_book_in_doubt_is_no_quote(spark, tmp_path: Path, name: str) -> None:
    export = SmallExport(SEED)
    tops = [row for row in export.rows["tops"] if row["bid_price"] is not None]
    for i, row in enumerate(tops):
        row["doubt"] = (None, False, True)[i % 3]  # earlier exports do not say it
        if row["doubt"]:
            row["bid_price"], row["bid_quantity"] = row["ask_price"] + 500, 900.0
    export.write(tmp_path)
    found = table(Bronze(spark, (str(tmp_path),)), name, Parameters(bar_s=86_400))
    assert sum(row["quotes"] for row in found) == sum(not row["doubt"] for row in tops)
    for row in found:
        if name == "spreads":
            assert row["spread_min"] > 0 and row["bid_quantity_mean"] == 3
        else:
            assert row["imbalance_max"] == row["imbalance_min"] == (3 - 5) / (3 + 5)


def book_of(export: SmallExport, instrument: tuple[str, str], at_ns: float) -> dict:
    """Return a book as a reader would have it: side and price -> quantity.

    With a level that it refuses it is not what updates build on, until its next snapshot.
    """
    levels: dict = {}
    missing = False
    rows = defaultdict(list)
    for level in export.of("levels", instrument):
        rows[level["position"]].append(level)
    for message in export.of("messages", instrument):
        if message["kind"] == "BOOK" and message["received_ns"] <= at_ns:
            if message["snapshot"]:
                levels.clear()
                missing = False
            if missing:
                continue
            for level in rows[message["position"]]:
                if level["price"] is None or level["quantity"] is None:
                    missing = True
                else:
                    levels[level["side"], level["price"]] = level["quantity"]
    return {key: quantity for key, quantity in levels.items() if quantity != 0}


@pytest.mark.parametrize("events", [50, *nightly(None, 200)])
def test_book_is_that_of_a_reader(bronze: Bronze, export: SmallExport, events: int | None) -> None:
    at_ns = None
    if events is not None:  # the very time of a change, which counts
        after = export.rows["messages"][events]["received_ns"]
        at_ns = min(each for row in export.rows["levels"] if (each := row["received_ns"]) >= after)
    found = defaultdict(list)
    for row in table(bronze, "book", Parameters(at_ns=at_ns)):
        found[row["exchange"], row["symbol"]].append(row)
    for instrument in INSTRUMENTS:
        expected = book_of(export, instrument, at_ns or math.inf)
        rows = found[instrument]
        assert {(row["side"], row["price"]): row["quantity"] for row in rows} == expected
        for side, sign in (("Bid", -1), ("Ask", 1)):
            own = sorted(
                (row for row in rows if row["side"] == side), key=lambda row: sign * row["price"]
            )
            assert [row["level"] for row in own] == list(range(len(own)))
            sums = [sum(row["quantity"] for row in own[: end + 1]) for end in range(len(own))]
            assert [row["cumulative"] for row in own] == sums
    if events is None:  # an emptied book has no rows
        assert not found[INSTRUMENTS[2]]


def test_two_objects_of_one_name_have_a_book_each(spark, tmp_path: Path) -> None:
    export = SmallExport(SEED, events=40)
    first = dict(export.rows["levels"][0], object=7)
    for name in ("levels", "messages"):
        for row in export.rows[name]:
            if row.get("symbol") == first["symbol"]:
                row["object"] = 7
    other = first | {"object": 8, "price": 1.5, "quantity": 2.5, "position": 1 << 30}
    export.rows["levels"].append(other | {"side": "Bid", "snapshot": True})
    export.rows["messages"].append(
        {**export.rows["messages"][-1], "kind": "BOOK", "snapshot": True, "rows": 1}
        | {name: other[name] for name in ("object", "exchange", "symbol", "position")}
    )
    export.write(tmp_path)
    bronze = Bronze(spark, (str(tmp_path),), found={})  # as a run finds them: once
    rows = [
        row
        for row in table(bronze, "book")
        if (row["exchange"], row["symbol"]) == (first["exchange"], first["symbol"])
    ]
    alone = [row for row in rows if row["object"] == 8]
    assert [(row["level"], row["price"], row["quantity"]) for row in alone] == [(0, 1.5, 2.5)]
    own = {(row["side"], row["price"]): row["quantity"] for row in rows if row["object"] == 7}
    export.rows["levels"].pop()
    export.rows["messages"].pop()
    assert own == book_of(export, (first["exchange"], first["symbol"]), math.inf) != {}
    depth = {
        row["object"]: row for row in table(bronze, "depth") if row["symbol"] == first["symbol"]
    }
    assert (depth[8]["bid_levels"], depth[8]["ask_levels"]) == (1, 0)
    assert all(depth[number]["stale"] for number in (7, 8))  # which is it?


def test_depth_is_what_stands_near_the_mid(bronze: Bronze, export: SmallExport) -> None:
    found = by(table(bronze, "depth"), "exchange", "symbol")
    instrument = INSTRUMENTS[0]
    book = book_of(export, instrument, math.inf)
    bids = {price: quantity for (side, price), quantity in book.items() if side == "Bid"}
    asks = {price: quantity for (side, price), quantity in book.items() if side == "Ask"}
    row = found[instrument]
    assert (row["bid_price"], row["bid_quantity"]) == (max(bids), bids[max(bids)])
    assert (row["ask_price"], row["ask_quantity"]) == (min(asks), asks[min(asks)])
    assert (row["bid_levels"], row["ask_levels"]) == (len(bids), len(asks))
    mid = (max(bids) + min(asks)) / 2
    near = sum(q for price, q in asks.items() if abs(price - mid) / mid * 1e4 <= 50)
    assert row["ask_within_50_bps"] == near


def test_depth_and_distances_are_in_basis_points_of_the_mid() -> None:
    bids = {9_999.0: 1.0, 9_996.0: 2.0, 9_990.0: 4.0, 9_900.0: 8.0}
    asks = {10_001.0: 16.0, 10_006.0: 32.0, 10_050.0: 64.0, 10_051.0: 128.0}
    own = {"feed": "f", "exchange": "cme", "symbol": "ES", "object": 1, "ungated": False}
    own |= {"stream": 0, "at": 1, "received_ns": 1, "stale": False}
    rows = [
        own | {"side": side, "price": price, "quantity": quantity}
        for side, levels in (("Bid", bids), ("Ask", asks))
        for price, quantity in levels.items()
    ]
    row = depth(pa.Table.from_pylist(rows)).to_pylist()[0]
    assert [row[f"bid_within_{bps}_bps"] for bps in (1, 5, 10, 50)] == [1, 3, 7, 7]
    assert [row[f"ask_within_{bps}_bps"] for bps in (1, 5, 10, 50)] == [16, 16, 48, 112]
    found = in_order(pa.Table.from_pylist(rows[::-1])).to_pylist()
    away = [row["distance_bps"] for row in found]
    assert away == pytest.approx([1, 4, 10, 100, 1, 6, 50, 51])
    assert [row["cumulative"] for row in found] == [1, 3, 7, 15, 16, 48, 112, 240]


def test_leadlag_finds_who_moves_first(spark, tmp_path: Path) -> None:
    export = SmallExport(SEED, events=0)
    export.rows.clear()
    leader, follower = INSTRUMENTS[:2]
    mids = [100.0 + (7919 * step * step % 13) / 4 for step in range(200)]
    for step, mid in enumerate(mids):
        # The follower repeats, three buckets of 100 ms later, what the leader did.
        for instrument, late in ((leader, 0), (follower, 3)):
            export.rows["tops"].append(
                {
                    "feed": "deribit",
                    "exchange": instrument[0],
                    "symbol": instrument[1],
                    "position": 1000 * step + late,
                    "received_ns": (step + late) * 100_000_000 + 5,
                    "stream": 0,
                    "bid_price": mid - 0.5,
                    "ask_price": mid + 0.5,
                }
            )
    export.write(tmp_path)
    rows = table(Bronze(spark, (str(tmp_path),)), "leadlag", Parameters(bucket_ms=100, lags=5))
    best = max(rows, key=lambda row: row["correlation"])
    assert (best["a"], best["b"]) == (":".join(leader), ":".join(follower))
    assert best["lag_ms"] == 300
    assert best["correlation"] == pytest.approx(1.0)


def odd_export(seed: int) -> SmallExport:
    """Return an export whose prices and sizes are whatever a double can hold."""
    chance = random.Random(seed)
    export = SmallExport(seed, events=120)
    odd = (0.0, -0.0, -1.5, 1e308, -1e308, 5e-324, math.inf, -math.inf, None)
    for name in ("trades", "tops", "levels"):
        for row in export.rows[name]:
            for column in ("price", "quantity", "bid_price", "ask_price", "bid_quantity"):
                if column in row and chance.random() < 0.3:
                    row[column] = chance.choice(odd)
    names = ((None, "A"), ("", "a,b"), ("x", 'q"u\no/te'), ("x", "\ufffd"))
    for instrument, other in zip(INSTRUMENTS, chance.sample(names, 3), strict=True):
        for rows in export.rows.values():
            for row in rows:
                if (row.get("exchange"), row.get("symbol")) == instrument:
                    row["exchange"], row["symbol"] = other
    calendar = {"exchange": "cme", "symbol": "CLZ6-CLF7", "object": 9}
    export.rows["tops"].append(
        export.rows["tops"][-1] | calendar | {"bid_price": -0.5, "ask_price": 0.5}
    )
    return export


@pytest.mark.nightly  # six jobs, seconds each
@pytest.mark.parametrize("seed", [1, 2])
def test_no_price_or_name_stops_the_report(spark, tmp_path: Path, seed: int) -> None:
    odd_export(seed).write(tmp_path / "export")
    bronze = Bronze(spark, (str(tmp_path / "export"),))
    names = ("instruments", "bars", "spreads", "depth", "book", "leadlag")
    ran = list(run_jobs(bronze, str(tmp_path), [JOBS[name] for name in names], Parameters()))
    assert [(one.name, one.failure) for one in ran] == [(name, "") for name in names]
    write_run(str(tmp_path), ran, RUN)
    gold = Gold(str(tmp_path))
    json.dumps(read_report(gold), allow_nan=False)
    assert "<h2 id=" in page(gold)
    spreads = gold.table("spreads", 999).to_pylist()
    (calendar,) = (row for row in spreads if row["symbol"] == "CLZ6-CLF7")
    assert (calendar["spread_mean"], calendar["spread_bps_mean"]) == (1.0, None)
    shown = ("vwap", "spread_bps_mean", "distance_bps", "correlation", "bid_within_10_bps")
    for name in names:
        for row in gold.table(name, 9999).to_pylist():
            for column in shown:
                value = row.get(column)
                assert value is None or math.isfinite(value), (name, column)
                assert column != "distance_bps" or value is None or value >= 0


def test_failing_job_costs_its_own_table_alone(spark, bronze: Bronze, tmp_path: Path) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no such luck\nat line 7")

    jobs = [JOBS["instruments"], structs.replace(JOBS["bars"], finish=fail), JOBS["lines"]]
    ran = list(run_jobs(bronze, str(tmp_path), jobs, Parameters()))
    assert [one.failure for one in ran] == ["", "ValueError: no such luck", ""]
    assert ran[0].rows > 0 == ran[1].rows < ran[2].rows
    write_run(str(tmp_path), ran, RUN)
    gold = Gold(str(tmp_path))
    assert "This job failed: ValueError: no such luck" in page(gold)
    assert "  failed: ValueError: no such luck" in list(text_tables(read_report(gold)))


def test_every_loss_that_a_record_tells_of_is_in_the_sum(spark, tmp_path: Path) -> None:
    export = SmallExport(SEED, events=20)
    export.rows.pop("gaps", None)
    reasons = {"COUNT": 1, "ANEW": 100, "DAMAGED": 7, "77": 3}
    first = export.rows["messages"][0]
    losses: list[tuple[str, dict]] = []
    for reason, lost in reasons.items():
        losses.append(("gaps", {"lost": lost, "reason": reason, "waited_ns": 0, "stream": 0}))
    losses.append(("events", {"kind": "SESSION", "unseen": 1000, "discarded": 9, "stream": 0}))
    for reason, missed, stream in (("DISK", 5000, 0), ("DAMAGE", 2, 65_535)):
        lapped = {"kind": "LAPPED", "reason": reason, "missed": missed, "stream": stream}
        losses.append(("events", lapped))
    for name, row in losses:
        export.rows[name].append(first | row)
    export.write(tmp_path)
    rows = table(Bronze(spark, (str(tmp_path),)), "losses")
    lost = {key.removeprefix("lost_by_"): sum(row[key] for row in rows)
            for key in rows[0] if key.startswith("lost_by_")}  # fmt: skip
    assert {key: value for key, value in lost.items() if value} == {
        "gap_count": 1,
        "gap_anew": 100,
        "gap_damaged": 7,
        "gap_other": 3,
        "session_unseen": 1000,
        "session_discarded": 9,
        "lapped_disk": 5000,
        "lapped_damage": 2,
    }
    assert sum(row["lost"] for row in rows) == sum(lost.values())
    of_none = by(rows, "stream", "hour")
    assert {row["lost"] for (stream, _), row in of_none.items() if stream == 65_535} == {5002}


def test_copy_that_came_after_its_gap_is_late(spark, tmp_path: Path) -> None:
    export = SmallExport(SEED, events=0)
    export.rows.clear()
    race = {"feed": "x", "stream": 0, "received_ns": 5, "completed": True, "stamped": True}
    alone = race | {"winner": 1, "lead_ns": None, "delays_ns": [None, 0]}
    for number in (7, 8, 9, 2**32 - 1):
        export.rows["races"].append(alone | {"position": number, "number": number})
    both = race | {"winner": 0, "lead_ns": -5, "delays_ns": [0, -5], "number": 8}
    export.rows["races"].append(both | {"position": 99})
    for first, last in ((8, 8), (2**32 - 1, 2**32 + 1)):
        lost = {"first_number": first, "last_number": last, "lost": last - first + 1}
        export.rows["gaps"].append(race | lost | {"position": first})
    export.write(tmp_path)
    found = by(table(Bronze(spark, (str(tmp_path),)), "races"), "line")
    assert (found[1,]["wins"], found[1,]["only_copy"], found[1,]["late"]) == (5, 2, 2)
    assert (found[1,]["saved_ns"], found[0,]["wins"], found[0,]["taken_first"]) == (5, 0, 1)


@pytest.mark.nightly  # all jobs: ten seconds
def test_every_job_runs_on_an_empty_export(spark, tmp_path: Path) -> None:
    for name in JOBS:
        assert table(Bronze(spark, (str(tmp_path / "nothing"),)), name) == [], name


def test_range_of_time_cuts_every_table(bronze: Bronze, export: SmallExport) -> None:
    middle_ns = export.rows["trades"][30]["published_ns"]
    early, late = replace(bronze, end_ns=middle_ns), replace(bronze, start_ns=middle_ns)
    counts = [
        sum(row["trades"] for row in table(each, "instruments")) for each in (early, late, bronze)
    ]
    assert counts[0] > 0 < counts[1]
    assert counts[0] + counts[1] == counts[2] == len(export.rows["trades"])


def test_exports_side_by_side_are_one(bronze: Bronze) -> None:
    twice = replace(bronze, roots=bronze.roots * 2)
    once = by(table(bronze, "instruments"), "exchange", "symbol")
    for key, row in by(table(twice, "instruments"), "exchange", "symbol").items():
        assert row["trades"] == 2 * once[key]["trades"]


def test_jobs_know_the_streams_and_sessions_of_any_venue(spark, tmp_path: Path) -> None:
    journal = tmp_path / "iex"
    capture = write_iex_capture(tmp_path / "iex.pcap")
    arguments = ["replay", str(capture), "--payload", "iex_deep", "--to", f"journal:{journal}"]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert CliRunner().invoke(cli, ["export", str(journal), str(tmp_path / "e")]).exit_code == 0
    bronze = Bronze(spark, (str(tmp_path / "e"),))
    assert {row["symbol"]: row["trades"] for row in table(bronze, "instruments")} == {
        "AA": 3,
        "BB": 1,
    }
    # What the loop says of itself is of no stream.
    assert [(row["stream"], row["messages"]) for row in table(bronze, "losses")] == [(2, 12)]
    # Nothing of the session before stands.
    levels = [(row["symbol"], row["side"], row["price"]) for row in table(bronze, "book")]
    assert levels == [("AA", "Bid", 50.0003), ("AA", "Bid", 50.0001)]
