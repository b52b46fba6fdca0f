"""`Reader("store:...")`: readers get what they may see, and a report of records taken back."""

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.bus.drive import Copy, lead, numbers, register, send
from udpfast.agents.bus.store_disk import StoreDisk
from udpfast.archive.bus_files import Live, LiveState, describe_store, shared_directory
from udpfast.archive.store import StoreLog
from udpfast.bus.log import Store
from udpfast.cli.main import cli
from udpfast.client.reader import Reader
from udpfast.client.record import ReadRecord
from udpfast.client.record_words import describe_record, record_line
from udpfast.config.bus import StoreConfig
from udpfast.core.clock import monotonic_ns
from udpfast.core.layout import Kind, LappedReason
from udpfast.errors import ConfigError, ImageError, NotReadyError, RingClosedError
from udpfast.log.segment import list_segments, segment_path

BYTES = 1 << 18


class Kept:
    """A store on disk, with the state that its daemon writes about it."""

    def __init__(self, folder: Path, host: str = "S", *, create: bool = True, **options) -> None:
        self.folder = folder
        log = StoreLog(folder, "orders", segment_bytes=BYTES, create=create)
        self.store = Store(log, host, **options)
        self.live = Live(folder, create=True)

    def tell(self, *, cuts: int = 1, ago_ns: int = 0, following: bool = True) -> None:
        """Write the store's state, as a daemon does in each turn."""
        store = self.store
        self.live.write(
            LiveState(monotonic_ns() - ago_ns, store.end, store.log.synced(), store.released,
                      store.kept, store.epoch, store.promised, cuts + store.cuts, following,
                      store.gate)
        )  # fmt: skip
        store.log.flush()


def said(reader: Reader) -> list[tuple[str, int]]:
    """Return sender and number of each message."""
    found = []
    while reader.wait(0):
        record = next(reader)
        if record.kind is Kind.BUS:
            assert record.payload == b"%d" % record.number
            assert record.type == record.number & 0xFFFF
            found.append((record.sender, record.number))
        elif record.kind is Kind.ROLLBACK:
            found.append(("ROLLBACK", int(record.data["records"])))
        elif record.kind is Kind.LAPPED:
            found.append((LappedReason(record.data["reason"]).name, record.lapped))
    return found


def test_reader_gets_messages_with_their_senders_over_segments(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "a")
    seq = lead(kept.store)
    register(seq, name="algo")
    kept.tell()
    with Reader(f"store:{kept.folder}") as reader:
        for number in range(1, 4001):
            send(seq, number)
            if number % 500 == 0:
                kept.store.log.keep()
                kept.tell()
                assert said(reader)[-1] == ("algo", number)
        assert kept.store.log.count > 1
        assert reader.lag == 0
        assert reader.alive


def test_reader_that_begins_in_the_middle_knows_the_senders(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "a")
    seq = lead(kept.store)
    register(seq, name="first")
    send(seq, 1)
    register(seq, name="second", nonce=2)
    position = kept.store.end
    send(seq, 1, 2, sender=2)
    kept.tell()
    with Reader(f"store:{kept.folder}", start=("position", position)) as reader:
        assert said(reader) == [("second", 1), ("second", 2)]
    with Reader(f"store:{kept.folder}", end=("position", position)) as reader:
        assert said(reader) == [("first", 1)]
        with pytest.raises(RingClosedError, match="all of it has been read"):
            reader.poll(timeout=0)


def test_reader_sees_of_a_gated_store_what_copies_have(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "a", gate=1, standbys=("one",))
    seq = lead(kept.store)
    register(seq)
    send(seq, 1, 3)
    kept.tell()
    with Reader(f"store:{kept.folder}") as reader:
        assert said(reader) == []
        kept.store.acks["one"] = (kept.store.end, kept.store.end)
        send(seq, 4)
        kept.tell()
        assert said(reader) == [("a", 1), ("a", 2), ("a", 3)]


class Failover:
    """A store whose copy has its first three messages, and continues from there later."""

    def __init__(self, folder: Path, ahead: int) -> None:
        self.kept = Kept(folder / "a")
        self.seq = lead(self.kept.store)
        register(self.seq)
        send(self.seq, 1, 3)
        self.other = Kept(folder / "b", "one", create=False)
        _copy(self.kept, self.other)
        self.common = self.kept.store.end
        index = self.kept.store.log.end_index
        for number in range(4, 4 + ahead):
            send(self.seq, number)
            self.kept.store.log.keep()
        self.gone = self.kept.store.log.end_index - index
        self.kept.tell()
        self.address = f"store:{self.kept.folder}"

    def happen(self, messages: int = 1) -> None:
        """Let the other host continue from its copy, and this one follow it."""
        follows = lead(self.other.store, promoted=True)
        self.kept.store.cut(self.common)
        for number in range(4, 4 + messages):
            send(follows, number)
            self.other.store.log.keep()
        _copy(self.other, self.kept)
        self.kept.tell()


def _copy(source: Kept, copy: Kept) -> None:
    link = Copy(source.store, copy.store)
    for _ in range(20):
        link.pump()
        copy.store.log.keep()
        link.work(1_000_000)
    assert copy.store.end == source.store.end


def test_reader_is_told_what_was_taken_back(tmp_path: Path) -> None:
    failover = Failover(tmp_path, 2)
    with Reader(failover.address) as reader:
        assert said(reader) == [("a", number) for number in range(1, 6)]
        failover.happen()
        assert said(reader) == [("ROLLBACK", 2), ("a", 4)]


@pytest.mark.parametrize("read", [0, 2])
def test_reader_that_began_behind_what_was_taken_back_is_told_all_of_it(
    tmp_path: Path, read: int
) -> None:
    failover = Failover(tmp_path, 300)
    kept = failover.kept
    places = [int.from_bytes(record[8:16], "little") for record in
              kept.store.log.records(failover.common, kept.store.end)]  # fmt: skip
    start = ("position", places[-read]) if read else "tail"
    with Reader(failover.address, start=start) as reader:
        assert said(reader) == [("a", number) for number in range(304 - read, 304)]
        failover.happen(500)  # the new epoch is beyond where this reader began
        assert said(reader) == [
            ("ROLLBACK", failover.gone),
            *(("a", number) for number in range(4, 504)),
        ]


def test_reader_is_told_what_was_taken_back_over_many_segments(tmp_path: Path) -> None:
    failover = Failover(tmp_path, 8_000)
    assert failover.kept.store.log.count > 2
    with Reader(failover.address) as reader:
        assert len(said(reader)) == 8_003
        failover.happen()
        assert said(reader) == [("ROLLBACK", failover.gone), ("a", 4)]


def test_reader_where_too_few_copies_are_gets_nothing_twice_when_daemons_start(
    tmp_path: Path,
) -> None:
    kept = Kept(tmp_path / "a", standbys=("one",), gate=1)
    seq = lead(kept.store)
    register(seq)
    for number in range(1, 4001):
        send(seq, number)
        kept.store.log.keep()
    kept.store.acks["one"] = (kept.store.end, kept.store.end)
    kept.tell()
    with Reader(f"store:{kept.folder}") as reader:
        assert len(said(reader)) == 4000
        for cuts in (2, 3, 4):  # daemons that do not know yet what copies have
            kept.live.write(kept.live.read()._replace(cuts=cuts, released=1000))
            assert said(reader) == []
        send(seq, 4001)
        kept.store.acks["one"] = (kept.store.end, kept.store.end)
        kept.tell(cuts=4)
        assert said(reader) == [("a", 4001)]


def test_reader_and_app_do_not_begin_where_no_record_begins(tmp_path: Path) -> None:
    failover = Failover(tmp_path, 5)
    end = failover.kept.store.end
    with pytest.raises(ConfigError, match=f"position {end} or earlier, .*was {end + 64}"):
        Reader(failover.address, start=("position", end + 64))
    with pytest.raises(ConfigError, match=f"the position of a record .*was {end - 8}: .*at {end}"):
        Reader(failover.address, start=("position", end - 8))
    with Reader(failover.address, start=("position", end)) as reader:
        send(failover.seq, 9)
        failover.kept.tell()
        assert said(reader) == [("a", 9)]


def test_reader_goes_on_when_the_daemon_is_started_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "a")
    seq = lead(kept.store)
    register(seq)
    send(seq, 1)
    kept.tell()
    with Reader(f"store:{kept.folder}") as reader:
        assert said(reader) == [("a", 1)]
        kept.store.log.close()
        assert said(reader) == []
        again = Kept(kept.folder)
        send(lead(again.store), 2)
        again.tell(cuts=2)
        assert said(reader) == [("a", 2)]


def test_reader_is_told_what_was_removed_and_not_that_it_was_taken_back(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "a")
    seq = lead(kept.store)
    register(seq)
    send(seq, 1)
    kept.tell()
    with Reader(f"store:{kept.folder}") as reader:
        assert said(reader) == [("a", 1)]
        read = kept.store.log.end_index
        for number in range(2, 12001):
            send(seq, number)
            kept.store.log.keep()
        while kept.store.log.count > 2:
            assert kept.store.log.remove_oldest()
        kept.tell(cuts=2)  # as after a restart of the daemon
        found = said(reader)
        removed = kept.store.log.first()[1] - read
        assert found[0] == ("READER", removed)
        assert {what for what, _ in found} == {"READER", "a"}
        assert found[-1] == ("a", 12000)
        assert reader.lapped == removed > 0


@pytest.mark.parametrize("how", ["removed", "lost", "removed, and lost behind"])
def test_reader_is_told_whether_what_it_lacks_was_removed_or_lost(tmp_path: Path, how: str) -> None:
    kept = Kept(tmp_path / "a")
    seq, log = lead(kept.store), kept.store.log
    register(seq)
    send(seq, 1)
    kept.tell()
    with Reader(f"store:{kept.folder}") as reader:
        assert said(reader) == [("a", 1)]
        for number in range(2, 12001):
            send(seq, number)
            log.keep()
        kept.tell()
        assert log.count == 4
        for _ in range(2 if "removed" in how else 0):
            assert log.remove_oldest()
        first = list_segments(kept.folder)[1 if how == "lost" else 0]
        for number in [first] if "lost" in how else []:
            segment_path(kept.folder, number).unlink()
        found = said(reader)
        laps = [each for each in found if each[0] != "a"]
        assert laps == [("READER" if how == "removed" else "DAMAGE", reader.lapped)]
        assert reader.lapped > 0
        assert found[-1] == ("a", 12000)


def test_reader_and_app_are_not_begun_where_records_were_removed(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "a")
    seq = lead(kept.store)
    register(seq, name="algo")
    while kept.store.log.count < 2:
        send(seq, len(numbers(kept.store)) + 1, 20)
        kept.store.log.keep()
    kept.tell()
    oldest = kept.store.log.second
    assert kept.store.log.remove_oldest()
    address = f"store:{kept.folder}"
    for position in (0, oldest - 1):
        with pytest.raises(ConfigError, match=f"position {oldest} or later, .*was {position}"):
            Reader(address, start=("position", position))
    with Reader(address, start=("position", oldest)) as reader:
        assert next(reader).position == oldest
    with Reader(address, start="begin") as reader:
        assert next(reader).position == oldest


def test_store_without_a_record_says_for_whom_its_daemon_waits(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "a", "one", create=False)
    kept.tell()
    with pytest.raises(NotReadyError, match="it has no records yet"):
        Reader(f"store:{kept.folder}")
    described = {"host": "one", "store": "orders", "waits": ""}
    describe_store(kept.folder, described)
    with pytest.raises(NotReadyError, match="one has no records of orders yet: `udpfast bus"):
        Reader(f"store:{kept.folder}")
    describe_store(kept.folder, described | {"waits": "still waiting for two"})
    with pytest.raises(
        NotReadyError, match="one has no records of orders yet: still waiting for two"
    ):
        Reader(f"store:{kept.folder}")


def test_store_that_nobody_keeps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotReadyError, match="no bus daemon has run here"):
        Reader(f"store:{tmp_path}")
    with pytest.raises(NotReadyError, match="no feed has written here yet"):
        Reader(f"store:{tmp_path}", image=True)
    with pytest.raises(ConfigError, match="end must be"):
        Reader(f"store:{tmp_path}", end=5)


def test_store_of_apps_has_no_image(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "a")
    send(lead(kept.store), 1)
    kept.tell()
    kept.live.introduce("S", shared_directory(kept.folder), by_feed=True)
    with pytest.raises(NotReadyError, match="no feed has written here yet"):
        Reader(f"store:{kept.folder}", image=True)
    kept.live.introduce("S", shared_directory(kept.folder), by_feed=False)
    with pytest.raises(ImageError, match="expected a store that a feed writes"):
        Reader(f"store:{kept.folder}", image=True)


def test_reader_is_told_by_alive_alone_that_the_daemon_is_dead(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "a")
    send(lead(kept.store), 1)
    kept.tell()
    with Reader(f"store:{kept.folder}", start="tail") as reader:
        assert reader.alive
        kept.tell(ago_ns=1_000_000_000)
        assert not reader.alive
        assert not reader.wait(0.2)
        kept.tell()
        assert reader.alive


def test_message_is_said_in_words(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "a")
    seq = lead(kept.store)
    register(seq, name="algo", host="S")
    send(seq, 1)
    kept.tell()
    with Reader(f"store:{kept.folder}", kinds=["bus", "sender"]) as reader:
        records = [next(reader) for _ in range(3)]
    assert [record.kind for record in records] == [Kind.RESTART, Kind.SENDER, Kind.BUS]
    assert "name=algo" in record_line(records[1])
    assert "sender=algo type=1 1 bytes" in record_line(records[2])
    words = describe_record(records[2])
    assert (words["sender"], words["type"], words["sent_ns"]) == ("algo", 1, None)


def test_tail_prints_what_a_store_has(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "a")
    seq = lead(kept.store)
    register(seq, name="algo")
    send(seq, 1, 3)
    kept.tell()
    arguments = ["tail", f"store:{kept.folder}", "--begin", "--kind", "bus", "--count", "3"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0
    assert result.output.count("sender=algo") == 3


def test_replay_takes_a_store_by_its_address(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "a")
    seq = lead(kept.store)
    register(seq, name="algo")
    send(seq, 1, 3)
    kept.tell()
    found = []
    for address in (f"store:{kept.folder}", f"{kept.folder}"):
        result = CliRunner().invoke(cli, ["replay", address, "--json"])
        assert result.exit_code == 0, result.exception
        found.append(json.loads(result.output.splitlines()[-1]))
    assert found[0] == found[1]
    assert found[0]["records"] == kept.store.log.end_index


def test_tail_of_a_store_whose_daemon_is_dead_ends_with_what_it_left(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "a")
    seq = lead(kept.store)
    register(seq, name="algo")
    send(seq, 1, 3)
    kept.tell(ago_ns=2_000_000_000)
    command = [sys.executable, "-m", "udpfast", "tail", f"store:{kept.folder}", "--begin"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.count("sender=algo type=") == 3
    assert f"store:{kept.folder}: its daemon on this host is dead" in done.stderr


def test_tail_of_a_store_waits_for_a_daemon_that_is_started_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "a")
    seq = lead(kept.store)
    register(seq, name="algo")
    kept.tell(ago_ns=2_000_000_000)
    ended = threading.Event()

    def start_again() -> None:
        ended.wait(0.5)
        send(seq, 1)
        while not ended.wait(0.05):
            kept.tell()

    daemon = threading.Thread(target=start_again)
    daemon.start()
    try:
        command = ["tail", f"store:{kept.folder}", "--begin", "--kind", "bus", "--count", "1"]
        result = CliRunner().invoke(cli, command)
    finally:
        ended.set()
        daemon.join()
    assert result.output.count("sender=algo type=") == 1
    assert "dead" not in result.output


def test_sleeping_task_is_woken_when_the_daemon_says_that_there_is_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    settings = StoreConfig(sequencer="S", port=1, segment_bytes=BYTES)
    disk = StoreDisk(tmp_path / "a", "orders", "S", settings, create=True)
    seq = lead(disk.store)
    register(seq, name="algo")
    disk.tell(True)

    async def read() -> bool:
        loop = asyncio.get_running_loop()
        with Reader(f"store:{tmp_path / 'a'}", start="tail") as reader:
            # Ticks never come: the descriptor alone ends the sleep.
            monkeypatch.setattr(
                loop, "call_later", lambda *_: type("Timer", (), {"cancel": lambda self: None})()
            )
            arrival = asyncio.create_task(reader.arrival())
            for _ in range(20):
                await asyncio.sleep(0)
            send(seq, 1)
            for _ in range(20):
                await asyncio.sleep(0)
            assert not arrival.done()
            disk.tell(True)
            assert await asyncio.wait_for(arrival, None)
            return next(reader).payload == b"1"

    assert asyncio.run(read())
    disk.end({})


def test_position_of_a_record_of_a_feed_at_work_is_where_it_goes_on(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "a")
    seq = lead(kept.store)
    register(seq)
    kept.tell()
    kept.live.introduce("S", shared_directory(kept.folder), by_feed=True)
    kept.live.begin_feed(1, 0, 0)
    for number in range(1, 11):
        send(seq, number)
    kept.store.log.flush()  # as the feed's loop does; its keeper says the end later
    with Reader(f"store:{kept.folder}") as reader:
        positions = [record.position for record in reader_records(reader, 12)]
    assert positions[-1] > kept.live.read().end
    with Reader(f"store:{kept.folder}", start=("position", positions[-1])) as reader:
        assert [record.position for record in reader_records(reader, 1)] == positions[-1:]


@pytest.mark.parametrize("by_feed", [False, True])
def test_position_of_a_record_that_nobody_told_of_yet_is_where_it_goes_on(
    tmp_path: Path, by_feed: bool
) -> None:
    kept = Kept(tmp_path / "a")
    seq = lead(kept.store)
    register(seq)
    kept.tell()
    if by_feed:
        kept.live.introduce("S", shared_directory(kept.folder), by_feed=True)
        kept.live.begin_feed(1, 0, 0)
    for number in range(1, 11):
        send(seq, number)  # readers see it: neither the mark nor the daemon tells of it
    with Reader(f"store:{kept.folder}") as reader:
        records = reader_records(reader, 13)
    last = records[-1]
    assert last.number == 10
    with Reader(f"store:{kept.folder}", start=("position", last.position)) as reader:
        assert reader.index == last.index
        assert [record.position for record in reader_records(reader, 2)] == [last.position]
    with Reader(f"store:{kept.folder}", start=("position", kept.store.end)) as reader:
        assert reader.index == last.index + 1
        send(seq, 11)
        assert [record.number for record in reader_records(reader, 2)] == [11]
    with pytest.raises(ConfigError, match="or earlier, where this host's copy"):
        Reader(f"store:{kept.folder}", start=("position", kept.store.end + 64))


def test_tail_of_a_store_begins_with_what_is_written_next(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "a")
    seq = lead(kept.store)
    register(seq)
    kept.tell()
    send(seq, 1)  # not announced to readers
    with Reader(f"store:{kept.folder}", start="tail") as reader:
        index = reader.index
        send(seq, 2)
        kept.tell()
        assert [(record.index, record.number) for record in reader_records(reader, 2)] == [
            (index, 2)
        ]


def reader_records(reader: Reader, most: int) -> list[ReadRecord]:
    found = []
    while len(found) < most and reader.wait(0):
        found.append(next(reader))
    return found


@pytest.mark.parametrize("how", ["flipped", "cut", "emptied", "and without its journal"])
def test_store_that_nobody_copies_goes_on_behind_a_damaged_end(tmp_path: Path, how: str) -> None:
    kept = Kept(tmp_path / "a")
    seq, log = lead(kept.store), kept.store.log
    register(seq)
    for number in range(1, 4001):
        send(seq, number)
        log.keep()
    log.close()
    path = segment_path(kept.folder, list_segments(kept.folder)[-1])
    content = bytearray(path.read_bytes())
    at = content.index(b"3950".ljust(8, b"\0"))
    content[at] ^= 1
    path.write_bytes({"cut": content[:at], "emptied": b""}.get(how, content))
    if how == "and without its journal":
        (kept.folder / "journal").unlink()
    kept = Kept(kept.folder, create=False)
    assert "are damaged or missing" in kept.store.log.notes[-1]
    register(lead(kept.store), name="b")
    kept.tell()
    index = 0
    with Reader(f"store:{kept.folder}", start="begin") as reader:
        while reader.wait(0):
            record = next(reader)
            assert record.index == index
            if record.kind is Kind.LAPPED:
                assert record.data["reason"] == LappedReason.DAMAGE
            index += record.lapped or 1
        assert reader.lapped > 0
    assert index == kept.store.log.end_index
