"""Tables directly from a journal: the pieces have the rows of the export."""

import shutil
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.export.market import (
    BEGIN_NS,
    RECORDS,
    ROUNDS,
    STEP_NS,
    Market,
    drive,
    fill,
    record,
)
from tests.export.test_export import table_of
from udpfast.errors import ConfigError, FormatError
from udpfast.export.scan import Condition, Scan
from udpfast.export.schema import TABLES, arrow_schema
from udpfast.export.segments import Place, journal_begin, journal_head, journal_place
from udpfast.log.journal import Journal
from udpfast.log.journal_state import journal_state
from udpfast.log.segment import list_segments, segment_path
from udpfast.market.updates import LAYOUTS


def scanned(scan: Scan) -> pa.Table:
    """Return all pieces of a scan, one after the other."""
    batches = [batch for piece in scan.pieces() for batch in scan.batches(piece)]
    schema = arrow_schema(scan.table, partitions=True)
    names = scan.columns or schema.names
    return pa.Table.from_batches(batches, pa.schema([schema.field(name) for name in names]))


RECORD_TABLES = [name for name, table in TABLES.items() if not table.raw and name != "latency"]


@pytest.mark.parametrize("name", RECORD_TABLES)
def test_scan_in_pieces_is_the_export(journal: Path, root: Path, name: str) -> None:
    scan = Scan(str(journal), name, payloads=True, piece_bytes=1 << 16)
    assert len(scan.pieces()) > 2 * len(list_segments(journal))
    assert scanned(scan).equals(table_of(root, name))


def test_pieces_follow_each_other_without_a_hole(journal: Path) -> None:
    pieces = Scan(str(journal), piece_bytes=1 << 16).pieces()
    assert pieces[0].position == 0
    assert pieces[-1].end_position == journal_state(journal).position
    for piece, following in pairwise(pieces):
        assert piece.end_position == following.position


def test_conditions_are_about_records(journal: Path) -> None:
    low, high = BEGIN_NS + 900 * STEP_NS, BEGIN_NS + 1_500 * STEP_NS
    whole = scanned(Scan(str(journal)))
    times = (Condition("received_ns", low, high), Condition("line", 1, 1))
    found = scanned(Scan(str(journal), conditions=times))
    wanted = pc.and_(
        pc.and_(
            pc.greater_equal(whole["received_ns"], low), pc.less_equal(whole["received_ns"], high)
        ),
        pc.equal(whole["line"], 1),
    )
    assert found.equals(whole.filter(wanted)) and 290 < len(found) < 310
    nothing = Scan(
        str(journal), conditions=(Condition("number", 1 << 40), Condition("line", -5, 300))
    )
    assert len(scanned(nothing)) == 0


def test_early_and_late_pieces_are_not_read_for_a_time(journal: Path) -> None:
    late = BEGIN_NS + (RECORDS - 50) * STEP_NS
    scan = Scan(str(journal), piece_bytes=1 << 16, conditions=(Condition("published_ns", late),))
    pieces = scan.pieces()
    assert {piece.number for piece in pieces} == {list_segments(journal)[-1]}
    assert sum(piece.end_position - piece.position for piece in pieces) < 1 << 17
    assert len(scanned(scan)) == 51


def test_kinds_symbols_and_exchanges_choose_records(journal: Path) -> None:
    found = scanned(Scan(str(journal), kinds=("TRADES", "STALE"), columns=("symbol", "kind")))
    assert found.schema.names == ["symbol", "kind"]
    assert set(found["kind"].to_pylist()) == {"TRADES", "STALE"}
    found = scanned(Scan(str(journal), symbols=("SYM1",), exchanges=("binance-usdm",)))
    assert set(found["symbol"].to_pylist()) == {"SYM1"}
    assert len(scanned(Scan(str(journal), exchanges=("deribit",)))) == 0


def test_partition_columns_are_those_of_the_directories(journal: Path) -> None:
    found = scanned(Scan(str(journal), columns=("session", "stream", "date")))
    assert set(found["session"].to_pylist()) == {"s1"}
    assert found["stream"].to_pylist().count(1) == ROUNDS
    assert {str(day) for day in found["date"].to_pylist()} == {"2026-11-20", "2026-11-21"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "bars"}, "table must be one of"),
        ({"columns": ("prise",)}, "column must be one of feed"),
        ({"kinds": ("TRADE",)}, "kind must be one of PAD"),
        ({"conditions": (Condition("price", 1),)}, "field must be one of position"),
        ({"table": "races", "kinds": ("GAP",)}, "races is made from all records"),
    ],
)
def test_wrong_questions_are_refused(journal: Path, options: dict, message: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=message):
        Scan(str(journal), **options)


def test_damage_and_cuts_are_errors_unless_skipped(journal: Path, tmp_path: Path) -> None:
    for path in journal.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    path = segment_path(tmp_path, 2)
    content = bytearray(path.read_bytes())
    content[100_000] ^= 1
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"00000002\.segment: expected all records"):
        scanned(Scan(str(tmp_path)))
    assert 0 < RECORDS - len(scanned(Scan(str(tmp_path), skip_damage=True))) < 1000


def test_begin_is_behind_what_was_removed_to_make_room_and_nothing_else(
    journal: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "journal"
    shutil.copytree(journal, copy)
    with Journal.open(copy, LAYOUTS) as writer:
        writer.remove_oldest()
        second = Scan(str(copy)).pieces()[0]
        begin = journal_begin(copy)
    assert (begin.position, begin.index) == (second.position, second.index) > (0, 0)
    assert scanned(Scan(str(copy))).num_rows == RECORDS - begin.index
    segment_path(copy, second.number).unlink()
    with pytest.raises(FormatError, match="are no longer in any segment"):
        Scan(str(copy)).pieces()


@pytest.mark.parametrize("records", [0, 1, 17, 700, RECORDS - 1, RECORDS, 10_000])
def test_place_counts_records_across_segments(journal: Path, records: int) -> None:
    place = journal_place(journal, journal_begin(journal), records)
    expected = min(records, RECORDS)
    assert place.index == expected
    assert journal_place(journal, place, 5).index == min(expected + 5, RECORDS)
    before = Scan(str(journal)).pieces(None, place)
    scan = Scan(str(journal))
    assert sum(len(batch) for piece in before for batch in scan.batches(piece)) == expected


def test_head_of_a_written_journal_is_what_the_disk_has(tmp_path: Path) -> None:
    def place(index: int) -> Place:
        state = journal_state(journal)
        return Place(state.position, index, state.identity.hex())

    market = Market(tmp_path / "feed", 1 << 22)
    fill(market, 20)
    recorder = record(market, tmp_path / "journal", close=False)
    journal = tmp_path / "journal"
    recorder.recordings[0].journal.sync(1)
    assert journal_head(journal) == place(18 * 20)
    fill(market, 1)
    for now_ns in range(3):
        recorder.work(now_ns)
    head, state = journal_head(journal), journal_state(journal)
    assert head.index in (18 * 20, state.synced_index) and state.index == 18 * 21
    assert journal_head(journal, synced=False).index == 18 * 21
    drive(recorder)
    recorder.on_stop()
    assert journal_head(journal) == place(18 * 21)
    assert journal_begin(journal).position == journal_begin(journal).index == 0
    market.close()


def test_head_of_a_journal_without_its_writer_s_file_is_its_last_record(
    journal: Path, tmp_path: Path
) -> None:
    for path in journal.glob("*.segment"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert journal_head(tmp_path) == journal_head(journal)
