"""A composite's copy, when the order log loses its end: it reports and takes back the lost part."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cases import nightly
from tests.client.test_composite_copy import _entry, copied, copy, finish, records
from tests.client.test_composite_lost import Changing, History, begin, late, more
from udpfast.cli.main import cli
from udpfast.client.composite_copy import CompositeCopy
from udpfast.core.layout import Kind

Own = list[tuple[str, bytes]]


def content(record: bytes) -> bytes:
    """Return the bytes of a record that the journal does not set."""
    return record[32:56] + record[64:]


def kept(directory: Path) -> Own:
    """Return the records of a copy without those that it takes back."""
    found: Own = []
    name, back = "", 0
    for kind, _, said in copied(directory):
        assert kind != Kind.LAPPED
        if kind == Kind.ORDER:
            name, back = "ab"[_entry(said)["input"]], _entry(said)["count"]
        elif kind == Kind.ROLLBACK:
            back = int.from_bytes(said[24:32], "little")
            own = [at for at, (whose, _) in enumerate(found) if whose == name]
            assert 0 < back <= len(own)
            for at in reversed(own[-back:]):
                del found[at]
        else:
            found.append((name, said))
    return found


def check(both: Changing, directory: Path) -> None:
    """Compare with the records of a reader that begins now."""
    expected = [(name, content(record)) for name, record in late(both)]
    found = kept(directory)
    assert found == expected
    assert CliRunner().invoke(cli, ["verify", str(directory)]).exit_code == 0


def backs(directory: Path) -> list[tuple[int, int]]:
    """Return input and count of the entries that take records back."""
    entries = [_entry(said) for kind, _, said in copied(directory) if kind == Kind.ORDER]
    return sorted((entry["input"], entry["count"]) for entry in entries if entry["flags"])


def test_copy_takes_back_what_the_order_lost_while_it_ran(tmp_path: Path) -> None:
    both, place = begin(tmp_path)
    more(both)
    with copy(both, tmp_path / "copy") as copying:
        finish(copying)
        both.lose_order(place)
        finish(copying)
        both.send(1, 2)
        both.order()
        finish(copying)
        assert copying.reached(copying.end())
        assert copying.lapped == 0
    assert backs(tmp_path / "copy") == [(0, 5), (1, 4)]
    check(both, tmp_path / "copy")


@pytest.mark.parametrize("turns", [1, 3, 4, 100])
def test_copy_takes_back_what_the_order_lost_while_it_did_not_run(
    tmp_path: Path, turns: int
) -> None:
    both, place = begin(tmp_path)
    before = len(late(both))
    more(both)
    with copy(both, tmp_path / "copy") as copying:
        for _ in range(turns):
            copying.turn()
    had = len(records(copied(tmp_path / "copy")))
    both.lose_order(place)
    for _ in range(2):  # without new records, and then with some
        with copy(both, tmp_path / "copy") as copying:
            finish(copying)
        check(both, tmp_path / "copy")
        assert sum(count for _, count in backs(tmp_path / "copy")) == max(had - before, 0)
        both.send(0, 2)
        both.order()
    both.lose_order(place)
    with copy(both, tmp_path / "copy") as copying:
        finish(copying)
    check(both, tmp_path / "copy")


def test_copy_of_an_order_that_lost_all_of_its_entries(tmp_path: Path) -> None:
    both, _ = begin(tmp_path)
    with copy(both, tmp_path / "copy") as copying:
        finish(copying)
    had = len(late(both))
    both.lose_order(both.first_entry())
    with copy(both, tmp_path / "copy") as copying:
        finish(copying)
    assert sum(count for _, count in backs(tmp_path / "copy")) == had
    with copy(both, tmp_path / "copy") as copying:
        both.send(1, 3)
        both.order()
        finish(copying)
    check(both, tmp_path / "copy")


@pytest.mark.parametrize("seed", range(12))
def test_copy_that_runs_holds_what_a_later_reader_reads(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    with copy(history.both, tmp_path / "copy") as copying:
        for _ in range(60):
            history.step()
            if history.chance.random() < 0.5:
                copying.turn()
        history.both.send(0)
        history.both.order()
        finish(copying)
    check(history.both, tmp_path / "copy")


@pytest.mark.parametrize("seed", [*range(8), *nightly(*range(8, 25))])
def test_copies_that_were_killed_hold_what_a_later_reader_reads(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    both, chance = history.both, history.chance
    for _ in range(40):
        history.step()
        if chance.random() < 0.5:
            killed: CompositeCopy = copy(both, tmp_path / "killed")
            for _ in range(chance.randrange(8)):
                killed.turn()
            killed.journal.region.close()  # as after kill -9: nothing is sealed
    both.send(0)
    both.order()
    with copy(both, tmp_path / "killed") as copying:
        finish(copying)
        assert copying.lapped == 0
    check(both, tmp_path / "killed")
