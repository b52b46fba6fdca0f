"""Frames of a reader and the files of an export: for the same records the same columns."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner

from tests.export.market import make_journal
from tests.export.test_recorded_market import record_capture
from tests.shared import shared
from udpfast import FormatError, Reader, RingClosedError
from udpfast.cli.main import cli
from udpfast.core.layout import Kind
from udpfast.export.exporter import Exporter
from udpfast.export.schema import TABLES, arrow_schema
from udpfast.market.tables import frame_columns
from udpfast.market.updates import UPDATE_DTYPES

KINDS = tuple(kind for kind in Kind if frame_columns(kind) is not None)


def _record_venue(directory: Path) -> Path:
    capture = shared("venues", "books", "itch_small") / "feed.pcap.gz"
    to = f"journal:{directory}/journal"
    result = CliRunner().invoke(cli, ["replay", str(capture), "--payload", "itch", "--to", to])
    assert result.exit_code == 0, result.output
    return directory / "journal"


#: Journals by name: every kind; a Roq feed with losses; a venue with losses.
JOURNALS = {
    "kinds": lambda directory: make_journal(directory, 20),
    "roq": record_capture,
    "itch": _record_venue,
}

Frames = dict[Kind | None, pa.Table]


@pytest.fixture(scope="module", params=JOURNALS)
def market(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Frames, Path]:
    """Return the frames of all records of a journal, by kind, and its export."""
    journal = JOURNALS[request.param](tmp_path_factory.mktemp(request.param))
    root = tmp_path_factory.mktemp("export")
    list(Exporter(journal, root, payloads=True).run())
    return _frames(f"journal:{journal}"), root


def _frames(address: str) -> Frames:
    parts: dict[Kind | None, list[pa.Table]] = {kind: [] for kind in (None, *KINDS)}
    with Reader(address, start="begin") as reader:
        while True:
            try:
                batch = reader.poll()
            except RingClosedError:
                break
            for kind, tables in parts.items():
                table = pa.table(batch.table(kind))
                table.validate(full=True)
                tables.append(_plain(table))
    return {kind: pa.concat_tables(tables) for kind, tables in parts.items()}


def _plain(table: pa.Table) -> pa.Table:
    # A row per row of a payload, as `explode` and `unnest` of polars make them; no categories.
    if "rows" in table.column_names and pa.types.is_list(table["rows"].type):
        lists = table["rows"].combine_chunks()
        of_record = pc.list_parent_indices(lists)
        rows = pa.Table.from_struct_array(pc.list_flatten(lists))
        table = table.drop_columns(["rows"]).take(of_record)
        for name in rows.column_names:
            table = table.append_column(name, rows[name])
    fields = [
        pa.field(
            field.name,
            field.type.value_type if pa.types.is_dictionary(field.type) else field.type,
        )
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def _exported(root: Path, table: str) -> pa.Table:
    schema = arrow_schema(table, partitions=True)
    found = ds.dataset(root / table, schema=schema, partitioning="hive").to_table()
    order = [("position", "ascending")]
    return found.sort_by([*order, ("row", "ascending")] if "row" in found.schema.names else order)


def test_frames_of_some_kinds_lack_fields_of_the_header_as_docs_records_md_says() -> None:
    names = {
        kind: {column.name for column in frame.columns}
        for kind in Kind
        if (frame := frame_columns(kind)) is not None
    }
    updates = {kind for kind in names if kind in UPDATE_DTYPES}
    assert {kind for kind in names if "sent_ns" in names[kind]} == updates
    of_objects = updates | {Kind.STALE, Kind.RECOVERED}
    assert {kind for kind in names if "object" in names[kind]} == of_objects
    events = {kind for kind in names if "kind" in names[kind]}
    assert Kind.SESSION in events and not events & (updates | {Kind.GAP})


def test_every_table_of_records_is_compared() -> None:
    compared = {kind.name for kind in KINDS}
    for table in TABLES.values():
        assert table.name in ("messages", "races", "latency") or set(table.kinds) <= compared


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_frame_has_the_columns_of_the_export(
    market: tuple[Frames, Path], kind: Kind | None
) -> None:
    frames, root = market
    name = _table_of(kind)
    if name is None:
        return
    exported, live = _exported(root, name), frames[kind]
    if name == "events":
        assert kind is not None
        exported = exported.filter(pc.equal(exported["kind"], kind.name))
        others = set(exported.column_names) - set(live.column_names)
        assert all(exported[other].null_count == exported.num_rows for other in others)
        exported = exported.drop_columns(sorted(others))
    assert set(exported.column_names) <= set(live.column_names)
    live = live.select(exported.column_names)
    assert live.schema.types == exported.schema.types
    assert live.num_rows == exported.num_rows
    for column in exported.column_names:
        assert live[column].to_pylist() == exported[column].to_pylist(), column


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_names_of_columns_are_distinct_when_rows_are_unnested(kind: Kind | None) -> None:
    frame = frame_columns(kind)
    assert frame is not None
    names = [each.name for each in (*frame.columns, *frame.row_columns)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("table", ["trades", "tops"])
@pytest.mark.parametrize("form", ["directory", "pattern", "dataset"])
def test_frame_and_files_are_one_frame_in_polars(tmp_path: Path, form: str, table: str) -> None:
    polars = pytest.importorskip("polars")
    journal = make_journal(tmp_path, 20)
    list(Exporter(journal, tmp_path / "out", tables=(table,)).run())
    files = tmp_path / "out" / table
    if form == "dataset":
        scan = polars.scan_pyarrow_dataset(ds.dataset(files, partitioning="hive"))
    else:
        pattern = files / "**/*.parquet" if form == "pattern" else files
        scan = polars.scan_parquet(pattern, hive_partitioning=True)
    exported = scan.collect()
    with Reader(f"journal:{journal}", kinds=table) as reader:
        live = reader.poll().to_polars(table)
    if table == "trades":
        live = live.explode("rows").unnest("rows")
    both = polars.concat([live, exported], how="diagonal_relaxed")  # as docs/attach.md has it
    assert len(both) == len(live) + len(exported) > len(exported) > 0
    assert {name: both.schema[name] for name in exported.columns} == exported.schema


def _table_of(kind: Kind | None) -> str | None:
    if kind is None:
        return "messages"
    return next((table.name for table in TABLES.values() if kind.name in table.kinds), None)


def test_markets_have_rows_of_the_kinds_that_strategies_use(market: tuple[Frames, Path]) -> None:
    frames, _ = market
    assert all(frames[kind].num_rows for kind in (None, Kind.BOOK, Kind.TOP_OF_BOOK))


def test_kind_without_a_layout_has_no_frame(tmp_path: Path) -> None:
    with Reader(f"journal:{make_journal(tmp_path, 1)}", start="begin") as reader:
        batch = reader.poll()
        with pytest.raises(FormatError, match="fixed layout"):
            batch.table(Kind.MESSAGE)
