"""Journals of another version, used in every way: read, replayed, exported, verified."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner

from lab.aged import write_aged
from tests.export.market import make_journal
from tests.layouts import NEWER, OLDER
from udpfast.cli.main import cli
from udpfast.client.reader import Reader
from udpfast.client.record_words import describe_record
from udpfast.core.layout import Kind
from udpfast.core.layouts import Layouts
from udpfast.export.exporter import Exporter
from udpfast.export.schema import TABLES
from udpfast.log.journal import Journal
from udpfast.log.journal_layouts import layouts_path
from udpfast.market.updates import LAYOUTS

#: Values that records of the older version lack: columns of tables, values of records.
FORGOTTEN = {
    "flight_ns",
    "sent_ns",
    "stream_id",
    "ask_quantity",
    "implied_quantity",
    "reason",
    "payload",
}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_journal(tmp_path_factory.mktemp("own"), 3)


@pytest.fixture(scope="module", params=["older", "newer"])
def aged(
    request: pytest.FixtureRequest, own: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    directory = tmp_path_factory.mktemp(request.param) / request.param
    layouts: Layouts = {"older": OLDER, "newer": NEWER}[request.param]
    write_aged(own, directory, LAYOUTS, layouts)
    return directory


def described(directory: Path) -> list[dict[str, object]]:
    def plain(value: object) -> object:
        if isinstance(value, dict):
            return {name: plain(each) for name, each in value.items() if name not in FORGOTTEN}
        return [plain(each) for each in value] if isinstance(value, list) else value

    with Reader(f"journal:{directory}") as reader:
        return [plain(describe_record(record)) for record in reader]  # type: ignore[misc]


def test_records_say_what_they_said(own: Path, aged: Path) -> None:
    found = described(aged)
    assert len(found) == 54
    assert found == described(own)


def test_batches_have_the_headers_of_this_version(own: Path, aged: Path) -> None:
    headers = []
    for directory in (own, aged):
        with Reader(f"journal:{directory}", batch=64) as reader:
            headers.append(reader.poll().headers.copy())
    for name in headers[0].dtype.names or ():
        if name not in ("position", "checksum", "flight_ns"):
            np.testing.assert_array_equal(headers[0][name], headers[1][name], name)


def tables(journal: Path, root: Path) -> dict[str, pa.Table]:
    assert all(exported.written for exported in Exporter(journal, root, payloads=True).run())
    found = {}
    for name in TABLES:
        paths = [str(path) for path in sorted((root / name).rglob("*.parquet"))]
        if paths:
            table = ds.dataset(paths).to_table()
            keep = [each for each in table.column_names if each not in {"position", *FORGOTTEN}]
            found[name] = table.select(keep)
    return found


def test_exports_are_the_same(own: Path, aged: Path, tmp_path: Path) -> None:
    expected, found = tables(own, tmp_path / "own"), tables(aged, tmp_path / "aged")
    assert found.keys() - {"latency"} == expected.keys() - {"latency"}
    for name in found.keys() - {"latency"}:
        assert found[name].num_rows == expected[name].num_rows, name
        for column in found[name].column_names:
            assert found[name][column].equals(expected[name][column]), (name, column)


def test_kinds_that_only_a_later_version_knows_are_handed_out_as_they_are(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "j", LAYOUTS, name="feed", segment_bytes=1 << 18) as journal:
        for kind in (Kind.MESSAGE, 40, Kind.MESSAGE, 63):
            journal.append(kind, bytes(range(48)), published_ns=10**18)
    with Reader(f"journal:{tmp_path / 'j'}") as reader:
        records = list(reader)
    assert [record.kind for record in records] == [2, 40, 2, 63]
    assert [record.kind.name for record in records] == ["MESSAGE", "KIND_40", "MESSAGE", "KIND_63"]
    assert all(bytes(record.payload) == bytes(range(48)) for record in records)
    assert describe_record(records[1])["payload"] == bytes(range(48)).hex()
    with Reader(f"journal:{tmp_path / 'j'}") as reader:
        batch = reader.poll()
        kinds = pa.table(batch)["kind"].to_pylist()
        assert kinds == ["MESSAGE", "40", "MESSAGE", "63"]
    found = tables(tmp_path / "j", tmp_path / "export")["messages"]
    assert found["kind"].to_pylist() == ["MESSAGE", "40", "MESSAGE", "63"]
    result = CliRunner().invoke(cli, ["replay", str(tmp_path / "j"), "--json"])
    assert json.loads(result.stdout.splitlines()[-1])["kinds"] == {
        "KIND_40": 1,
        "KIND_63": 1,
        "MESSAGE": 2,
    }


def test_replays_of_a_newer_version_are_the_same(own: Path, tmp_path: Path) -> None:
    write_aged(own, tmp_path / "newer", LAYOUTS, NEWER)
    hashes = []
    for directory in (own, tmp_path / "newer"):
        result = CliRunner().invoke(cli, ["replay", str(directory), "--json"])
        hashes.append(json.loads(result.stdout.splitlines()[-1])["sha256"])
    assert hashes[0] == hashes[1]


def test_verify_says_which_journal_it_is_and_which_version_wrote_it(aged: Path) -> None:
    result = CliRunner().invoke(cli, ["verify", str(aged)])
    assert result.exit_code == 0, result.output
    assert ", segments of format 3" in result.output
    assert "written by udpfast 0.1.0: read field by field" in result.output
    found = json.loads(CliRunner().invoke(cli, ["verify", str(aged), "--json"]).output)
    assert found["identity"] == found["state"]["identity"]
    assert [each["translated"] for each in found["layouts"]] == [True]


def test_verify_says_that_layouts_are_missing(own: Path, tmp_path: Path) -> None:
    write_aged(own, tmp_path / "older", LAYOUTS, OLDER)
    layouts_path(tmp_path / "older", OLDER.hash).unlink()
    result = CliRunner().invoke(cli, ["verify", str(tmp_path / "older")])
    assert result.exit_code == 1
    assert "expected the layouts of segments that another version wrote" in result.output
    for arguments in (["replay"], ["export", "--table", "trades"]):
        target = [str(tmp_path / "export")] if arguments[0] == "export" else []
        result = CliRunner().invoke(cli, [*arguments, str(tmp_path / "older"), *target])
        assert "expected the layouts of segments" in str(result.exception)
