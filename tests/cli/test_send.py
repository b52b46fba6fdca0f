"""`udpfast send` as a command, received by a socket of the test's own."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest
from click.testing import CliRunner

from tests.feed.frames_out import messages, parse
from tests.full_disk import full_disk
from udpfast.cli.send import _open_source, send
from udpfast.cli.send_capture import _REPORT_NS, _Watch
from udpfast.core.stop import Stop
from udpfast.errors import sentence
from udpfast.net.sender import DatagramSender
from udpfast.payload.roq.event import event_to_dict
from udpfast.payload.roq.fitted_book import levels_that_fit


class Listeners:
    """Bound sockets with large queues; everything is read after the command has ended."""

    def __init__(self, count):
        self._stack = ExitStack()
        self.sockets = [
            self._stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            for _ in range(count)
        ]
        for listener in self.sockets:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
            listener.bind(("127.0.0.1", 0))
            listener.setblocking(False)
        self.addresses = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in self.sockets]

    def close(self):
        self._stack.close()

    def datagrams(self, index):
        found = []
        while True:
            try:
                found.append(self.sockets[index].recv(2048))
            except BlockingIOError:
                return found


@pytest.fixture
def listeners():
    found = Listeners(3)
    yield found
    found.close()


def run(*arguments, code=0):
    result = CliRunner().invoke(send, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def summary(listeners, *arguments, snapshots=True):
    result = run(
        "--incremental",
        ",".join(listeners.addresses[:2]),
        *(("--snapshot", listeners.addresses[2]) if snapshots else ()),
        "--json",
        *arguments,
    )
    return json.loads(result.stdout.splitlines()[-1])


def test_send_simulated_market_arrives_on_both_lines(listeners, tmp_path):
    found = summary(
        listeners,
        "--simulate",
        "--speed",
        0,
        "--count",
        200,
        "--linger",
        0.1,
        "--snapshot-ms",
        20,
        "--session-id",
        9,
        "--books",
        tmp_path / "books.json",
    )
    first, second = listeners.datagrams(0), listeners.datagrams(1)
    assert first == second
    assert [line["datagrams"] for line in found["lines"][:2]] == [len(first)] * 2
    arrived = messages(first)
    assert len(arrived) == found["messages"] + found["channels"]["incremental"]["heartbeats"]
    assert arrived[-1].seqno == found["last_seqnos"]["incremental"]
    assert {message.session_id for message in arrived} == {9}
    snapshots = {
        event["value"]["symbol"]: event["value"]
        for event in (
            event_to_dict(message.payload)
            for message in messages(listeners.datagrams(2))
            if message.payload
        )
        if event["value_name"] == "MarketByPriceUpdate"
    }
    books = json.loads((tmp_path / "books.json").read_text())
    assert books == {
        f"simulated:{symbol}": {
            side: [[level["price"], level["quantity"]] for level in value[side]]
            for side in ("bids", "asks")
        }
        for symbol, value in snapshots.items()
    }
    assert len(books) == 4


@pytest.mark.parametrize("before", [None, "{}"])
def test_books_that_do_not_fit_the_disk_are_named_and_leave_nothing(listeners, tmp_path, before):
    path = tmp_path / "books.json"
    if before is not None:
        path.write_text(before)
    with full_disk(100):
        result = CliRunner().invoke(
            send,
            ["--incremental", ",".join(listeners.addresses[:2]), "--snapshot", "", "--simulate"]
            + ["--speed", "0", "--count", "200", "--linger", "0", "--json", "--books", str(path)],
        )
    assert isinstance(result.exception, OSError) and sentence(result.exception) == (
        f"{path}: {os.strerror(errno.EFBIG)}"
    )
    assert json.loads(result.stdout)["events"] == 200
    assert [each.read_text() for each in tmp_path.iterdir()] == [before] * (before is not None)


def test_send_loss_is_counted_per_line_and_repeats_with_its_seed(listeners):
    arguments = (
        "--simulate",
        "--speed",
        0,
        "--count",
        300,
        "--linger",
        0,
        "--seed",
        7,
        "--session-id",
        9,
        "--loss",
        0.1,
    )
    runs = []
    for _ in range(2):
        found = summary(listeners, *arguments)
        arrived = [listeners.datagrams(index) for index in range(2)]
        assert arrived[0] != arrived[1]
        for line, datagrams in zip(found["lines"][:2], arrived, strict=True):
            assert line["lost_on_purpose"] > 10
            assert line["datagrams"] == len(datagrams)
            assert (
                line["datagrams"] + line["lost_on_purpose"]
                == (found["channels"]["incremental"]["datagrams"])
            )
        runs.append([[parse(datagram).seqno for datagram in line] for line in arrived])
    assert runs[0] == runs[1]


def test_send_reorder_and_skew_lose_nothing(listeners):
    summary(
        listeners,
        "--simulate",
        "--rate",
        5000,
        "--count",
        500,
        "--linger",
        0,
        "--reorder",
        0.05,
        "--skew-us",
        500,
    )
    first, second = listeners.datagrams(0), listeners.datagrams(1)
    seqnos = [parse(datagram).seqno for datagram in first]
    assert seqnos != sorted(seqnos)
    assert sorted(first) == sorted(second)
    assert sorted(set(seqnos)) == list(range(1, max(seqnos) + 1))


def test_send_restart_begins_a_second_session(listeners):
    found = summary(
        listeners, "--simulate", "--speed", 0, "--count", 600, "--linger", 0, "--restart-at", 0.03
    )
    assert len(found["sessions"]) == 2
    arrived = messages(listeners.datagrams(0))
    assert list(dict.fromkeys(message.session_id for message in arrived)) == found["sessions"]
    assert [m.seqno for m in arrived if m.session_id == found["sessions"][1]][:3] == [1, 2, 3]


def test_send_raw_load_is_whole_datagrams(listeners):
    found = summary(
        listeners,
        *("--rate", 20_000, "--size", 100, "--count", 400, "--first-seqno", 2**32 - 1),
        snapshots=False,
    )
    arrived = [parse(datagram) for datagram in listeners.datagrams(1)]
    assert [message.seqno for message in arrived] == [2**32 - 1, *range(399)]
    assert {len(message.payload) for message in arrived} == {100}
    assert (found["mode"], found["messages"], found["last_seqnos"]["incremental"]) == (
        "load",
        400,
        398,
    )


def test_send_summary_for_people_names_lines_and_loss(listeners):
    result = run(
        "--incremental",
        listeners.addresses[0],
        "--snapshot",
        "",
        "--simulate",
        "--speed",
        0,
        "--count",
        50,
        "--linger",
        0,
    )
    assert f"incremental line 0 to {listeners.addresses[0]}: " in result.stdout
    assert "0 lost on purpose" in result.stdout


def test_send_simulated_market_has_no_end_of_its_own():
    market = _open_source({"market": None, "seed": 1, "levels": 200, "count": 0})
    with pytest.raises(TypeError, match="an endless market"):
        len(market)


def test_send_dense_market_says_what_is_left_out(listeners):
    result = run(
        *("--incremental", listeners.addresses[0], "--snapshot", "", "--linger", 0),
        *("--simulate", "--levels", 5_000, "--speed", 0, "--count", 1),
    )
    most = levels_that_fit("simulated", "AMBER")
    assert (
        f"simulated:AMBER: its book has 5,000 levels, but a message can carry only {most:,}: the "
        "levels furthest from the best prices were left out" in result.stderr
    )
    assert f"up to {5_000 - most:,} levels more than a message can carry" in result.stdout
    assert max(len(m.payload) for m in messages(listeners.datagrams(0))) > 130_000


def test_send_interfaces_go_to_the_lines_by_their_place(listeners, monkeypatch):
    opened = []

    monkeypatch.setattr(
        "udpfast.cli.send.DatagramSender",
        lambda address, **options: (
            opened.append((address, options["interface"])) or DatagramSender(address)
        ),
    )
    a, b, snapshot = listeners.addresses
    arguments = ("--incremental", f"{a},{b}", "--snapshot", snapshot, "--simulate", "--count", 1)
    arguments = (*arguments, "--linger", 0)
    for interfaces, expected in (
        ("lo", ["lo", "lo", "lo"]),
        ("lo,", ["lo", "", "lo"]),
        ("lo,eth0", ["lo", "eth0", "lo"]),
    ):
        opened.clear()
        run(*arguments, "--interface", interfaces)
        assert opened == list(zip((a, b, snapshot), expected, strict=True))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--incremental", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "--interface", "a,b"),
            "--interface takes one name, or one for each of the 3 lines, found 2",
        ),
        (
            ("--incremental", "127.0.0.1:1,127.0.0.1:2", "--interface", "a,b,c", "--rate", "5"),
            "--interface takes one name, or one for each of the 2 lines, found 3",
        ),
        (
            ("--incremental", "127.0.0.1:1,,127.0.0.1:2", "--rate", "5"),
            "expected an ip:port on both sides of each comma",
        ),
        (("--snapshot", "127.0.0.1:1", "--rate", "5"), "--snapshot needs --market or --simulate"),
        (("--framing", "iex_tp", "--simulate"), "--framing needs a capture"),
        (("--venue", "itch", "--rate", "5"), "--venue needs --simulate and takes no capture"),
        (
            ("--venue", "cme", "--simulate", "--snapshot", "127.0.0.1:1"),
            "its loops go to --recovery and --definitions",
        ),
        (("--definitions", "127.0.0.1:1", "--simulate"), "--definitions needs --venue"),
        (
            ("--venue", "cme", "--simulate", "--books", "books.json"),
            "--books cannot be combined with --venue: it is for the market of Roq",
        ),
        (
            ("--venue", "cme", "--simulate", "--restart-at", "1"),
            "--restart-at cannot be combined with --venue: it is for the market of Roq",
        ),
        (
            ("--venue", "pitch", "--simulate", "--recovery", "127.0.0.1:1"),
            "--recovery takes at most 0 addresses here, found 1",
        ),
        ((), "choose --market, --simulate, a CAPTURE, or raw load with --rate"),
        (("--market", "x", "--simulate"), "choose one of --market and --simulate"),
        (("--rate", "5", "--loss", "0.1"), "faults need --market, --simulate or a capture"),
        (("--incremental", "", "--rate", "5"), "--incremental needs at least one address"),
    ],
)
def test_send_wrong_usage_says_what_to_choose(arguments, message):
    assert message in run(*arguments, code=2).output


def test_send_to_what_is_no_address_names_the_option():
    found = CliRunner().invoke(send, ["--simulate", "--snapshot", "foo"])
    assert str(found.exception).startswith("--snapshot: expected an address")


def test_recorded_market_without_pyarrow_names_the_extra(listeners, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "x_l2.parquet").touch()
    where = ("--incremental", listeners.addresses[0], "--snapshot", "")
    arguments = (*where, "--market", str(tmp_path / "x"))
    result = CliRunner().invoke(send, arguments)
    assert str(result.exception) == "pyarrow is not installed: pip install 'udpfast[market]'"


VENUE = ["--venue", "itch", "--simulate", "--rate", "20"]


@pytest.mark.parametrize(
    "mode",
    [["--simulate", "--snapshot", ""], VENUE, ["--rate", "1000"]],
    ids=["market", "venue", "load"],
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_what_is_sent_with_its_summary(mode, number):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(60)
        to = f"127.0.0.1:{listener.getsockname()[1]}"
        command = [sys.executable, "-m", "udpfast", "send", *mode, "--incremental", to]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sender:
            listener.recv(2048)
            sender.send_signal(number)
            output, _ = sender.communicate(timeout=60)
    assert sender.returncode == 0
    assert f"incremental line 0 to {to}: " in output


def test_venue_market_says_each_second_how_far_it_is(capsys):
    watch = _Watch(0, Stop(), quiet=False)
    watch.taken = 1_234
    assert not watch.stops(_REPORT_NS - 1)
    assert capsys.readouterr().err == ""
    assert not watch.stops(_REPORT_NS)
    assert not watch.stops(_REPORT_NS + 1)
    assert capsys.readouterr().err == "   1.0 s, 1,234 datagrams\n"
    assert not _Watch(0, Stop(), quiet=True).stops(_REPORT_NS)
    assert capsys.readouterr().err == ""
