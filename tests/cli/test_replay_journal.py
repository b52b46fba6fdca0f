"""`udpfast replay CAPTURE --to journal:DIRECTORY`: all that comes out is kept."""

from pathlib import Path

import pyarrow.dataset as ds
from click.testing import CliRunner, Result

from tests.iex_capture import FLIGHT_NS, write_iex_capture
from udpfast import Books, Reader
from udpfast.cli.main import cli
from udpfast.core.layout import Kind


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(each) for each in arguments])


def replayed(tmp_path: Path) -> Path:
    capture = write_iex_capture(tmp_path / "iex.pcap")
    journal = tmp_path / "iex"
    result = invoke("replay", capture, "--payload", "iex_deep", "--to", f"journal:{journal}")
    assert result.exit_code == 0, result.output
    assert "snapshot:" not in result.output  # such lines this feed has not
    return journal


def test_journal_has_every_record_and_the_books(tmp_path: Path) -> None:
    journal = replayed(tmp_path)
    assert invoke("verify", journal).exit_code == 0
    reader = Reader(f"journal:{journal}")
    books = Books(reader)
    kinds: list[Kind] = []
    for record in reader:
        books.apply(record)
        kinds.append(record.kind)
    told = (Kind.SESSION, Kind.BOOK, Kind.TOP_OF_BOOK, Kind.TRADES)
    assert [kinds.count(kind) for kind in told] == [2, 4, 4, 4]
    assert kinds[-1] is Kind.TRADES
    assert books["IEX", "AA"].best()[:2] == (50.0003, 100.0)
    assert len(books["IEX", "BB"].bids()) == 0


def test_replay_of_a_raw_capture_that_was_not_kept_says_which_key_keeps_it(
    tmp_path: Path,
) -> None:
    result = invoke("replay", replayed(tmp_path), "--raw")
    assert result.exit_code != 0
    assert "has no raw capture" in str(result.exception)
    assert "record.what" in str(result.exception)


def test_export_of_races_says_that_they_need_a_raw_capture(tmp_path: Path) -> None:
    result = invoke("export", replayed(tmp_path), tmp_path / "export", "--table", "races")
    assert result.exit_code == 0
    assert "has no raw capture, which races are made of" in result.output


def test_replay_into_a_journal_that_is_there_is_refused(tmp_path: Path) -> None:
    journal = replayed(tmp_path)
    result = invoke("replay", tmp_path / "iex.pcap", "--to", f"journal:{journal}")
    assert result.exit_code != 0
    assert "is not empty: a replay needs a new journal" in str(result.exception)


def test_venues_clock_is_a_hop_of_the_export(tmp_path: Path) -> None:
    journal = replayed(tmp_path)
    assert invoke("export", journal, tmp_path / "export").exit_code == 0
    rows = ds.dataset(tmp_path / "export" / "latency", partitioning="hive").to_table().to_pylist()
    hops = {row["hop"] for row in rows}
    assert hops == {"origin_to_kernel", "exchange_to_kernel", "kernel_to_published"}
    for row in rows:
        if row["hop"] != "kernel_to_published":
            assert all(0 <= value - FLIGHT_NS < FLIGHT_NS / 500 for value in row["values_ns"])
    assert sum(row["count"] for row in rows if row["hop"] == "origin_to_kernel") == 12


def test_capture_of_another_framing_is_refused_in_a_line(tmp_path: Path) -> None:
    capture = write_iex_capture(tmp_path / "iex.pcap")
    result = invoke("replay", capture, "--framing", "cme_mdp3")
    assert result.exit_code != 0
    assert "expected datagrams of cme_mdp3, found iex_tp: 4 of 4 " in str(result.exception)


def test_payload_of_another_protocol_is_refused_in_a_line(tmp_path: Path) -> None:
    capture = write_iex_capture(tmp_path / "iex.pcap")
    result = invoke("replay", capture, "--payload", "iex_tops")
    assert result.exit_code != 0
    assert "protocol 8002 or 8003 with payload iex_tops, found 8004" in str(result.exception)
