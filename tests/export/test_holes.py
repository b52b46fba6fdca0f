"""What a journal has no more is an event in its export, as every reader of it is told."""

import random
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from udpfast.client.reader import Reader
from udpfast.core.layout import Kind
from udpfast.export.exporter import Exporter
from udpfast.export.scan import Scan
from udpfast.export.schema import arrow_schema
from udpfast.lab.journals import Journals, damage

SEEDS = range(1, 15)


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
