"""A composite of real daemons: its copy on each host, its tables, and continued exports."""

import json
from pathlib import Path

import pyarrow.dataset
import pytest
from click.testing import CliRunner

from tests.agents.test_bus_host import HOSTS, running
from tests.client.test_composite_source import settings
from tests.waiting import wait_until
from udpfast.archive.bus_files import copy_directory
from udpfast.cli.main import cli
from udpfast.client.app import App
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind
from udpfast.export.scan import Scan
from udpfast.export.schema import arrow_schema

MESSAGES = 150


def call(*arguments: object) -> str:
    found = CliRunner().invoke(cli, [str(each) for each in arguments])
    assert found.exit_code == 0, (found.output, found.exception)
    return found.stdout


def read(root: Path, table: str) -> list[dict[str, object]]:
    """Return all rows of a table of an export, in the order of its journal."""
    schema = arrow_schema(table, partitions=True)
    files = pyarrow.dataset.dataset(
        root / table, schema=schema, format="parquet", partitioning=pyarrow.dataset.partitioning(
            pyarrow.schema([schema.field(name) for name in ("date", "stream", "session")]),
            flavor="hive"))  # fmt: skip
    return files.to_table().sort_by("index").to_pylist()


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hosts that sent in two runs; each copied its composite after each of them."""
    tmp_path = tmp_path_factory.mktemp("hosts")
    config = settings(tmp_path)
    with running(config, "S", tmp_path) as first, running(config, "one", tmp_path) as second:
        parts = [*first.parts, *second.parts]
        wait_until(lambda: all(part.store.end for part in parts), "all copies")
        with (
            App(f"store:{tmp_path / 'S' / 'orders'}", "app") as orders,
            App(f"store:{tmp_path / 'one' / 'prices'}", "feed") as prices,
        ):
            for go in (1, 2):
                for number in range(MESSAGES):
                    orders.send(b"o%d" % (go * MESSAGES + number), type=7)
                    prices.send(b"p%d" % (go * MESSAGES + number))
                for host in HOSTS:
                    with Reader(f"composite:{tmp_path / host / 'algo'}") as reader:
                        seen = 0

                        def whole(reader: Reader = reader, go: int = go) -> bool:
                            nonlocal seen
                            while reader.wait(0):
                                seen += next(reader).kind is Kind.BUS
                            return seen == 2 * go * MESSAGES

                        wait_until(whole, "all messages")
                    call("record", f"composite:{tmp_path / host / 'algo'}", "--end")
                    call("export", f"composite:{tmp_path / host / 'algo'}", tmp_path / f"x{host}",
                         "--payloads")  # fmt: skip
    return tmp_path


def test_composite_is_exported_as_a_journal_is(hosts: Path) -> None:
    made = [(hosts / host / "algo" / "composite" / "00000001.segment").read_bytes()[4096:]
            for host in HOSTS]  # fmt: skip
    records = [b"".join(_records(copy_directory(hosts / host / "algo"))) for host in HOSTS]
    assert made[0] and records[0] == records[1]

    tables = {host: {name: read(hosts / f"x{host}", name)
                     for name in ("messages", "bus", "senders", "merges")}
              for host in HOSTS}  # fmt: skip
    assert tables["S"] == tables["one"]
    found = tables["one"]
    assert [row["index"] for row in found["messages"]] == list(range(len(found["messages"])))
    # The app that sent a message follows from its input (the session) and its number there.
    names = {(row["session"], row["sender"]): row["name"] for row in found["senders"]}
    assert names == {("s1", 1): "app", ("s2", 1): "feed"}
    for name, letter in (("app", b"o"), ("feed", b"p")):
        own = [row for row in found["bus"] if names[row["session"], row["sender"]] == name]
        assert [row["payload"] for row in own] == [
            b"%s%d" % (letter, number) for number in range(MESSAGES, 3 * MESSAGES)
        ]
        assert [row["number"] for row in own] == list(range(1, 2 * MESSAGES + 1))
    # Entries name the input of records: all records of an input, once, without a hole.
    ends = [0, 0]
    taken = 0
    for row in found["merges"]:
        assert row["first_index"] == ends[row["input"]] and not row["back"]
        ends[row["input"]] += row["count"]
        taken += row["count"]
    assert len(found["messages"]) == taken + len(found["merges"])


def test_export_of_a_composite_goes_on_and_is_that_at_once(hosts: Path) -> None:
    for table in ("messages", "bus", "merges"):
        call("export", f"composite:{hosts / 'one' / 'algo'}", hosts / "once", "--payloads")
        assert read(hosts / "xone", table) == read(hosts / "once", table)
        scan = Scan(str(copy_directory(hosts / "one" / "algo")), table, payloads=True)
        rows = [row for piece in scan.pieces() for batch in scan.batches(piece)
                for row in batch.to_pylist()]  # fmt: skip
        assert rows == read(hosts / "once", table)
    again = json.loads(call("export", f"composite:{hosts / 'one' / 'algo'}", hosts / "xone",
                            "--json"))  # fmt: skip
    assert (again["written"], again["lost"], again["missing"]) == (0, 0, 0)


def test_store_is_exported_by_its_address(hosts: Path) -> None:
    call("export", f"store:{hosts / 'one' / 'orders'}", hosts / "orders", "--table", "bus")
    assert len(read(hosts / "orders", "bus")) == 2 * MESSAGES


def _records(directory: Path) -> list[bytes]:
    with Reader(f"journal:{directory}") as reader:
        return [bytes(record) for record in reader]
