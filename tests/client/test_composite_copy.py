"""A composite's copy is a journal with the same records on every host, even after kills."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.bus.drive import send
from tests.client.test_composite_source import Composite, read
from udpfast.archive.bus_files import copy_directory, stored_journal
from udpfast.bus.merger import ORDER_ENTRY as ENTRY
from udpfast.cli.main import cli
from udpfast.client.composite_copy import CompositeCopy
from udpfast.client.reader import Reader
from udpfast.client.record import ReadRecord
from udpfast.core.layout import LAPPED, ORDER_ENTRY, ROLLBACK, Kind
from udpfast.errors import ConfigError, FormatError, NotReadyError, WriterExistsError
from udpfast.log.segment import segment_path

Found = list[tuple[int, int, bytes]]


def copy(both: Composite, directory: Path, **options: int) -> CompositeCopy:
    # Small segments, because a segment that is opened again is read to its end.
    options = {"segment_bytes": 1 << 20} | options
    return CompositeCopy(both.address.removeprefix("composite:"), directory, **options)


def finish(copying: CompositeCopy) -> None:
    while copying.turn():
        pass


def copied(directory: Path) -> Found:
    """Return a copy's records: kind, session, and the bytes that the journal does not set."""
    with Reader(f"journal:{directory}") as reader:
        return [(r.kind, r.session, bytes(r)[32:56] + bytes(r)[64:]) for r in reader]


def records(found: Found) -> list[bytes]:
    """Return the composite's own records in a copy."""
    return [content for kind, _, content in found if kind not in (Kind.ORDER, Kind.LAPPED)]


def as_read(both: Composite) -> list[bytes]:
    with Reader(both.address) as reader:
        return [record[32:56] + record[64:] for record in read(reader)
                if record[4] != Kind.LAPPED]  # fmt: skip


def test_copy_is_what_readers_read_with_the_order_between(tmp_path: Path) -> None:
    both = Composite(tmp_path)
    for number in range(1, 60):
        send(both.seqs[number % 2], (number + 1) // 2)
        if number % 7 == 0:
            both.work()
    both.work()
    with copy(both, tmp_path / "copy") as copying:
        finish(copying)
        assert copying.reached(copying.end())
    found = copied(tmp_path / "copy")
    assert records(found) == as_read(both)
    # Each entry names the input of the records that follow.
    left = 0
    for kind, session, content in found:
        if kind == Kind.ORDER:
            assert left == 0
            entry = _entry(content)
            left, source = entry["count"], entry["input"] + 1
        else:
            left -= 1
        assert session == source
    assert left == 0


def _entry(content: bytes) -> dict[str, int]:
    row = np.frombuffer(content, ORDER_ENTRY, 1, 24)[0]
    return {name: int(row[name]) for name in ORDER_ENTRY.names or ()}


def test_copies_made_live_or_late_or_killed_are_the_same_bytes(tmp_path: Path) -> None:
    both = Composite(tmp_path)
    chance = random.Random(5)
    both.work()
    live = copy(both, tmp_path / "live", segment_bytes=1 << 18)
    killed = tmp_path / "killed"
    sent = [0, 0]
    for turn in range(200):
        which = chance.randrange(2)
        count = chance.randrange(1, 40)
        send(both.seqs[which], sent[which] + 1, count)
        sent[which] += count
        both.kept["ab"[which]].store.log.keep()
        if chance.random() < 0.6:
            both.work()
        finish(live)
        if turn % 9 == 0:
            copying = copy(both, killed, segment_bytes=1 << 18)
            for _ in range(chance.randrange(4)):
                copying.turn()
            copying.journal.region.close()  # as after kill -9: nothing is sealed, nothing closed
    both.work()
    finish(live)
    live.close()
    for directory in (killed, tmp_path / "late"):
        with copy(both, directory, segment_bytes=1 << 18) as copying:
            finish(copying)
    assert copied(tmp_path / "late") == copied(tmp_path / "live") == copied(killed)
    assert records(copied(killed)) == as_read(both)
    assert len(list((tmp_path / "late").glob("*.segment"))) > 1
    assert CliRunner().invoke(cli, ["verify", str(killed)]).exit_code == 0


def test_copy_says_what_was_taken_back_and_a_later_one_leaves_it_out(tmp_path: Path) -> None:
    both = Composite(tmp_path)
    position = both.send_ahead()
    with copy(both, tmp_path / "live") as live:
        finish(live)
        both.lose(position)
        finish(live)
    found = copied(tmp_path / "live")
    kinds = [kind for kind, _, _ in found]
    backs = [_entry(content) for kind, _, content in found
             if kind == Kind.ORDER and _entry(content)["flags"]]  # fmt: skip
    assert [(back["input"], back["count"]) for back in backs] == [(0, 3)]
    rollback = found[kinds.index(Kind.ROLLBACK)]
    assert int.from_bytes(rollback[2][24:32], "little") == 3
    assert ROLLBACK.itemsize == 16
    with copy(both, tmp_path / "late") as late:
        finish(late)
    later = copied(tmp_path / "late")
    assert records(later) == as_read(both)
    assert [c for k, _, c in later if k == Kind.ORDER] == [
        c for k, _, c in found if k == Kind.ORDER
    ]
    messages = [c[24:] for k, _, c in later if k == Kind.BUS]
    assert messages == [b"1", b"2"]
    assert not any(kind == Kind.LAPPED for kind, _, _ in found + later)


def test_copy_goes_on_after_a_loss_that_came_while_it_did_not_run(tmp_path: Path) -> None:
    both = Composite(tmp_path)
    position = both.send_ahead()
    with copy(both, tmp_path / "copy") as copying:
        finish(copying)
    both.lose(position)
    with copy(both, tmp_path / "copy") as copying:
        finish(copying)
    found = copied(tmp_path / "copy")
    assert [c[24:] for k, _, c in found if k == Kind.BUS] == [b"1", b"2", b"3", b"4", b"2"]
    backs = [_entry(c) for k, _, c in found if k == Kind.ORDER and _entry(c)["flags"]]
    assert [(back["input"], back["count"]) for back in backs] == [(0, 3)]
    assert not any(kind == Kind.LAPPED for kind, _, _ in found)


def test_copy_counts_what_an_input_does_not_have_any_more(tmp_path: Path) -> None:
    both = Composite(tmp_path)
    for first in range(1, 5000, 50):
        send(both.seqs[0], first, 50)
        send(both.seqs[1], first // 50 + 1)
        both.kept["a"].store.log.keep()
        both.work()
    whole = as_read(both)
    with segment_path(tmp_path / "a", 1).open("r+b") as file:
        file.seek(file.read().index(b"2010"))
        file.write(b"x")
    left = as_read(both)
    with copy(both, tmp_path / "copy") as copying:
        finish(copying)
        assert copying.lapped == len(whole) - len(left)
    found = copied(tmp_path / "copy")
    assert records(found) == left
    # Entries state which records follow or are missing; a direct reader reports the same.
    expected, kinds = 0, []
    for kind, _, content in found:
        if kind == Kind.ORDER:
            assert expected == 0
            expected = _entry(content)["count"]
        else:
            kinds.append(kind)
            expected -= int.from_bytes(content[24:32], "little") if kind == Kind.LAPPED else 1
    assert expected == 0 and kinds.count(Kind.LAPPED) > 1
    assert LAPPED.itemsize == 16
    with Reader(both.address) as reader:
        told = [r.lapped for r in _all(reader) if r.kind is Kind.LAPPED]
    assert sum(told) == len(whole) - len(left)
    # A copy that was cut off anywhere has the same entries.
    chance = random.Random(3)
    again: Found = []
    while again != found:
        copying = copy(both, tmp_path / "again")
        for _ in range(chance.randrange(60)):
            copying.turn()
        copying.journal.region.close()
        again = copied(tmp_path / "again")


def _all(reader: Reader) -> list[ReadRecord]:
    found = []
    while reader.wait(0):
        found.append(next(reader))
    return found


def test_copy_waits_for_a_host_that_is_behind_as_long_as_a_daemon_runs(tmp_path: Path) -> None:
    both = Composite(tmp_path)
    send(both.seqs[0], 1, 3)
    both.work()
    ahead, order = both.kept["a"].store, both.node.sequencer
    assert order is not None
    entry = ENTRY.pack(0, 0, ahead.end, ahead.end + 72, ahead.log.end_index, 1)
    assert order.order(entry, 0, 1_000_000_000, 1_700_000_001_000_000_000)
    both.kept["order"].tell()
    with copy(both, tmp_path / "copy") as copying:
        finish(copying)
        both.kept["order"].tell()
        assert not copying.reached(copying.end())
        live = both.kept["order"].live
        live.write(live.read()._replace(alive_ns=0))
        with pytest.raises(NotReadyError, match="no running bus daemon"):
            copying.reached(copying.end())


def test_copy_of_something_else_is_refused(tmp_path: Path) -> None:
    one, two = Composite(tmp_path / "one"), Composite(tmp_path / "two")
    for both in (one, two):
        send(both.seqs[0], 1, 3)
        both.work()
    with copy(one, tmp_path / "copy") as copying:
        finish(copying)
        with pytest.raises(WriterExistsError):
            copy(one, tmp_path / "copy")
    with pytest.raises(FormatError, match="records of something else: choose another"):
        copy(two, tmp_path / "copy")
    with pytest.raises(FileNotFoundError, match=r"expected composite\.json"):
        CompositeCopy(str(tmp_path / "one" / "a"), tmp_path / "other")
    (tmp_path / "one" / "a" / "bus.json").write_text("{}")
    with pytest.raises(ConfigError, match="expected a composite, found a store"):
        CompositeCopy(str(tmp_path / "one" / "a"), tmp_path / "other")
    with pytest.raises(FileNotFoundError, match=r"udpfast record composite:.* --end"):
        stored_journal(one.address)


def test_verbs_know_a_composite_by_its_name(tmp_path: Path) -> None:
    both = Composite(tmp_path)
    send(both.seqs[0], 1, 3)
    send(both.seqs[1], 1, 2)
    both.work()
    run = CliRunner().invoke(cli, ["record", both.address, "--end", "--json"])
    assert run.exit_code == 0, run.output
    directory = copy_directory(tmp_path / "order")
    assert json.loads(run.stdout)[str(directory)]["records"] == len(copied(directory))
    assert CliRunner().invoke(cli, ["verify", both.address]).exit_code == 0
    wrong = CliRunner().invoke(cli, ["record", both.address, "--full", "drop"])
    assert "--full does not apply to a composite" in str(wrong.exception)
    wrong = CliRunner().invoke(cli, ["record", "store:orders"])
    assert "a store is a journal already" in str(wrong.exception)
