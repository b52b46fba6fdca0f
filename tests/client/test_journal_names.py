"""Files of names that do not belong to a journal's records never give a wrong name."""

import json
import shutil

import pytest
from click.testing import CliRunner

from tests.agents.test_recorder import drive, recorder_of
from tests.client.instance import Instance
from udpfast.agents.feed.republisher import Republisher
from udpfast.cli.main import cli
from udpfast.client.reader import Reader
from udpfast.errors import FormatError
from udpfast.export.scan import Scan
from udpfast.log.journal_cursor import JournalCursor
from udpfast.market.updates import LAYOUTS

SYMBOLS = ("BTCUSDT", "ETHUSDT", "SOLUSDT")


@pytest.fixture
def journal(tmp_path):
    """Return a journal of three symbols, and a journal of others with the same ids."""
    for directory, symbols in ((tmp_path / "a", SYMBOLS), (tmp_path / "b", SYMBOLS[::-1])):
        directory.mkdir()
        instance = Instance(directory / "feed", 1 << 22)
        for symbol in symbols:
            instance.top(1, 2, symbol=symbol)
        recorder = recorder_of(instance, directory)
        drive(recorder)
        recorder.on_stop()
        instance.close()
    return tmp_path / "a" / "journal"


def foreign(path, other):
    """Put another journal's names in their place."""
    shutil.copy(other, path)


def flipped(path, _other):
    """Damage one name."""
    content = path.read_bytes()
    path.write_bytes(content.replace(b"ETHUSDT", b"ETHUSDC"))


def cut(path, _other):
    """Cut the file."""
    path.write_bytes(path.read_bytes()[:5000])


def zeroed(path, _other):
    """Remove the page that identifies the table."""
    content = bytearray(path.read_bytes())
    content[4096 + 32 : 4096 + 48] = bytes(16)
    path.write_bytes(content)


def lost(path, _other):
    """Remove the file, as a copy of segments alone does."""
    path.unlink()


DAMAGES = [
    (foreign, {None}),
    (flipped, {"BTCUSDT", None, "SOLUSDT"}),
    (cut, {None}),
    (zeroed, {None}),
]


def damage(journal, how):
    """Damage the journal's names."""
    (path,) = journal.glob("*.names")
    how(path, next((journal.parents[1] / "b" / "journal").glob("*.names")))


@pytest.mark.filterwarnings("ignore:.*names of instruments are not known|.*names are damaged")
@pytest.mark.parametrize(("how", "known"), DAMAGES)
def test_reader_of_damaged_names_has_none_that_is_wrong(journal, how, known):
    damage(journal, how)
    with Reader(f"journal:{journal}") as reader:
        found = [record.symbol for record in reader]
    assert len(found) == 3 and set(found) == known
    assert all(symbol in (None, own) for symbol, own in zip(found, SYMBOLS, strict=True))


@pytest.mark.parametrize("how", [how for how, _ in DAMAGES])
def test_reader_without_its_names_says_so_once(journal, how):
    damage(journal, how)
    with (
        pytest.warns(UserWarning, match=r"names .*(not known in segment 1|are damaged)") as said,
        Reader(f"journal:{journal}") as reader,
    ):
        list(reader)
    assert len(said) == 1


@pytest.mark.parametrize("how", [lost, *(how for how, _ in DAMAGES)])
def test_verify_of_damaged_names_says_so(journal, how):
    found = CliRunner().invoke(cli, ["verify", str(journal), "--json"])
    assert (found.exit_code, json.loads(found.stdout)["problems"]) == (0, [])
    damage(journal, how)
    found = CliRunner().invoke(cli, ["verify", str(journal), "--json"])
    report = json.loads(found.stdout)
    assert (found.exit_code, report["records"], report["missing"]) == (1, 3, 0)
    (problem,) = report["problems"]
    assert "00000001.names" in problem


@pytest.mark.parametrize("how", [how for how, _ in DAMAGES])
def test_export_and_scan_of_damaged_names_say_so(journal, tmp_path, how):
    damage(journal, how)
    command = ["export", str(journal), str(tmp_path / "root"), "--table", "tops", "--json"]
    found = CliRunner().invoke(cli, command)
    assert (found.exit_code, json.loads(found.stdout)["nameless"]) == (1, 3)
    scan = Scan(str(journal), "tops")
    with pytest.raises(FormatError, match="their instruments are unknown"):
        list(scan.batches(scan.pieces()[0]))


@pytest.mark.parametrize("how", [how for how, _ in DAMAGES])
def test_replay_into_a_ring_refuses_damaged_names(journal, tmp_path, how):
    damage(journal, how)
    (tmp_path / "again").mkdir(mode=0o700)
    republisher = Republisher(tmp_path / "again", 1 << 20)
    with (
        JournalCursor.attach(journal, follow=False, layouts=LAYOUTS) as cursor,
        pytest.raises(FormatError),
    ):
        republisher.take(cursor, 0, cursor.poll())
    republisher.close()
