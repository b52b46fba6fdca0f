"""How far a replay is: on stderr, and in stat, top and metrics, while and after it runs."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.shared import shared
from udpfast.archive.replay_note import Replay, read_replay
from udpfast.cli.main import cli
from udpfast.cli.replay_progress import LIVE_NS, LOG_NS, NOTE_NS, Progress
from udpfast.cli.replay_records import replay_records
from udpfast.cli.replay_target import Pacer
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind
from udpfast.log.journal import Journal
from udpfast.log.ring import Ring
from udpfast.market.updates import LAYOUTS, PAYLOAD_HASH

BEGAN_NS = 1_787_304_600 * 10**9  # 2026-08-21T09:30:00Z
SECOND_NS = 10**9


@pytest.fixture
def replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a journal whose records a replay has published in ring:again."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path))
    journal = tmp_path / "kept"
    with Journal.open(journal, LAYOUTS, segment_bytes=1 << 18) as kept:
        for second in range(5):
            kept.append(Kind.MESSAGE, b"x", published_ns=BEGAN_NS + second * SECOND_NS)
    result = CliRunner().invoke(cli, ["replay", str(journal), "--to", "ring:again"])
    assert result.exit_code == 0, result.output
    return journal


def test_ring_of_a_replay_is_shown_with_what_it_replays_and_how_far_it_is(replayed: Path) -> None:
    said = f"replay of {replayed}, at 2026-08-21T09:30:04Z, 100 %"
    found = CliRunner().invoke(cli, ["stat", "again"])
    assert found.exit_code == 0, found.output
    assert ": stopped, writer " in found.output and said in found.output
    for arguments in (["stat"], ["top", "--once", "--interval", "0.1"]):
        shown = CliRunner().invoke(cli, arguments).output
        assert said in shown
        assert "unreadable" not in shown and "No such file" not in shown
    status = json.loads(CliRunner().invoke(cli, ["stat", "again", "--json"]).output)
    assert (status["life"], status["records"]) == ("stopped", 5)
    for arguments in ([], ["again"]):
        metrics = CliRunner().invoke(cli, ["stat", "--metrics", *arguments]).output
        assert 'udpfast_replay_done_ratio{feed="again"} 1.0' in metrics
        assert 'udpfast_feed_readable{feed="again"}' not in metrics


def test_reader_of_an_ended_replay_is_told_of_no_recorded_time(replayed: Path) -> None:
    with pytest.warns(RuntimeWarning) as told:
        Reader("ring:again").close()
    assert f"has ended: a replay of {replayed}; the reader begins behind" in str(told[0].message)
    assert "2026-08-21" not in str(told[0].message)


def test_ring_that_another_writer_took_over_is_no_replay(replayed: Path) -> None:
    directory = replayed.parent / "shm" / "again"
    with Ring.create(directory, 1 << 20, PAYLOAD_HASH) as ring:
        assert read_replay(directory, ring.log, ring.epoch) is None
    with pytest.warns(RuntimeWarning, match="wrote last at"):
        Reader("ring:again").close()


def test_progress_is_said_at_an_interval_and_not_when_it_is_quiet(
    capsys: pytest.CaptureFixture[str],
) -> None:
    replay = Replay("kept", "", 1, False, 1.0, BEGAN_NS, BEGAN_NS + 10 * SECOND_NS)
    for live, interval_ns in ((False, LOG_NS), (True, LIVE_NS)):
        progress = Progress(replay, quiet=False, live=live)
        progress.look(1, BEGAN_NS)
        progress.take(BEGAN_NS + 4 * SECOND_NS, 8)
        progress.look(interval_ns, BEGAN_NS + 4 * SECOND_NS)
        assert capsys.readouterr().err == ""
        progress.look(1 + interval_ns, BEGAN_NS + 5 * SECOND_NS)
        said = capsys.readouterr().err
        assert "at 2026-08-21T09:30:05Z, 50 %  8 replayed" in said
        assert said.endswith("\n") is not live
        progress.close()
        assert capsys.readouterr().err == ("\n" if live else "")
    silent = Progress(replay, quiet=True, live=True)
    silent.look(1, BEGAN_NS)
    silent.look(1 + 100 * LOG_NS, BEGAN_NS)
    silent.close()
    assert capsys.readouterr().err == ""


def test_note_beside_the_ring_is_renewed_while_the_replay_runs(tmp_path: Path) -> None:
    with Ring.create(tmp_path, 1 << 20, PAYLOAD_HASH) as ring:
        progress = Progress(Replay("kept", "", 0, False, 1.0), quiet=True)
        progress.publish(tmp_path, counted=False)
        for second in (1, 2):
            progress.look(second * NOTE_NS, BEGAN_NS + second)
            note = read_replay(tmp_path, ring.log, ring.epoch)
            assert note is not None and note.at_ns == BEGAN_NS + second
        assert read_replay(tmp_path, bytes(16), ring.epoch) is None


def test_silence_of_replayed_lines_needs_no_attention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    capture = shared("wire", "capture", "roq_udp_clean.pcap.gz")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        CliRunner().invoke(cli, ["replay", str(capture), "--to", "ring:again"])
    status = json.loads(CliRunner().invoke(cli, ["stat", "again", "--json"]).output)
    assert status["replay"]["counted"] and status["silent"] == []


def test_summary_of_a_journal_tells_how_far_it_is(replayed: Path) -> None:
    progress = Progress(Replay(str(replayed), "", 0, False, 0.0), quiet=True)
    replay_records(replayed, "", Pacer(0), None, None, progress)
    assert progress.entries == 5


def test_record_that_is_not_due_yet_is_not_said_to_be_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached: list[int] = []
    progress = Progress(Replay("kept", "", 0, False, 1.0), quiet=True)
    monkeypatch.setattr(progress, "look", lambda _, at_ns: reached.append(at_ns))

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    pacer = Pacer(1.0, progress)
    stamps = np.array([BEGAN_NS, BEGAN_NS + 3600 * SECOND_NS])
    assert pacer.due(stamps, 0, 2) == 1
    monkeypatch.setattr("time.sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        pacer.due(stamps, 1, 1)
    assert reached == [BEGAN_NS]
