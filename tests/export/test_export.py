"""Journals to Parquet: rows equal the records, and each segment is exported once."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tests.export.market import (
    BEGIN_NS,
    RECORDS,
    ROUNDS,
    SEGMENT_BYTES,
    SESSION_ID,
    STEP_NS,
    Market,
    append_and_die,
    drive,
    fill,
    make_journal,
    record,
)
from udpfast.cli.main import cli
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind, RecordFlag
from udpfast.errors import FormatError, WriterExistsError
from udpfast.export.exporter import Exporter
from udpfast.export.manifest import read_entries, settle_entries
from udpfast.export.parquet import PartitionFile
from udpfast.export.scan import Scan
from udpfast.export.schema import TABLES, arrow_schema
from udpfast.export.segments import journal_begin, journal_head, journal_parts
from udpfast.log.journal import Journal
from udpfast.log.segment import list_segments, segment_path
from udpfast.market.updates import LAYOUTS


def table_of(root: Path, name: str) -> pa.Table:
    """Return a table of an export, in the order of the journal."""
    schema = arrow_schema(name, partitions=True)
    place = root / name
    found = ds.dataset(place, schema, format="parquet", partitioning="hive").to_table()
    return found.sort_by(
        [("position", "ascending"), *[("row", "ascending")] * ("row" in found.column_names)]
    )


def rows_of(root: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows of a table of an export."""
    found: list[dict[str, Any]] = table_of(root, name).to_pylist()
    return found


@pytest.mark.parametrize("name", ["messages", "trades", "gaps"])
def test_table_is_read_by_the_lines_of_the_page(root: Path, name: str) -> None:
    expected = len(table_of(root, name))
    place = str(root / name)
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    assert len(pandas.read_parquet(place)) == expected
    assert polars.scan_parquet(f"{place}/").collect().height == expected
    outside = [path for path in (root / name).rglob("*") if path.is_file()]
    assert {path.suffix for path in outside} == {".parquet"}


def test_table_without_rows_is_there(root: Path) -> None:
    for name in TABLES:
        assert (root / name).is_dir(), name
    assert not list((root / "races").iterdir())  # nothing was captured raw
    assert table_of(root, "races").num_rows == 0


def files_of(root: Path) -> dict[str, str]:
    """Return the SHA-256 of every visible file, by path."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("[!.]*.parquet")
        if "_manifest" not in path.parts
    }


def test_messages_are_the_records_in_their_order(journal: Path, root: Path) -> None:
    rows = rows_of(root, "messages")
    assert len(list_segments(journal)) > 3
    with Reader(f"journal:{journal}") as reader:
        batch = reader.poll()
        at = 0
        while len(batch):
            for i, header in enumerate(batch.headers):
                row = rows[at + i]
                for name in (
                    "position",
                    "index",
                    "received_ns",
                    "published_ns",
                    "number",
                    "line",
                    "flags",
                    "object",
                    "stream",
                ):
                    assert row[name] == header[name], name
                assert row["kind"] == Kind(header["kind"]).name
                assert row["snapshot"] == bool(header["flags"] & RecordFlag.SNAPSHOT)
                assert row["payload"] == bytes(batch.payload(i))
                assert row["size"] == len(row["payload"])
            at += len(batch)
            if at == RECORDS:
                break
            batch = reader.poll()
    assert len(rows) == at
    assert {row["feed"] for row in rows} == {"feed"}
    assert {row["session"] for row in rows} == {"s1"}


def test_dates_are_those_of_publication(root: Path) -> None:
    days = {}
    for row in rows_of(root, "messages"):
        days.setdefault(row["date"].isoformat(), []).append(row["published_ns"])
    midnight = 1_795_219_200 * 10**9
    assert list(days) == ["2026-11-20", "2026-11-21"]
    assert max(days["2026-11-20"]) < midnight <= min(days["2026-11-21"])


def test_times_are_microseconds_rounded_down(root: Path) -> None:
    micros = table_of(root, "messages").column("received_at").cast(pa.int64()).to_pylist()
    assert micros[0] == (BEGIN_NS + STEP_NS + 1_234) // 1000


def test_levels_are_the_rows_of_books(root: Path) -> None:
    rows = rows_of(root, "levels")
    assert len(rows) == 2 * sum(each % 4 + 1 for each in range(ROUNDS))
    fourth = [row for row in rows if row["index"] == 3 * 18 + 1]
    assert [row["side"] for row in fourth] == ["Bid", "Ask", "Ask", "Ask"]
    assert [row["row"] for row in fourth] == [0, 1, 2, 3]
    assert [row["price"] for row in fourth] == [100.5, 99.5, 98.5, 97.5]
    assert {(row["symbol"], row["exchange"]) for row in fourth} == {("SYM3", "binance-usdm")}
    assert fourth[0]["update_action"] == "New" and fourth[3]["number_of_orders"] == 3
    snapshots = [row for row in rows if row["stream"] == 1]
    assert len(snapshots) == len(rows) / 2 and all(row["snapshot"] for row in snapshots)


def test_absent_numbers_and_texts_are_null(root: Path) -> None:
    top = rows_of(root, "tops")[1]
    assert (top["bid_price"], top["ask_price"], top["ask_quantity"]) == (1.5, None, None)
    trades = rows_of(root, "trades")[:3]
    assert [trade["trade_id"] for trade in trades] == [None, "T1", "T2T2"]
    assert [trade["side"] for trade in trades] == ["Buy", "Sell", "Buy"]
    assert {trade["taker_order_id"] for trade in trades} == {None}
    message = next(row for row in rows_of(root, "messages") if row["kind"] == "GAP")
    assert {message[name] for name in ("symbol", "exchange_time_ns", "update_type", "rows")} == {
        None
    }


def test_numbers_beyond_63_bits_keep_their_bits(root: Path) -> None:
    books = [row for row in rows_of(root, "messages") if row["kind"] == "TRADES"]
    assert [row["exchange_sequence"] for row in books[:3]] == [-1, -2, -3]


def test_texts_are_utf_8_whatever_came(root: Path) -> None:
    assert rows_of(root, "orders")[0]["order_id"] == "Zürich"
    assert rows_of(root, "instruments")[0]["description"] == "bitcoin\N{REPLACEMENT CHARACTER}"


def test_reference_statistics_and_status_have_their_fields(root: Path) -> None:
    reference = rows_of(root, "instruments")
    assert [len(row["tick_size_steps"]) for row in reference[:4]] == [0, 1, 2, 0]
    assert reference[2]["tick_size_steps"][1] == {"min_price": 0.0, "tick_size": 0.5}
    assert (reference[0]["discard"], reference[0]["multiplier"]) == (True, None)
    statistic = rows_of(root, "statistics")[0]
    assert (statistic["value"], statistic["end_time_s"]) == (5.5, 77)
    assert len({row["trading_status"] for row in rows_of(root, "status")}) == 1


def test_gaps_and_events_have_the_fields_of_their_kind(root: Path) -> None:
    gap = rows_of(root, "gaps")[5]
    assert (gap["first_number"], gap["last_number"], gap["lost"]) == (5, 7, 3)
    assert (gap["reason"], gap["waited_ns"]) == ("TIME", 10**6)
    events = {row["kind"]: row for row in rows_of(root, "events")[7:14]}
    assert events["SESSION"]["reason"] == "FIRST" and events["SESSION"]["new_session"] == SESSION_ID
    assert events["STALE"]["status"] == "STALE" and events["RECOVERED"]["status"] == "LIVE"
    assert events["STALE"]["symbol"] == "BTCUSDT" and events["STALE"]["applied"] == 1
    assert events["STALE"]["waits"] == "SNAPSHOT_SILENT" and events["RECOVERED"]["waits"] == "NONE"
    assert (events["CONNECTION"]["status"], events["CONNECTION"]["scope"]) == (
        "DISCONNECTED",
        "LINE",
    )
    assert (events["SESSION"]["scope"], events["SESSION"]["unseen"]) == (None, 3) and events[
        "CONNECTION"
    ]["waits"] is None
    assert (events["DISAGREEMENT"]["line_first"], events["DISAGREEMENT"]["line_other"]) == (1, 0)
    assert events["RESTART"]["epoch"] == 2 and events["RESTART"]["status"] is None
    assert (events["LAPPED"]["reason"], events["LAPPED"]["missed"]) == ("DISK", 1)


def test_latency_counts_every_update_with_a_stamp(root: Path) -> None:
    schema = arrow_schema("latency", partitions=True)
    rows = ds.dataset(root / "latency", schema, partitioning="hive").to_table().to_pylist()
    totals: dict[str, int] = {}
    for row in rows:
        assert row["count"] == sum(row["counts"]) and len(row["slots"]) == len(row["counts"])
        assert row["minute_ns"] % (60 * 10**9) == 0
        totals[row["hop"]] = totals.get(row["hop"], 0) + row["count"]
    stamped = 3 * ROUNDS  # book, top, trades; the snapshot has none
    assert totals["origin_to_kernel"] == totals["exchange_to_kernel"] == stamped
    assert totals["kernel_to_published"] == 10 * ROUNDS
    published = [row for row in rows if row["hop"] == "kernel_to_published"]
    error = [abs(value - (5_678 - 1_234)) for row in published for value in row["values_ns"]]
    assert max(error) < 5  # three digits


def test_files_are_sorted_small_and_described(root: Path) -> None:
    entries = read_entries(root)
    assert sum(entry.records for entry in entries) == RECORDS
    for entry in entries:
        for file in entry.files:
            content = (root / file.path).read_bytes()
            assert hashlib.sha256(content).hexdigest() == file.sha256
            table = pq.read_table(root / file.path, partitioning=None)
            assert (table.num_rows, len(content)) == (file.rows, file.size_bytes)
            if file.first_position is not None:
                positions = table.column("position").to_pylist()
                assert positions == sorted(positions)
                assert (positions[0], positions[-1]) == (file.first_position, file.last_position)
    column = pq.ParquetFile(root / entries[0].files[0].path).metadata.row_group(0).column(1)
    assert column.compression == "ZSTD" and "DELTA_BINARY_PACKED" in column.encodings


def test_second_export_changes_nothing(journal: Path, root: Path) -> None:
    before = {path: (root / path).stat().st_mtime_ns for path in files_of(root)}
    assert not any(exported.written for exported in Exporter(journal, root, payloads=True).run())
    assert before == {path: (root / path).stat().st_mtime_ns for path in files_of(root)}


def test_export_elsewhere_has_the_same_bytes(journal: Path, root: Path, tmp_path: Path) -> None:
    list(Exporter(journal, tmp_path, payloads=True, threads=3).run())
    assert files_of(tmp_path) == files_of(root)


def test_lost_file_is_written_again(journal: Path, tmp_path: Path) -> None:
    list(Exporter(journal, tmp_path).run())
    before = files_of(tmp_path)
    (tmp_path / min(before)).unlink()
    assert [exported.written for exported in Exporter(journal, tmp_path).run()].count(True) == 1
    assert files_of(tmp_path) == before


def test_tables_that_are_not_asked_for_are_left_as_they_are(journal: Path, tmp_path: Path) -> None:
    list(Exporter(journal, tmp_path).run())
    before, entries = files_of(tmp_path), read_entries(tmp_path)
    assert not any(each.written for each in Exporter(journal, tmp_path, tables=("gaps",)).run())
    assert (files_of(tmp_path), read_entries(tmp_path)) == (before, entries)


def test_tables_asked_for_later_are_added(journal: Path, root: Path, tmp_path: Path) -> None:
    kept = {path.partition("/")[0] for path in files_of(root)}
    for tables in (("tops", "gaps"), ("gaps",), ("trades",), tuple(TABLES)):
        list(Exporter(journal, tmp_path, tables=tables).run())
        found = {path.partition("/")[0] for path in files_of(tmp_path)}
        assert found >= set(tables) & kept
    list(Exporter(journal, tmp_path, tables=("messages",), payloads=True).run())
    assert files_of(tmp_path) == files_of(root)
    assert {entry.name: set(entry.files) for entry in read_entries(tmp_path)} == {
        entry.name: set(entry.files) for entry in read_entries(root)
    }
    list(Exporter(journal, tmp_path, tables=("messages",)).run())  # payloads stay as well
    assert files_of(tmp_path) == files_of(root)


class KilledError(Exception):
    """Raised where a test ends an exporter."""


@pytest.mark.parametrize("step", (0, 3, 7, 12, 25))
def test_exporter_killed_anywhere_shows_each_part_once(
    journal: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    steps = 0
    rename = Path.replace

    def replace(path: Path, target: Path) -> Path:
        nonlocal steps
        steps += 1
        if steps > step:
            raise KilledError
        return rename(path, target)

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(Path, "replace", replace)
        list(Exporter(journal, tmp_path, payloads=True).run())
    assert files_of(tmp_path).items() <= files_of(root).items()
    list(Exporter(journal, tmp_path, payloads=True).run())
    assert files_of(tmp_path) == files_of(root)
    assert not list(tmp_path.rglob("*.new")) and not list(tmp_path.rglob(".writing"))


@pytest.mark.parametrize("step", (1, 2, 3, 4, 9, 14))
def test_exporter_interrupted_once_shows_all_that_it_says(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    steps = 0
    rename = Path.replace

    def replace(path: Path, target: Path) -> Path:
        nonlocal steps
        steps += 1
        if steps == step:
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", replace)
        list(Exporter(journal, tmp_path, payloads=True).run())
    for feed in (tmp_path / "_manifest").glob("*/"):  # as the next export does, of what is left
        settle_entries(tmp_path, feed.name)
    entries = read_entries(tmp_path)
    assert [entry.lacks(tmp_path) for entry in entries] == [set() for _ in entries]
    assert len(files_of(tmp_path)) == sum(len(entry.files) for entry in entries)


def test_what_a_killed_recorder_left_and_what_comes_behind_are_two_parts(tmp_path: Path) -> None:
    journal, root = tmp_path / "journal", tmp_path / "root"
    seen: dict[str, str] = {}
    for first in (0, 90, 200, 900):
        append_and_die(journal, first, 100)
        list(Exporter(journal, root, tables=("messages",)).run())
        files = files_of(root)
        assert seen.items() <= files.items()  # files that were visible do not change
        seen = files
        indices = table_of(root, "messages")["index"].to_pylist()
        assert indices == list(range(len(indices)))
    assert len(indices) == 400 and len(seen) > len(list_segments(journal))
    assert sum(entry.records for entry in read_entries(root)) == 400


def test_journal_damaged_behind_its_export_goes_on_behind_what_was_exported(tmp_path: Path) -> None:
    journal, root = tmp_path / "journal", tmp_path / "root"
    append_and_die(journal, 0, 100)
    list(Exporter(journal, root, tables=("messages",)).run())
    (path,) = [segment_path(journal, number) for number in list_segments(journal)]
    content = bytearray(path.read_bytes())
    content[len(content.rstrip(b"\0")) - 100] ^= 1  # the power failed before these were written
    path.write_bytes(content)
    append_and_die(journal, 7_000, 100)
    list(Exporter(journal, root, tables=("messages",)).run())
    assert len(rows_of(root, "messages")) == journal_head(journal).index == 200


def test_journal_begun_anew_is_another_one(tmp_path: Path) -> None:
    journal, root = tmp_path / "journal", tmp_path / "root"
    append_and_die(journal, 0, 50)
    exporter = Exporter(journal, root, tables=("messages",))
    list(exporter.run())
    shutil.rmtree(journal)
    append_and_die(journal, 0, 80)
    with pytest.raises(FormatError, match="found another one"):
        list(exporter.run())
    with pytest.raises(FormatError, match="found one of another journal"):
        list(Exporter(journal, root, tables=("messages",)).run())
    assert table_of(root, "messages").num_rows == 50
    list(Exporter(journal, root, tables=("messages",), feed="anew").run())
    assert table_of(root, "messages").num_rows == 130


def test_other_journal_of_the_name_is_refused_until_it_is_replaced(
    journal: Path, tmp_path: Path
) -> None:
    other = make_journal(tmp_path, 5)
    list(Exporter(other, tmp_path / "root").run())
    with pytest.raises(FormatError, match="found one of another journal"):
        list(Exporter(journal, tmp_path / "root").run())
    list(Exporter(journal, tmp_path / "root", replace=True).run())
    assert len(rows_of(tmp_path / "root", "messages")) == RECORDS
    list(Exporter(other, tmp_path / "root", replace=True).run())  # nothing of the longer one stays
    assert len(rows_of(tmp_path / "root", "messages")) == 18 * 5


def test_export_of_some_records_has_those_and_the_doubts_of_their_time(
    journal: Path, tmp_path: Path
) -> None:
    begin_ns, end_ns = BEGIN_NS + 700 * STEP_NS, BEGIN_NS + 1_900 * STEP_NS
    words = ["--symbol", "SYM3", "--from", str(begin_ns), "--until", str(end_ns)]

    def call(*more: str) -> Any:
        return CliRunner().invoke(cli, ["export", str(journal), str(tmp_path), *words, *more])

    assert call().exit_code == 0
    with Reader(f"journal:{journal}", symbols="SYM3", start=begin_ns, end=end_ns) as reader:
        expected = [record.position for record in reader]
    assert table_of(tmp_path, "messages").column("position").to_pylist() == expected
    assert set(table_of(tmp_path, "levels").column("symbol").to_pylist()) == {"SYM3"}
    assert not (tmp_path / "latency").exists()
    assert "latency is made from all records" in str(call("--table", "latency").exception)
    words.clear()
    assert "expected an export of all records" in str(call().exception)
    assert call("--replace").exit_code == 0
    assert table_of(tmp_path, "messages").num_rows == RECORDS


#: Between the first two records.
EARLY_NS = BEGIN_NS + 2 * STEP_NS


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--symbol", "SYM33"], "symbol not published so far: 'SYM33'"),
        (["--from", "2099-01-01T00:00Z"], "it has nothing from"),
        (["--from", str(EARLY_NS), "--until", str(EARLY_NS + 1)], "has no such rows from"),
        (["--symbol", "SYM3", "--until", str(EARLY_NS)], "has no such rows of 'SYM3' until"),
    ],
)
def test_choice_of_nothing_ends_with_1_and_binds_no_directory(
    journal: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    found = CliRunner().invoke(cli, ["export", str(journal), str(tmp_path), *words])
    assert found.exit_code == 1
    assert said in found.output + str(found.exception)
    assert "books begin" not in found.output
    assert CliRunner().invoke(cli, ["export", str(journal), str(tmp_path)]).exit_code == 0
    assert table_of(tmp_path, "messages").num_rows == RECORDS


def test_two_feeds_share_one_place(journal: Path, tmp_path: Path) -> None:
    list(Exporter(journal, tmp_path, feed="a", tables=("gaps",)).run())
    list(Exporter(journal, tmp_path, feed="b", tables=("gaps",)).run())
    feeds = table_of(tmp_path, "gaps").column("feed").to_pylist()
    assert (feeds.count("a"), feeds.count("b")) == (ROUNDS, ROUNDS)


def test_second_exporter_of_a_feed_is_refused(journal: Path, tmp_path: Path) -> None:
    first = Exporter(journal, tmp_path, tables=("gaps",)).run()
    next(first)  # holds the lock until it goes on
    with pytest.raises(WriterExistsError, match="another process exports 'feed'"):
        next(Exporter(journal, tmp_path, tables=("gaps",)).run())
    first.close()


def test_open_segment_waits_for_its_end(tmp_path: Path) -> None:
    market = Market(tmp_path / "feed", 1 << 22)
    fill(market, 150)
    recorder = record(market, tmp_path / "journal", close=False)
    exporter = Exporter(tmp_path / "journal", tmp_path / "root", tables=("messages",))
    first = [exported.entry.segment for exported in exporter.run()]
    assert first == [1, 2, 3][: len(first)] and len(first) >= 1
    assert exporter.unfinished == 1
    command = ["export", str(tmp_path / "journal"), str(tmp_path / "root"), "--table", "messages"]
    assert "still being written" in CliRunner().invoke(cli, command).stderr
    fill(market, 150)
    drive(recorder)
    second = [exported.entry.segment for exported in exporter.run()]
    recorder.on_stop()
    third = [exported.entry.segment for exported in exporter.run()]
    assert first + second + third == list_segments(tmp_path / "journal")
    assert len(rows_of(tmp_path / "root", "messages")) == 18 * 300
    market.close()


@pytest.mark.parametrize("at_the_end", [False, True])
def test_damage_is_counted_and_the_rest_exported(
    journal: Path, tmp_path: Path, at_the_end: bool
) -> None:
    for path in journal.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    damaged = list_segments(journal)[-1 if at_the_end else 1]
    path = segment_path(tmp_path, damaged)
    content = bytearray(path.read_bytes())
    # In the last record but for its padding and END; or in the middle.
    content[len(content.rstrip(b"\0")) - 32 if at_the_end else SEGMENT_BYTES // 2] ^= 1
    path.write_bytes(content)
    tmp_path.chmod(0o700)
    entries = [exported.entry for exported in Exporter(tmp_path, tmp_path / "root").run()]
    missing = {entry.segment: entry.missing for entry in entries}
    assert missing[damaged] > 0 and sum(missing.values()) == missing[damaged]
    said = subprocess.run(  # the exit code that a shell sees, not what click returns
        [sys.executable, "-m", "udpfast", "export", tmp_path, tmp_path / "again"],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert said.returncode == 1
    assert f"is damaged: {missing[damaged]:,} records are in no table" in said.stderr
    assert sum(entry.records for entry in entries) == RECORDS - missing[damaged]


def test_command_says_what_there_is_and_follows_to_the_end(journal: Path, tmp_path: Path) -> None:
    def call(*arguments: object) -> dict[str, Any]:
        found = CliRunner().invoke(cli, ["export", *map(str, arguments), "--json"])
        assert found.exit_code == 0, found.output
        result: dict[str, Any] = json.loads(found.stdout)
        return result

    found = call(journal, tmp_path, "--follow", "--look-s", 0.01)
    assert found["segments"] == found["written"] == len(list_segments(journal))
    assert (found["records"], found["rows"]["messages"], found["missing"]) == (RECORDS, RECORDS, 0)
    assert call(journal, tmp_path)["written"] == 0


def test_payloads_asked_for_with_another_table_are_not_taken_for_there(
    journal: Path, tmp_path: Path
) -> None:
    list(Exporter(journal, tmp_path, tables=("messages",)).run())
    list(Exporter(journal, tmp_path, tables=("gaps",), payloads=True).run())
    list(Exporter(journal, tmp_path, tables=("messages",), payloads=True).run())
    files = tmp_path.glob("messages/date=*/**/part-*.parquet")
    columns = [pq.read_table(path, columns=["payload"], partitioning=None)[0] for path in files]
    assert sum(column.null_count for column in columns) == 0


def test_segments_removed_before_their_export_are_said(journal: Path, tmp_path: Path) -> None:
    copy = tmp_path / "journal"
    shutil.copytree(journal, copy)
    with Journal.open(copy, LAYOUTS) as writer:
        writer.remove_oldest()
    begin = journal_begin(copy).index
    found = CliRunner().invoke(cli, ["export", str(copy), str(tmp_path / "root"), "--json"])
    assert found.exit_code == 0, found.stderr
    said = json.loads(found.stdout)
    assert (said["lost"], said["removed"], said["records"]) == (begin, begin, RECORDS - begin)
    assert f"records 0 to {begin} are no longer in any segment" in found.stderr


@pytest.mark.parametrize("which", [slice(0, 1), slice(1, 2), slice(-1, None), slice(None)])
@pytest.mark.parametrize(
    "options",
    [["--json"], ["--json", "--from", "2020-01-01T00:00Z"], ["--format=dbn", "--table=trades"]],
    ids=["parquet", "time", "dbn"],
)
def test_export_that_lacks_a_segment_because_of_damage_ends_with_1(
    journal: Path, tmp_path: Path, which: slice, options: list[str]
) -> None:
    copy = tmp_path / "journal"
    shutil.copytree(journal, copy)
    for number in list_segments(copy)[which]:
        with segment_path(copy, number).open("r+b") as file:
            file.write(b"\xff" * 64)
    found = CliRunner().invoke(cli, ["export", str(copy), str(tmp_path / "out"), *options])
    assert found.exit_code == 1
    kept = sum(part.end_index - part.index for part in journal_parts(copy))
    assert f"is damaged: {RECORDS - kept:,} records" in found.stderr
    if "--json" in options:
        said = json.loads(found.stdout)
        assert (said["records"], said["lost"], said["removed"]) == (kept, RECORDS - kept, 0)


def test_lost_names_are_said(journal: Path, tmp_path: Path) -> None:
    copy = tmp_path / "journal"
    shutil.copytree(journal, copy)
    for path in copy.glob("*.names"):
        path.unlink()
    command = ["export", str(copy), str(tmp_path / "root"), "--table", "trades", "--json"]
    found = CliRunner().invoke(cli, command)
    assert found.exit_code == 1
    assert json.loads(found.stdout)["nameless"] == json.loads(found.stdout)["records"] == RECORDS
    assert "its file of names is missing or damaged" in found.stderr
    scan = Scan(str(copy), "trades")
    with pytest.raises(FormatError, match="their instruments are unknown"):
        list(scan.batches(scan.pieces()[0]))


def test_segment_removed_before_it_is_read_is_left_out(journal: Path, tmp_path: Path) -> None:
    copy = tmp_path / "journal"
    copy.mkdir(mode=0o700)
    for path in journal.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    exports = Exporter(copy, tmp_path / "root", tables=("gaps",)).run()
    assert next(exports).entry.segment == 1
    segment_path(copy, 2).unlink()
    assert [each.entry.segment for each in exports] == list_segments(copy)[1:]


def test_full_disk_is_said_with_its_path(tmp_path: Path) -> None:
    file = PartitionFile(tmp_path, TABLES["gaps"], (20_000, 0, 1), "part")
    path = tmp_path / file.path
    path.parent.mkdir(parents=True)
    path.symlink_to("/dev/full")
    with pytest.raises(OSError, match=f"cannot write: {path}: No space left on device"):
        file.append(pa.RecordBatch.from_pylist([{}], arrow_schema("gaps")))
        file.finish()
