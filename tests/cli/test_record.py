"""`udpfast record` and `udpfast verify`, as a user calls them."""

import json
import re

import msgspec
import pytest
from click.testing import CliRunner

from tests.client.instance import Instance
from udpfast import Reader
from udpfast.archive.feed_settings import read_feed, write_feed
from udpfast.cli.main import cli
from udpfast.config import parse_feed
from udpfast.core.layout import Kind
from udpfast.core.layouts import CONTROL_LAYOUTS
from udpfast.errors import ConfigError, FormatError
from udpfast.log.journal import Journal
from udpfast.log.journal_state import journal_state
from udpfast.log.segment import segment_path
from udpfast.market.updates import LAYOUTS


def call(*arguments):
    """Return exit code and output."""
    found = CliRunner().invoke(cli, [str(each) for each in arguments])
    return found.exit_code, found.stdout


@pytest.fixture
def journal(tmp_path):
    """Return the directory of a journal of 3,000 records, as `udpfast record` leaves it."""
    instance = Instance(tmp_path / "feed", 1 << 22)
    for _ in range(3000):
        instance.append(Kind.MESSAGE, bytes(200))
    instance.close()
    directory = tmp_path / "journal"
    code, text = call("record", instance.directory, directory, "--segment-bytes", 1 << 18, "--json")
    assert code == 0
    assert json.loads(text)[str(directory)]["synced_records"] == 3000
    return directory


def test_verify_of_a_sound_journal_finds_nothing(journal):
    code, text = call("verify", journal, "--json")
    found = json.loads(text)
    assert (code, found["records"], found["problems"]) == (0, 3000, [])
    assert found["state"]["synced_index"] == 3000
    code, text = call("verify", journal)
    assert code == 0 and "3,000 records valid" in text
    assert "not recorded: 0 records overwritten before they were recorded, 0 without room" in text


def test_verify_of_a_damaged_journal_says_where_and_how_much(journal):
    path = segment_path(journal, 2)
    content = bytearray(path.read_bytes())
    content[200_000] ^= 1
    path.write_bytes(content)
    code, text = call("verify", journal, "--json")
    found = json.loads(text)
    assert code == 1 and len(found["problems"]) == 1 and "damaged" in found["problems"][0]
    assert found["missing"] > 0 and found["records"] + found["missing"] == 3000


def test_verify_looks_at_the_raw_capture_too(journal):
    with Journal.open(journal / "raw", segment_bytes=1 << 18) as raw:
        for number in range(10):
            raw.append(Kind.DATAGRAM, bytes(24), published_ns=number)
    code, text = call("verify", journal, "--json")
    assert (code, json.loads(text)["raw"]["records"]) == (0, 10)
    path = segment_path(journal / "raw", 1)
    content = bytearray(path.read_bytes())
    content[len(content.rstrip(b"\0")) - 64] ^= 1
    path.write_bytes(content)
    code, text = call("verify", journal, "--json")
    found = json.loads(text)
    assert (code, found["problems"], found["raw"]["missing"]) == (1, [], 1)
    code, text = call("verify", journal)
    assert code == 1 and "raw capture" in text and "damaged" in text


@pytest.fixture
def datagrams_only(tmp_path):
    """Return the directory of a journal as `record.what = "raw"` leaves it."""
    directory = tmp_path / "journal"
    with Journal.open(directory / "raw", CONTROL_LAYOUTS, segment_bytes=1 << 18) as raw:
        raw.append(Kind.DATAGRAM, bytes(24), published_ns=1)
    directory.chmod(0o700)
    lines = [{"name": "A", "address": "127.0.0.1:0"}]
    write_feed(
        parse_feed({"name": "feed", "incremental": {"lines": lines}, "record": {"what": "raw"}}),
        directory / "raw",
    )
    return directory


def test_verify_of_a_journal_without_records_by_its_settings_finds_nothing(datagrams_only):
    code, text = call("verify", datagrams_only, "--repair", "--json")
    found = json.loads(text)
    assert (code, found["problems"], found["raw"]["records"]) == (0, [], 1)
    code, text = call("verify", datagrams_only)
    assert (code, text.splitlines()[0]) == (
        0,
        'no records: the feed kept datagrams only (record.what = "raw")',
    )
    assert "None" not in text and "1 records valid" in text


def test_verify_of_a_journal_whose_records_are_gone_says_so(datagrams_only):
    settings = read_feed(datagrams_only / "raw")
    both = msgspec.structs.replace(settings.record, what="both")
    write_feed(msgspec.structs.replace(settings, record=both), datagrams_only / "raw")
    code, text = call("verify", datagrams_only)
    assert code == 1 and "the file `journal` is lost or damaged" in text


def test_replay_and_readers_of_a_journal_without_records_say_why(datagrams_only):
    for target in ("", "ring:again", "engine"):
        arguments = ["replay", str(datagrams_only), "--to", target]
        error = CliRunner().invoke(cli, arguments).exception
        assert isinstance(error, ConfigError), error
        assert "keeps datagrams only" in str(error) and "--raw" in str(error)
    with pytest.raises(FileNotFoundError, match="keeps datagrams only"):
        Reader(f"journal:{datagrams_only}", timeout=0)


def test_verify_of_a_journal_that_lost_its_end_says_so(journal):
    sorted(journal.glob("*.segment"))[-1].unlink()
    code, text = call("verify", journal, "--json")
    found = json.loads(text)
    assert code == 1 and found["records"] < 3000
    assert len(found["problems"]) == 1 and "3000 records" in found["problems"][0]


@pytest.mark.parametrize("verb", ["verify", "export"])
def test_directory_without_a_journal_is_refused(tmp_path, verb):
    (tmp_path / "empty").mkdir(mode=0o700)
    arguments = [verb, str(tmp_path / "empty"), str(tmp_path / "out")]
    error = CliRunner().invoke(cli, arguments[: 2 + (verb == "export")]).exception
    assert isinstance(error, FormatError)
    assert "expected a journal, found none of a journal's files" in str(error)


def test_journal_that_lies_elsewhere_is_hinted_at(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path / "journals"))
    (tmp_path / "kept").mkdir()
    for name, hint in (("kept", r"did you mean \./kept\?"), ("keep", r"\(record\.directory\)")):
        with pytest.raises(FileNotFoundError, match=hint):
            raise CliRunner().invoke(cli, ["verify", name]).exception


def test_verify_repair_cuts_what_no_record_is(journal):
    path = sorted(journal.glob("*.segment"))[-1]
    content = bytearray(path.read_bytes())
    content[512:592] = bytes(80)  # its seal: as if its writer had been killed
    end = len(bytes(content).rstrip(b"\0"))
    content[end - 5 : end + 40] = b"\1" * 45  # END, and what no record is
    path.write_bytes(content)
    code, text = call("verify", journal, "--json")
    assert code == 1 and json.loads(text)["cut_bytes"] > 0
    code, text = call("verify", journal, "--repair", "--json")
    assert json.loads(text)["repaired"]["cut_bytes"] > 0
    code, text = call("verify", journal, "--json")
    assert (code, json.loads(text)["records"]) == (0, 3000)


@pytest.mark.parametrize("harm", ["lost", "damaged"])
def test_verify_repair_says_that_it_made_the_file_journal_anew(journal, harm):
    path = journal / "journal"
    path.unlink() if harm == "lost" else path.write_bytes(b"none of it")
    code, text = call("verify", journal)
    assert (code, "made anew" in text) == (1, False)
    code, text = call("verify", journal, "--repair")
    said = f"{path}: made anew from the segments: the former one, which may have counted more "
    assert (code, said in text) == (1, True)
    path.unlink()
    code, text = call("verify", journal, "--repair", "--json")
    assert [note.startswith(said) for note in json.loads(text)["repaired"]["notes"]] == [True]
    code, text = call("verify", journal, "--repair", "--json")
    assert (code, json.loads(text)["repaired"]["notes"]) == (0, [])


def test_verify_of_a_journal_that_is_written_ignores_what_is_on_its_way(journal):
    with Journal.open(journal, LAYOUTS, segment_bytes=1 << 18) as writer:
        writer.append(Kind.MESSAGE, b"\2" * 100)
        path = sorted(journal.glob("*.segment"))[-1]
        end = len(path.read_bytes().rstrip(b"\0"))
        with path.open("r+b") as file:
            file.seek(end + 100)
            file.write(b"\1" * 8)  # a payload whose header is not there yet
        assert call("verify", journal)[0] == 0


def test_record_of_what_came_while_nobody_recorded_says_so(tmp_path):
    for count in (3, 3000):
        instance = Instance(tmp_path / "feed", 1 << 17)
        for _ in range(count):
            instance.append(Kind.MESSAGE, bytes(200))
        instance.close()
        words = ["record", str(instance.directory), str(tmp_path / "journal")]
        found = CliRunner().invoke(cli, words)
        assert (found.exit_code, found.stdout) == (0, "")
        text = found.stderr
        assert ("not recorded: " in text) is (count == 3000)
    (missed,) = re.findall(r"not recorded: ([0-9,]+) that came while no recorder ran", text)
    assert "overwritten" not in text
    assert all(
        re.match(r"[0-9T:.-]+Z (INFO|WARNING) udpfast: ", line) for line in text.splitlines()
    )
    assert journal_state(tmp_path / "journal").lapped == int(missed.replace(",", ""))


def test_verify_by_name_says_where_the_feed_records_now(journal, tmp_path, monkeypatch):
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path))
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    (tmp_path / "shm" / "journal").mkdir(mode=0o700, parents=True)
    present = tmp_path / "shm" / "journal" / "journal"
    present.write_text(f"{journal}")
    said = [CliRunner().invoke(cli, ["verify", "journal"]).stderr]
    present.write_text("/elsewhere")
    said.append(CliRunner().invoke(cli, ["verify", "journal"]).stderr)
    expected = f"the feed journal records to /elsewhere, and this is {journal}"
    assert [expected in each for each in said] == [False, True]
