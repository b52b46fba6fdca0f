"""A journal with numbers that a later version gave a meaning: every tool shows the numbers."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner

from udpfast import Reader
from udpfast.cli.main import cli
from udpfast.client.record_words import describe_record, record_line
from udpfast.core.layout import CONTROL_DTYPES, Kind
from udpfast.log.journal import Journal
from udpfast.market.updates import LAYOUTS, ROW_DTYPES, UPDATE_DTYPES
from udpfast.market.words import CONTROL_WORDS, UPDATE_WORDS

#: No enumeration has it now, and each field can hold it.
LATER = 199
LATER_KIND = 63


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a journal of every kind, each of whose enumerations has a number of tomorrow."""
    directory = tmp_path_factory.mktemp("later") / "j"
    with Journal.open(directory, LAYOUTS, name="later", segment_bytes=1 << 20) as journal:
        for kind in [*CONTROL_DTYPES, *UPDATE_DTYPES]:
            if kind not in (Kind.DATAGRAM, Kind.CLOCK) and kind < Kind.BUS:
                journal.append(kind, payload_of(kind), published_ns=1_766_000_000_000_000_000)
        journal.append(LATER_KIND, b"tomorrow", published_ns=1_766_000_000_000_000_000)
        journal.flush(1)
    return directory


def payload_of(kind: Kind) -> bytes:
    """Return a payload whose enumerations all have the later number."""
    payload = np.zeros((), {**CONTROL_DTYPES, **UPDATE_DTYPES}[kind])
    rows = np.zeros(1 if kind in ROW_DTYPES else 0, ROW_DTYPES.get(kind, "u1"))
    for part in (payload, rows):
        for name in part.dtype.names or ():
            if (kind, name) in CONTROL_WORDS or name in UPDATE_WORDS:
                part[name] = LATER
            elif name in ("row_count", "bid_count"):
                part[name] = len(rows)
    return bytes(payload.tobytes() + rows.tobytes())


def test_records_and_frames_show_numbers(journal: Path) -> None:
    with Reader(f"journal:{journal}") as reader:
        records = list(reader)
    kinds = {record.kind for record in records}
    assert LATER_KIND in kinds
    for record in records:
        said = describe_record(record)
        words = [field for kind, field in CONTROL_WORDS if kind == record.kind]
        assert [said[field] for field in words] == [LATER] * len(words)
        assert all(f"{field}={LATER}" in record_line(record) for field in words)
        assert record._repr_html_()
    shown: list[str] = []
    with Reader(f"journal:{journal}", batch=1) as reader:
        for _ in records:
            batch = reader.poll(timeout=0)
            shown += pa.table(batch)["kind"].to_pylist()
            kind = Kind(batch.headers["kind"][0])
            if kind != LATER_KIND:
                assert pa.table(batch.table(kind)).num_rows == 1
    words = {LATER_KIND: str(int(LATER_KIND))}  # as in an export
    assert shown == [words.get(record.kind, record.kind.name) for record in records]
    assert words[LATER_KIND] in shown


def test_replay_shows_numbers(journal: Path) -> None:
    result = CliRunner().invoke(cli, ["replay", str(journal), "--json"])
    assert result.exit_code in (0, 1), result.output  # 1: its LAPPED says that some are missing
    found = json.loads(result.output.splitlines()[-1])
    reasons = {each["reason"] for each in found["gaps"] + found["sessions"]}
    assert reasons == {str(LATER)}
    assert found["kinds"][f"KIND_{LATER_KIND}"] == 1
    printed = CliRunner().invoke(cli, ["replay", str(journal)])
    assert f"({LATER}, waited" in printed.output


def test_export_shows_numbers(journal: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["export", str(journal), str(tmp_path)])
    assert result.exit_code == 0, result.output
    gaps = ds.dataset(tmp_path / "gaps", partitioning="hive").to_table()
    assert gaps["reason"].to_pylist() == [str(LATER)]
    events = ds.dataset(tmp_path / "events", partitioning="hive").to_table().to_pylist()
    said = {value for row in events for value in (row["reason"], row["status"], row["waits"])}
    assert said <= {str(LATER), None}
    assert str(LATER) in said
    trades = ds.dataset(tmp_path / "trades", partitioning="hive").to_table()
    assert trades["side"].to_pylist() == [str(LATER)]


def test_option_for_a_capture_is_refused_with_a_journal(journal: Path) -> None:
    for option in (("--incremental", "9001"), ("--framing", "iex_tp"), ("--payload", "iex_deep")):
        result = CliRunner().invoke(cli, ["replay", str(journal), *option])
        assert result.exit_code == 2
        assert f"{option[0]} needs a capture file" in result.output
