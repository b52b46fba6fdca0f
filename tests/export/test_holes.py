"""Records that a journal no longer has are an event in its export, as for its readers."""

import random
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from lab.journals import Journals, damage
from tests.cases import nightly
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind
from udpfast.export.exporter import Exporter
from udpfast.export.manifest import Entry
from udpfast.export.scan import Scan
from udpfast.export.schema import arrow_schema
from udpfast.log.journal import Journal
from udpfast.market.updates import LAYOUTS

SEEDS = [*range(1, 6), *nightly(*range(6, 15))]
SEGMENT_BYTES = 1 << 18
BEGIN_NS = 1_795_219_200_000_000_000


def append_segments(journal: Journal, count: int) -> None:
    """Append `count` segments of ten records each, and begin the next one."""
    for _ in range(count):
        for _ in range(10):
            at_ns = BEGIN_NS + journal.index
            journal.append(Kind.MESSAGE, b"x", received_ns=at_ns, published_ns=at_ns)
        journal.prepare()
        journal.roll(journal.index, unix_ns=BEGIN_NS + journal.index)
        journal.sync(BEGIN_NS + journal.index)


@pytest.mark.parametrize("seed", SEEDS)
def test_events_say_as_much_as_is_missing(tmp_path: Path, seed: int) -> None:
    written = Journals.write(seed, tmp_path / "journal")
    other = Journals.write(9, tmp_path / "other")
    saved = (written.directory / "journal").read_bytes()
    damage(written.directory, random.Random(seed), other.directory)
    (written.directory / "journal").write_bytes(saved)  # somebody knows how much there was
    root = tmp_path / "root"
    records = sum(exported.entry.records for exported in Exporter(written.directory, root).run())
    schema = arrow_schema("events", partitions=True)
    events = ds.dataset(root / "events", schema, partitioning="hive").to_table().to_pylist()
    scan = Scan(str(written.directory), "events", skip_damage=True)
    pieces = [row for piece in scan.pieces() for b in scan.batches(piece) for row in b.to_pylist()]
    with Reader(f"journal:{written.directory}") as reader:
        told = [record.lapped for record in reader if record.kind is Kind.LAPPED]
    missing = written.records - written.first - records
    for rows in (events, pieces):
        assert {row["kind"] for row in rows} <= {"LAPPED"}
        assert {row["reason"] for row in rows} <= {"DAMAGE"}
        assert sum(row["missed"] for row in rows) == missing == sum(told)


def test_what_made_room_before_it_was_exported_is_an_event_too(tmp_path: Path) -> None:
    root, directory = tmp_path / "root", tmp_path / "journal"

    def export() -> tuple[list[Entry], list[tuple[str, str, int, int]]]:
        entries = [exported.entry for exported in Exporter(directory, root).run()]
        schema = arrow_schema("events", partitions=True)
        table = ds.dataset(root / "events", schema, partitioning="hive").to_table()
        names = ("kind", "reason", "missed", "position")
        return entries, [tuple(row[name] for name in names) for row in table.to_pylist()]

    with Journal.open(directory, LAYOUTS, name="feed", segment_bytes=SEGMENT_BYTES) as journal:
        append_segments(journal, 3)
        journal.remove_oldest()  # before the first export: nobody is told of that
        entries, events = export()
        assert (entries[0].index, entries[-1].end_index, events) == (10, 30, [])
        append_segments(journal, 4)
        for _ in range(4):
            journal.remove_oldest()
        told = [("LAPPED", "DAMAGE", 20, entries[-1].end_position)]
        for _ in range(2):
            assert export()[1] == told
