"""Races from a raw capture: the same as the feed itself counted."""

import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pytest

from tests.export.market import BEGIN_NS, SEGMENT_BYTES
from udpfast.agents.feed.recorder import Recorder
from udpfast.agents.feed.replayer import Replayer
from udpfast.archive.feed_settings import write_feed
from udpfast.config import RecordConfig, parse_feed
from udpfast.core.layout import RECORD, Kind
from udpfast.export.exporter import Exporter
from udpfast.export.manifest import read_entries
from udpfast.export.races import WAIT_NS, Races
from udpfast.export.schema import arrow_schema
from udpfast.log.journal import Journal
from udpfast.log.segment import list_segments, segment_path
from udpfast.log.verify import verify_segments
from udpfast.market.block import Block
from udpfast.net.bad_network import Arrival, LineFaults, network
from udpfast.net.pcap import CAPTURED, CaptureBatch

SEED = 20_261_121
MESSAGES = 4_000
SESSION_ID = 77
LINES = (0, 1)


def publish() -> list[tuple[int, bytes]]:
    """Return (time, datagram): every seventh message has three fragments."""
    sent = []
    for seqno in range(MESSAGES):
        time_ns = BEGIN_NS + seqno * 500_000
        last = 2 if seqno % 7 == 0 else 0
        for fragment in range(last + 1):
            frame = struct.pack("<BBBBHHII", 1, fragment, last, 0, 1, SESSION_ID, seqno, 0)
            sent.append((time_ns + fragment, frame + bytes(512 if fragment < last else 100)))
    return sent


@pytest.fixture(scope="module")
def arrivals() -> list[Arrival]:
    """Return the datagrams of two lossy lines: B is slower, and loses in bursts."""
    faults = {
        (0, 0): LineFaults(loss=0.02, jitter_ns=300_000),
        (0, 1): LineFaults(loss=0.05, burst_mean=4, delay_ns=150_000, jitter_ns=200_000),
    }
    sent = [
        Arrival(time_ns, 0, line, datagram) for time_ns, datagram in publish() for line in LINES
    ]
    return list(network(sent, faults, SEED))


def capture(directory: Path, arrivals: list[Arrival]) -> tuple[Path, dict[str, dict[str, int]]]:
    """Receive; return the directory of the journal, which has the raw capture, and counters."""
    config = parse_feed(
        {
            "name": "raced",
            "incremental": {
                "lines": [
                    {"name": name, "address": f"0.0.0.0:{9001 + i}"} for i, name in enumerate("AB")
                ]
            },
            "record": {"what": "both", "capture_bytes": 1 << 23},
        }
    )
    instance = directory / "raced"
    instance.mkdir(mode=0o700)
    replayer = Replayer(config, instance)
    headers = np.zeros(len(arrivals), CAPTURED)
    offset = 0
    for header, arrival in zip(headers, arrivals, strict=True):
        header["timestamp_ns"] = arrival.time_ns
        header["offset"], header["size"] = offset, len(arrival.datagram)
        offset += len(arrival.datagram)
    batch = CaptureBatch(headers, b"".join(arrival.datagram for arrival in arrivals))
    lines = np.array([arrival.line for arrival in arrivals], np.uint8)
    replayer.replay(batch, np.zeros_like(lines), lines, 0, len(arrivals))
    replayer.finish()
    counters = replayer.counters()
    replayer.close()
    journal = directory / "journal"
    keep = RecordConfig(what="both", directory=str(journal), segment_bytes=SEGMENT_BYTES, sync_ms=1)
    recorder = Recorder(keep, instance, "raced")
    recorder.on_start()
    for now_ns in range(100_000):
        done = recorder.work(now_ns)
        recorder.keep()
        if done == 0 and not any(recording.backlog for recording in recorder.recordings):
            break
    recorder.on_stop()
    return journal, counters


@pytest.fixture(scope="module")
def captured(
    tmp_path_factory: pytest.TempPathFactory, arrivals: list[Arrival]
) -> tuple[Path, dict[str, dict[str, int]]]:
    return capture(tmp_path_factory.mktemp("raced"), arrivals)


def races_of(root: Path) -> list[dict[str, Any]]:
    """Return the table of races, in the order of the capture."""
    schema = arrow_schema("races", partitions=True)
    table = ds.dataset(root / "races", schema, format="parquet", partitioning="hive").to_table()
    found: list[dict[str, Any]] = table.sort_by("position").to_pylist()
    return found


@pytest.fixture(scope="module")
def races(
    captured: tuple[Path, dict[str, dict[str, int]]], tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    root = tmp_path_factory.mktemp("races")
    list(Exporter(captured[0], root).run())
    return races_of(root)


def test_races_are_those_that_the_feed_counted(
    captured: tuple[Path, dict[str, dict[str, int]]], races: list[dict[str, Any]]
) -> None:
    counters = captured[1]
    for line, name in enumerate("AB"):
        counted = counters[f"incremental.{name}"]
        won = [race for race in races if race["winner"] == line]
        leads = [race["lead_ns"] for race in won if race["lead_ns"] is not None]
        assert len(won) == counted["wins"] > 0
        assert len(leads) == counted["leads"] > 0
        assert sum(max(lead, 0) for lead in leads) == counted["lead_ns"]
        assert sum(race["second"] == line for race in races) == counted["ties_lost"]


def test_completed_races_are_the_whole_messages(
    captured: tuple[Path, dict[str, dict[str, int]]], races: list[dict[str, Any]]
) -> None:
    completed = [race["number"] for race in races if race["completed"]]
    assert len(completed) == len(set(completed)) == captured[1]["incremental"]["messages"]
    fragments: dict[int, int] = {}
    for race in races:
        fragments[race["number"]] = fragments.get(race["number"], 0) + 1
    whole = {seqno for seqno, count in fragments.items() if count == (3 if seqno % 7 == 0 else 1)}
    assert set(completed) == whole
    last = {race["number"]: race["fragment"] for race in races}  # in the order of their coming
    assert all(last[race["number"]] == race["fragment"] for race in races if race["completed"])


def test_delays_say_which_line_lost_what(
    races: list[dict[str, Any]], arrivals: list[Arrival]
) -> None:
    came: dict[tuple[int, int], dict[int, int]] = {}
    for arrival in arrivals:
        _, fragment, _, _, _, _, seqno, _ = struct.unpack_from("<BBBBHHII", arrival.datagram)
        came.setdefault((seqno, fragment), {}).setdefault(arrival.line, arrival.time_ns)
    assert len(races) == len(came)
    for race in races:
        by_line = came[race["number"], race["fragment"]]
        first_ns = by_line[race["winner"]]
        delays = [by_line[line] - first_ns if line in by_line else None for line in LINES]
        assert race["delays_ns"] == delays
        assert race["lines"] == sum(1 << line for line in by_line)
        assert race["copies"] == len(by_line)
        assert race["received_ns"] == first_ns
    assert any(None in race["delays_ns"] for race in races)


def test_races_reach_across_segments(
    captured: tuple[Path, dict[str, dict[str, int]]], tmp_path: Path
) -> None:
    journal = captured[0]
    assert len(list_segments(journal / "raw")) > 3
    list(Exporter(journal, tmp_path).run())
    entries = [entry for entry in read_entries(tmp_path) if entry.raw]
    assert [entry.segment for entry in entries] == list_segments(journal / "raw")
    assert sum(entry.rows()["races"] for entry in entries) == len(races_of(tmp_path))
    assert not any(exported.written for exported in Exporter(journal, tmp_path).run())


def test_damage_counts_in_the_segment_that_has_it(
    captured: tuple[Path, dict[str, dict[str, int]]], tmp_path: Path
) -> None:
    raw = tmp_path / "journal" / "raw"
    shutil.copytree(captured[0], tmp_path / "journal")
    path = segment_path(raw, 2)
    content = bytearray(path.read_bytes())
    content[SEGMENT_BYTES // 2] ^= 1
    path.write_bytes(content)
    list(Exporter(tmp_path / "journal", tmp_path / "root", tables=("races",)).run())
    whole = verify_segments(raw)
    missing = {entry.segment: entry.missing for entry in read_entries(tmp_path / "root")}
    assert missing == {check.info.number: check.missing for check in whole if check.info}
    assert missing[2] > 0


def test_races_of_an_open_capture_wait_for_late_copies(
    tmp_path: Path, arrivals: list[Arrival]
) -> None:
    journal, _ = capture(tmp_path, arrivals)
    (journal / "raw" / "journal").unlink()
    exporter = Exporter(journal, tmp_path / "root", tables=("races",))
    segments = [exported.entry.segment for exported in exporter.run(dead=False)]
    assert segments == list_segments(journal / "raw")[: len(segments)]
    last_ns = max(arrival.time_ns for arrival in arrivals)
    latest = max(race["published_ns"] for race in races_of(tmp_path / "root"))
    assert segments and latest < last_ns - WAIT_NS


def test_repeated_and_refused_datagrams_run_no_race() -> None:
    def captured_datagram(line: int, time_ns: int, flags: int = 0) -> tuple[Any, bytes]:
        frame = struct.pack("<BBBBHHII", 1, 0, 0, 0, 1, SESSION_ID, 5, 0)
        payload = struct.pack("<qII", time_ns, flags, 0) + frame + b"payload"
        header = np.zeros((), RECORD)
        header["length"], header["kind"], header["line"] = 64 + len(payload), Kind.DATAGRAM, line
        header["position"] = header["received_ns"] = time_ns
        return header, payload

    entries = [
        captured_datagram(2, 10, flags=2),  # its sender is not on the allow-list
        captured_datagram(1, 20),
        captured_datagram(1, 30),
        captured_datagram(0, 50),
        captured_datagram(0, 60),
    ]
    offsets = np.arange(len(entries), dtype=np.uint64) * 40
    payloads = np.frombuffer(b"".join(body.ljust(40, b"\0") for _, body in entries), np.uint8)
    races = Races(0, 1 << 40)
    races.add(Block(np.array([header for header, _ in entries]), offsets, payloads, len(entries)))
    (race,) = races.take()
    assert (race["winner"], race["second"], race["received_ns"]) == (1, 0, 20)
    assert race["delays_ns"][:3].tolist() == [30, 0, np.iinfo(np.int64).min]


@pytest.mark.parametrize("byteorder", ["little", "big"])
def test_races_are_read_in_the_byte_order_of_the_feed(tmp_path: Path, byteorder: str) -> None:
    raw = tmp_path / "journal" / "raw"
    raw.mkdir(parents=True, mode=0o700)
    lines = [{"name": "A", "address": "0.0.0.0:9001"}]
    tables = {"incremental": {"lines": lines}, "wire": {"byteorder": byteorder}}
    write_feed(parse_feed({"name": "raced", **tables}), raw)
    layout = f"{'>' if byteorder == 'big' else '<'}BBBBHHII"
    with Journal.open(raw) as journal:
        for seqno in range(1, 4):
            frame = struct.pack(layout, 1, 0, 0, 0, 1, SESSION_ID, seqno, 0)
            journal.append(
                Kind.DATAGRAM, bytes(16) + frame, published_ns=BEGIN_NS + seqno, session=seqno
            )
    list(Exporter(tmp_path / "journal", tmp_path / "root", tables=("races",)).run())
    found = [(race["number"], race["session"]) for race in races_of(tmp_path / "root")]
    assert found == [(seqno, f"s{seqno}") for seqno in range(1, 4)]
