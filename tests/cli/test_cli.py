"""The command line: help that works, errors of one line, exit codes, machine-readable output."""

import json
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.client.instance import Instance
from tests.shared import shared
from tests.waiting import PATIENCE_S
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.cli.demo import account_for_missing, compare_books
from udpfast.cli.main import VERBS, _run, cli
from udpfast.core.counter import VERDICTS
from udpfast.core.layout import Kind
from udpfast.core.layouts import CONTROL_LAYOUTS
from udpfast.errors import ConfigError
from udpfast.log.journal import Journal
from udpfast.log.ring import Ring
from udpfast.market.updates import LAYOUTS, PAYLOAD_HASH
from udpfast.monitor.ledger import ledger_of


def run(*arguments):
    """Run `udpfast` as a process; return it with its output."""
    return subprocess.run(
        [sys.executable, "-m", "udpfast", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def fill(*arguments, stdout=False, stderr=False):
    """Run `udpfast` where the disk of a stream is full; return exit code and standard error."""
    with Path("/dev/full").open("w") as full:
        found = subprocess.run(
            [sys.executable, "-m", "udpfast", *arguments],
            stdout=full if stdout else subprocess.DEVNULL,
            stderr=full if stderr else subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            env={key: text for key, text in os.environ.items() if key != "PYTHONUNBUFFERED"},
        )
    return found.returncode, found.stderr


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["venues", "--help"], ["check"]])
def test_output_that_the_disk_has_no_room_for_is_said_in_one_line(arguments):
    said = "udpfast: standard output was not written: No space left on device\n"
    assert fill(*arguments, stdout=True) == (1, said)


@pytest.mark.parametrize(
    ("arguments", "code"), [(["stat", "nowhere"], 1), (["nothing"], 2), (["run", "x.toml"], 2)]
)
def test_errors_that_the_disk_has_no_room_for_leave_the_exit_code(arguments, code):
    assert fill(*arguments, stderr=True) == (code, None)
    assert fill(*arguments, stdout=True, stderr=True) == (code, None)


@pytest.fixture
def instance(tmp_path, monkeypatch):
    """Return the name of an instance that has ended."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    lines = [{"name": "A", "address": "127.0.0.1:0"}]
    with Subscriber({"name": "dead", "incremental": {"lines": lines}}):
        pass
    return "dead"


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example(verb):
    result = CliRunner().invoke(cli, [verb, "--help"])
    assert result.exit_code == 0, result.output
    assert f"udpfast {verb}" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "3 another process does that (run, relay, bus run)"),
        (["demo"], "Takes half a minute"),
        (["send"], "CAPTURE is a pcap or pcapng file, also with .gz."),
        (["tune"], "sudo udpfast tune apply --rx-cpus 2,3 --iface eth1"),
    ],
)
def test_help_says_what_new_users_asked_for(arguments, words):
    result = CliRunner().invoke(cli, [*arguments, "--help"])
    assert words in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "none.toml"], ["none.toml", "expected a TOML file"]),
        (["run", "none.toml"], ["none.toml", "expected a TOML file"]),
        (["stat", "no/such"], ["no/such"]),
        (["tail", "a b"], ["a b"]),
        (["tail", "group:none"], ["no group 'none'"]),
        (["tail", "zmq:none"], ["no such instance"]),
        (["replay", "none.pcap"], ["none.pcap"]),
        (["nonsense"], ["nonsense"]),
        (["reply"], ["No such command 'reply'. Did you mean 'replay' or 'relay'?"]),
        (["stat", "x", "--jsn"], ["Did you mean", "--json"]),
        (["send", "--simulate", "--seconds", "nan"], ["--seconds", "finite", "nan"]),
        (["demo", "--seconds", "inf"], ["--seconds", "inf"]),
        (["send", "--seconds", "abc"], ["'abc' is not a valid number."]),
        (["send", "--count", "abc"], ["'abc' is not a valid integer."]),
        (["send", "--incremental", "127.0.0.1:90010"], ["a port is a number from 1 to 65535"]),
        (["tune", "feed.toml"], ["check, apply, undo or boot-line", "udpfast check feed.toml"]),
        (["export", ".", "out"], ["give a directory as a path with a slash, such as ./\n"]),
    ],
)
def test_wrong_usage_is_one_line_and_no_traceback(arguments, words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["udpfast", *arguments])
    with pytest.raises(SystemExit) as ended:
        _run(cli)  # as `main`, whose signal handlers would stay
    assert ended.value.code in (1, 2)
    said = capsys.readouterr().err
    assert "Traceback" not in said
    for word in words:
        assert word in said


def test_replay_of_no_capture_says_what_it_is_not(tmp_path):
    path = tmp_path / "text.pcap"
    path.write_text("this is no capture, not even a short one")
    result = run("replay", str(path), "--incremental", "9001")
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "text.pcap" in result.stderr


@pytest.mark.parametrize("option", [["--from", "2099-01-01T00:00Z"], ["--until-position", "0"]])
@pytest.mark.parametrize("of", ["journal", "raw", "capture"])
def test_replay_of_a_part_that_is_not_there_says_what_is(option, of, tmp_path):
    source = tmp_path / "journal"
    if of == "capture":
        source = shared("wire", "capture", "roq_udp_clean.pcap.gz")
    else:
        directory = source / "raw" if of == "raw" else source
        with Journal.open(
            directory, CONTROL_LAYOUTS if of == "raw" else LAYOUTS, segment_bytes=1 << 18
        ) as journal:
            journal.append(Kind.MESSAGE, b"x", published_ns=10**9)
    arguments = [*["--raw"] * (of == "raw"), str(source), *option]
    error = CliRunner().invoke(cli, ["replay", *arguments]).exception
    assert isinstance(error, ConfigError)
    assert " covers " in str(error)
    if of != "capture":
        assert "1970-01-01T00:00:01.000000000Z, positions 0 to 72: " in str(error)


def test_replay_of_a_hole_in_a_journal_says_so(tmp_path):
    with Journal.open(tmp_path, LAYOUTS, segment_bytes=1 << 18) as journal:
        for second in (1, 5):
            journal.append(Kind.MESSAGE, b"x", published_ns=10**18 + second * 10**9)
    part = ["--from", str(10**18 + 2 * 10**9), "--until", str(10**18 + 3 * 10**9)]
    arguments = ["replay", str(tmp_path), *part]
    error = CliRunner().invoke(cli, arguments).exception
    assert isinstance(error, ConfigError)
    assert "the part asked for has no records" in str(error)


def test_stat_of_a_ring_without_a_feed_says_that_nothing_counts(tmp_path):
    Ring.create(tmp_path, 1 << 20, PAYLOAD_HASH).close()
    error = CliRunner().invoke(cli, ["stat", f"{tmp_path}/"]).exception
    assert isinstance(error, FileNotFoundError)
    assert "no feed writes this ring" in str(error)


def test_stat_of_a_dead_instance_tells_what_it_knew(instance):
    result = CliRunner().invoke(cli, ["stat", instance, "--json"])
    assert result.exit_code == 0, result.output
    status = json.loads(result.output.splitlines()[-1])
    assert status["state"] == "closed"
    assert status["ledger"]["adds_up"]
    assert set(status["counters"]) == {"feed", "incremental", "snapshot", "incremental.A"}
    text = CliRunner().invoke(cli, ["stat", instance]).output
    assert "the sums are equal" in text


def test_tail_of_a_journal_prints_its_records_and_ends(tmp_path, monkeypatch):
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path))
    with Journal.open(tmp_path / "kept", durable=False, segment_bytes=1 << 18) as journal:
        for number in range(3):
            journal.append(Kind.MESSAGE, b"payload", number=number)
    result = CliRunner().invoke(cli, ["tail", "journal:kept", "--begin", "--json"])
    assert result.exit_code == 0, result.output
    assert [json.loads(line)["number"] for line in result.output.splitlines()] == [0, 1, 2]
    said = CliRunner().invoke(cli, ["tail", "journal:kept"])
    assert said.stdout == "" and "has no writer and gets no more; --begin shows" in said.stderr


def test_tail_of_a_journal_that_is_followed_prints_what_the_next_recorder_writes(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path))
    tail_module = import_module("udpfast.cli.tail")
    printed = tail_module.record_line

    def write_on(record):
        if record.kind == Kind.CONNECTION:
            write_message(tmp_path / "kept", 2)
        return printed(record)

    def write_message(directory, number):
        with Journal.open(directory, LAYOUTS, segment_bytes=1 << 18, durable=False) as journal:
            journal.append(Kind.MESSAGE, b"payload", number=number)

    monkeypatch.setattr(tail_module, "record_line", write_on)
    write_message(tmp_path / "kept", 1)
    followed = ["tail", "journal:kept", "--follow", "--begin", "--count", "3"]
    result = CliRunner().invoke(cli, followed)
    assert result.exit_code == 0, result.output
    kinds = [line.split()[0] for line in result.stdout.splitlines()]
    assert kinds == ["MESSAGE", "CONNECTION", "MESSAGE"], result.output
    result = CliRunner().invoke(cli, ["tail", "kept", "--follow"])
    assert result.exit_code == 2 and "--follow is of journal:NAME" in result.output


@pytest.mark.parametrize(
    ("kind", "numbers"), [("gap", [1]), ("GAP", [1]), ("gaps", [1]), ("message", [0])]
)
def test_tail_kind_goes_by_any_name_that_a_reader_takes(
    kind: str, numbers: list[int], tmp_path: Path
) -> None:
    with Journal.open(tmp_path / "kept", durable=False, segment_bytes=1 << 18) as journal:
        journal.append(Kind.MESSAGE, b"payload", number=0)
        journal.append(Kind.GAP, bytes(64), number=1)
    arguments = ["tail", f"journal:{tmp_path}/kept", "--begin", "--json", "--kind", kind]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    assert [json.loads(line)["number"] for line in result.output.splitlines()] == numbers


def test_tail_unknown_kind_suggests_one_and_says_which_there_are() -> None:
    result = CliRunner().invoke(cli, ["tail", "x", "--kind", "bok"])
    assert result.exit_code == 2
    assert "was 'bok'; did you mean 'BOOK'" in result.output
    assert "top_of_book" in result.output


def test_tail_of_a_symbol_that_was_not_published_says_so(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "feed")
    instance.top(1.0, 2.0)
    instance.ring.close()
    arguments = ["tail", str(tmp_path / "feed"), "--begin", "--symbol"]
    result = CliRunner().invoke(cli, [*arguments, "BTCUSD"])
    assert result.exit_code == 0, result.output
    assert "not published so far: 'BTCUSD'" in result.output
    assert "did you mean 'BTCUSDT'?" in result.output
    assert "TOP_OF_BOOK" in CliRunner().invoke(cli, [*arguments, "BTCUSDT"]).output


def test_instance_that_is_not_there_is_suggested_by_the_file_of_its_feed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    (tmp_path / "shm").mkdir(mode=0o700)
    monkeypatch.chdir(tmp_path)
    Path("feed.toml").write_text('name = "deribit"')
    for verb in ("stat", "tail"):
        error = CliRunner().invoke(cli, [verb, "feed.toml"]).exception
        assert "; did you mean 'deribit', the feed of feed.toml?" in str(error)


@pytest.mark.parametrize("group", ["bus", "spark", "venues", "bench", "wire"])
def test_help_of_a_group_shows_whole_sentences(group: str) -> None:
    output = CliRunner().invoke(cli, [group, "--help"]).output
    _, _, verbs = output.partition("Verbs:")
    assert verbs
    assert "..." not in verbs.partition("Example")[0]


def test_group_suggests_a_similar_command() -> None:
    assert "Did you mean 'stat'?" in CliRunner().invoke(cli, ["bus", "stta"]).output


def test_tail_of_a_closed_ring_prints_its_records_and_ends(instance):
    result = CliRunner().invoke(cli, ["tail", instance, "--begin", "--json"])
    assert result.exit_code == 0, result.output
    by_address = CliRunner().invoke(cli, ["tail", f"ring:{instance}", "--begin", "--json"])
    assert by_address.output == result.output


def test_replay_json_proves_the_rough_capture():
    path = shared("wire", "capture", "roq_udp_rough.pcap.gz")
    expected = json.loads(shared("wire", "capture", "expected.json").read_text())
    outputs = []
    for _ in range(2):
        result = run("replay", str(path), "--json")
        assert result.returncode == 0, result.stderr
        outputs.append(json.loads(result.stdout.splitlines()[-1]))
    first, second = outputs
    assert first == second
    gaps = [
        {key: gap[key] for key in ("session_id", "first", "last", "count")} for gap in first["gaps"]
    ]
    assert gaps == expected["rough"]["gaps_over_both_lines"]
    assert first["ledger"]["adds_up"]
    assert first["ledger"]["datagrams"] == expected["rough"]["datagrams"]
    for symbol, book in expected["final_books"].items():
        (found,) = [value for name, value in first["books"].items() if name.endswith(f":{symbol}")]
        assert found["bids"] == book["bids"]
        assert found["asks"] == book["asks"]
        assert not found["stale"]


def test_ledger_difference_is_seen():
    line = dict.fromkeys((info.name for info in VERDICTS), 0)
    line |= {"units_more": 1, "delivered": 4}
    good = {"incremental.A": {**line, "datagrams": 3}}
    bad = {"incremental.A": {**line, "datagrams": 4}}
    assert ledger_of(good).adds_up
    assert not ledger_of(bad).adds_up


def test_compare_books_sees_every_difference():
    book = {"bids": [[1.0, 2.0]], "asks": [[3.0, 4.0]]}
    assert compare_books({"x": book}, {"x": book}) == {"x": True}
    assert compare_books({"x": book}, {"x": {**book, "asks": [[3.0, 5.0]]}}) == {"x": False}
    assert compare_books({"x": book}, {}) == {"x": False}
    assert compare_books({}, {"x": book}) == {"x": False}


@pytest.mark.parametrize(
    ("delivered", "kernel", "late", "unexplained"),
    [(95, 0, 0, 0), (94, 0, 0, 1), (94, 1, 0, 0), (94, 0, 1, 0), (92, 1, 1, 1), (96, 0, 0, -1)],
)
def test_missing_messages_are_explained_exactly(delivered, kernel, late, unexplained):
    values = {
        "incremental": {"messages": delivered, "lost": 5, "session_discarded": 0},
        "incremental.A": {"kernel_drops": kernel, "late": late, "session_retired": 0},
    }
    published = {
        "channels": {"incremental": {"messages": 100}},
        "lost_on_all_lines": {"incremental": 5},
        "sessions": [1],
    }
    assert account_for_missing(values, published)["unexplained"] == unexplained


@pytest.mark.parametrize(("lost", "unreported"), [(5, 0), (3, 0), (2, 1), (6, -1)])
def test_missing_messages_must_lie_in_reported_gaps(lost, unreported):
    values = {
        "incremental": {"messages": 95, "lost": lost, "session_discarded": 0},
        "incremental.A": {"kernel_drops": 0, "late": 0, "session_retired": 0},
    }
    published = {
        "channels": {"incremental": {"messages": 100}},
        "lost_on_all_lines": {"incremental": 5},
        "sessions": [1],
    }
    assert account_for_missing(values, published)["unreported"] == unreported


def dead_ring(directory, records):
    """Leave the ring of a writer that was killed."""
    directory.mkdir(mode=0o700)
    pid = os.fork()
    if pid == 0:
        ring = Ring.create(directory, 1 << 14, PAYLOAD_HASH)
        for _ in range(records):
            ring.append(Kind.MESSAGE, b"x" * 100)
        ring.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.parametrize("records", [3, 1000])
def test_tail_of_a_dead_instance_prints_what_it_left_and_ends(tmp_path, records):
    dead_ring(tmp_path / "feed", records)
    result = CliRunner().invoke(cli, ["tail", str(tmp_path / "feed"), "--begin", "--json"])
    assert result.exit_code == 0, result.output
    lines = [line for line in result.output.splitlines() if line.startswith("{")]
    shown = [json.loads(line)["index"] for line in lines]
    assert shown == list(range(records - len(shown), records))
    assert len(shown) == min(records, len(shown)) >= min(records, 80)
    assert "is dead" in result.output


def test_tail_of_a_dead_instance_does_not_wait_for_more_and_says_so_in_a_line(tmp_path):
    dead_ring(tmp_path / "feed", 3)
    result = run("tail", str(tmp_path / "feed"))
    assert result.returncode == 0
    (line,) = result.stderr.splitlines()
    assert line.endswith("is dead; 0 records are left to show; --begin shows those that it left")


def test_tail_of_a_feed_that_ended_in_good_order_does_not_call_it_dead(tmp_path):
    (tmp_path / "feed").mkdir(mode=0o700)
    with Ring.create(tmp_path / "feed", 1 << 14, PAYLOAD_HASH) as ring:
        ring.append(Kind.MESSAGE, b"x" * 100)
        ring.append(Kind.MESSAGE, b"x" * 100)
        ring.flush()
    result = run("tail", str(tmp_path / "feed"), "--begin")
    assert result.returncode == 0
    (line,) = result.stderr.splitlines()
    assert line.endswith("has ended; 2 records are left to show")


@pytest.mark.parametrize("command", ["tail nothing", "stat nothing", "verify nothing"])
def test_file_that_is_not_there_is_said_without_a_number(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path))
    result = subprocess.run(
        [sys.executable, "-m", "udpfast", *command.split()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert result.stderr.startswith(f"udpfast: {tmp_path}/nothing: no ")
    assert "Errno" not in result.stderr


def test_verb_starts_with_one_thread_and_looks_for_garbage_after_its_imports():
    code = (
        "import gc, os, sys\n"
        "from udpfast.cli.main import main\n"
        "sys.argv = ['udpfast', 'stat', 'nosuch']\n"
        "try:\n    main()\n"
        "except SystemExit:\n    pass\n"
        "assert 'numpy' in sys.modules\n"
        "threads = len(os.listdir('/proc/self/task'))\n"
        "print(threads, gc.isenabled(), gc.get_freeze_count() > 10_000)\n"
    )
    plain = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=plain)
    assert done.stdout == "1 True True\n"
