"""What long-running commands write to their log: each line with its level, also the last one."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from tests.system.feed_files import feed as feed_file
from tests.waiting import PATIENCE_S, wait_until
from udpfast.monitor.status import read_status

pytestmark = pytest.mark.system

TIMED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (ERROR|WARNING|INFO) ")

HEARS_HANGUP = ("env", "--default-signal=HUP")


@pytest.fixture(params=["journal", "file"])
def reader(request: pytest.FixtureRequest) -> str:
    """Return who reads the log."""
    return str(request.param)


@pytest.fixture
def feed(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of a feed on loopback."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path / "journals"))
    return feed_file(tmp_path, "test", port=port)


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """End what a test that failed has left."""
    yield
    while Logged.started:
        process = Logged.started.pop()
        process.terminate()
        process.wait(PATIENCE_S)


class Logged:
    """A command whose log goes to a file, which systemd's journal reads, or nobody."""

    started: ClassVar[list[subprocess.Popen[bytes]]] = []

    def __init__(self, reader: str, path: Path, *words: object, prefix: tuple[str, ...] = ()):
        self.reader, self.path = reader, path
        with path.open("w") as file:
            status = os.fstat(file.fileno())
            journal = f"{status.st_dev}:{status.st_ino}" if reader == "journal" else ""
            self.process = subprocess.Popen(
                # Under nohup they would ignore SIGHUP, as this process does.
                [*prefix, *HEARS_HANGUP, sys.executable, "-m", "udpfast", *map(str, words)],
                stdout=file, stderr=file, env=os.environ | {"JOURNAL_STREAM": journal},
            )  # fmt: skip
        self.started.append(self.process)

    def lines(self) -> list[tuple[str, str]]:
        """Return level and text of each line; fail if one has none."""
        found = []
        for line in self.path.read_text().splitlines():
            if self.reader == "journal":
                begin = re.match(r"<(\d)>", line)
                names = {"3": "ERROR", "4": "WARNING", "6": "INFO"}
                assert begin, line
                found.append((names[begin[1]], line[3:]))
            else:
                begin = TIMED.match(line)
                assert begin, line
                found.append((begin[1], line.partition(f" {begin[1]} ")[2]))
        return found

    def end(self, number: int | None = None) -> list[tuple[str, str]]:
        """Wait for its end, after a signal; return its lines."""
        if number is not None:
            self.process.send_signal(number)
        try:
            self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()
        return self.lines()


def test_wrong_key_is_an_error_of_the_log(feed: Path, reader: str, tmp_path: Path) -> None:
    feed.write_text("nonsense = 1\n" + feed.read_text())
    lines = Logged(reader, tmp_path / "log", "run", feed).end()
    assert lines[-1][0] == "ERROR"
    assert "nonsense" in lines[-1][1]


def test_all_lines_of_a_group_that_is_refused_are_errors(
    feed: Path, reader: str, tmp_path: Path
) -> None:
    other = tmp_path / "other.toml"
    for path in (feed, other):
        path.write_text("nonsense = 1\n" + feed.read_text())
    lines = Logged(reader, tmp_path / "log", "run", feed, other).end()
    assert [level for level, _ in lines] == ["ERROR"] * 2


@pytest.mark.parametrize("group", [False, True], ids=["alone", "in a group"])
def test_port_that_is_taken_is_an_error_of_the_log(
    group: bool, feed: Path, reader: str, tmp_path: Path
) -> None:
    first = Logged(reader, tmp_path / "first", "run", feed)
    wait_until(lambda: " at " in (tmp_path / "first").read_text(), "its ring")
    try:
        other = tmp_path / "other.toml"
        other.write_text(feed.read_text().replace('"test"', '"other"'))
        if group:
            second = Logged(reader, tmp_path / "log", "run", other, "--host", hostfile(tmp_path))
            wait_until(lambda: "cannot bind" in second.path.read_text(), "its failure")
            lines = second.end(signal.SIGTERM)
        else:
            lines = Logged(reader, tmp_path / "log", "run", other).end()
        assert [level for level, text in lines if text.startswith("udpfast: cannot bind")]
        assert {level for level, text in lines if text.startswith("udpfast: cannot bind")} == {
            "ERROR"
        }
    finally:
        first.end(signal.SIGTERM)


def hostfile(folder: Path) -> Path:
    path = folder / "host.toml"
    path.write_text('group = "both"\n')
    return path


@pytest.mark.parametrize(
    "command",
    ["record nosuch", "run feed.toml --cors 2", "metrics --listen nowhere", "relay nosuch.toml"],
)
def test_last_line_of_what_runs_long_is_an_error_of_the_log(
    command: str, feed: Path, tmp_path: Path
) -> None:
    lines = Logged("journal", tmp_path / "log", *command.split()).end()
    assert [level for level, _ in lines] == ["ERROR"] * len(lines)


def test_bus_with_wrong_settings_says_so_in_its_log(reader: str, tmp_path: Path) -> None:
    file = tmp_path / "bus.toml"
    file.write_text("[hosts]\n")
    lines = Logged(reader, tmp_path / "log", "bus", "run", file, "--host", "one").end()
    assert [level for level, _ in lines] == ["ERROR"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_start_and_stop_are_said_and_by_which_signal(
    number: signal.Signals, feed: Path, reader: str, tmp_path: Path
) -> None:
    run = Logged(reader, tmp_path / "log", "run", feed)
    wait_until(lambda: "test at" in run.path.read_text(), "its start")
    lines = run.end(number)
    assert [level for level, _ in lines[-2:]] == ["INFO", "INFO"]
    assert lines[-2][1].startswith(f"udpfast: test: stops: {number.name}")
    again = ", to be started again" if number == signal.SIGUSR1 else ""
    assert lines[-1][1].startswith(f"udpfast: test: stopped in good order{again}")


def test_recorder_group_and_bus_name_the_signal_that_stops_them(
    feed: Path, reader: str, tmp_path: Path
) -> None:
    run = Logged(reader, tmp_path / "log", "run", feed, "--host", hostfile(tmp_path))
    wait_until(lambda: "test at" in run.path.read_text(), "its start")
    record = Logged(reader, tmp_path / "record", "record", "test")
    wait_until(lambda: "from record" in record.path.read_text(), "its recorder")
    lines = record.end(signal.SIGHUP)
    assert record.process.returncode == 0
    assert lines[-2] == ("INFO", "udpfast: test: stops: SIGHUP")
    assert lines[-1][0] == "INFO" and "records on the disk" in lines[-1][1]
    lines = run.end(signal.SIGTERM)
    assert lines[-1] == ("INFO", "udpfast: group both: stopped in good order, 1 feed")
    assert ("INFO", "udpfast: group both: stops: SIGTERM") in lines
    assert ("INFO", "udpfast: test: stops: SIGTERM") in lines


def test_who_reads_a_log_may_end_before_what_runs_long(feed: Path, reader: str) -> None:
    feed.write_text("session.inactivity_timeout_ms = 500\n" + feed.read_text())
    ours, theirs = os.pipe()
    status = os.fstat(theirs)
    journal = f"{status.st_dev}:{status.st_ino}" if reader == "journal" else ""
    process = subprocess.Popen(
        [sys.executable, "-m", "udpfast", "run", feed],
        stdout=theirs, stderr=theirs, env=os.environ | {"JOURNAL_STREAM": journal},
    )  # fmt: skip
    os.close(theirs)
    with os.fdopen(ours) as log:
        assert "test at" in log.readline()
    # Now it says in vain that its line is silent, and then that it stops.
    wait_until(lambda: read_status("test").silent, "a silent line")
    process.terminate()
    assert process.wait(PATIENCE_S) == 0
    assert read_status("test").life == "stopped"


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root, to drop a right"
)
def test_what_the_host_did_not_grant_is_a_warning(feed: Path, reader: str, tmp_path: Path) -> None:
    feed.write_text("receive.rcvbuf_bytes = 1073741824\n" + feed.read_text())
    prefix = ("setpriv", "--bounding-set", "-net_admin")
    run = Logged(reader, tmp_path / "log", "run", feed, prefix=prefix)
    wait_until(lambda: "asked for" in run.path.read_text(), "what it did not get")
    said = [line for line in run.end(signal.SIGTERM) if "asked for" in line[1]]
    assert [level for level, _ in said] == ["WARNING"]
    assert "udpfast: test: incremental.A" in said[0][1]
