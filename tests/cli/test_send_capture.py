"""`udpfast send CAPTURE`: what was captured of any framing goes out again, spoilt if asked for."""

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from lab.framings import Sent, build
from tests.cli.test_send import Listeners
from udpfast.agents.market.cme_market import CmeMarket
from udpfast.agents.market.venue_market import ItchMarket
from udpfast.cli.send import send
from udpfast.net.capture_writer import CaptureWriter
from udpfast.net.pcap import CAPTURED, CaptureBatch
from udpfast.wire.framing import Framing

COUNT = 300


def datagram(number: int) -> bytes:
    """Return one of MoldUDP64 with one message."""
    return build("moldudp64", Sent(number, (f"message {number}".encode(),), (), b"0000000001"))


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Return a capture of one line."""
    return written(tmp_path / "one.pcap", [(1, datagram(number)) for number in range(1, COUNT + 1)])


def written(path: Path, datagrams: list[tuple[int, bytes]]) -> Path:
    """Write datagrams, each with the last byte of the group that it was sent to, 1 us apart."""
    headers = np.zeros(len(datagrams), CAPTURED)
    for number, (header, (line, data)) in enumerate(zip(headers, datagrams, strict=True)):
        header["timestamp_ns"] = 10**18 + number * 1000
        header["offset"] = sum(len(one) for _, one in datagrams[:number])
        header["size"] = len(data)
        header["source"] = np.frombuffer(bytes(10) + b"\xff\xff\x0a\x00\x00\x01", "u1")
        header["destination"] = np.frombuffer(
            bytes(10) + b"\xff\xff\xef\x01\x01" + bytes([line]), "u1"
        )
        header["source_port"], header["destination_port"] = 5000, 9001
    writer = CaptureWriter(path)
    writer.write(CaptureBatch(headers, b"".join(data for _, data in datagrams)))
    writer.close()
    return path


@pytest.fixture
def listeners():
    found = Listeners(2)
    yield found
    found.close()


def summary(listeners, *arguments, lines=2):
    """Run it, as fast as it goes; return what it says."""
    addresses = ",".join(listeners.addresses[:lines])
    command = ["--incremental", addresses, "--snapshot", "", "--speed", "0", "--json", *arguments]
    result = CliRunner().invoke(send, [str(word) for word in command])
    assert result.exit_code == 0, result.output
    return json.loads(result.output.splitlines()[-1])


def test_capture_of_one_line_is_sent_on_each(capture, listeners):
    found = summary(listeners, capture)
    assert found["framing"] == "moldudp64"
    wanted = [datagram(number) for number in range(1, COUNT + 1)]
    assert [listeners.datagrams(line) for line in range(2)] == [wanted, wanted]
    assert found["messages"] == COUNT


def test_venue_whose_rate_is_beyond_the_host_ends_by_the_clock(listeners):
    words = ["--venue", "itch", "--simulate", "--seconds", "0.1", "--rate", "10000000"]
    market = ItchMarket(1, rate_per_s=10_000_000)
    result = CliRunner().invoke(
        send, ["--incremental", listeners.addresses[0], *words, "--loss", "0.1", "--json"]
    )
    assert result.exit_code == 0
    assert re.search(r"stopped after 1 s; the market was \d\.\d s behind its sch", result.stderr)
    summary = json.loads(result.stdout.splitlines()[-1])
    market.end_ns = summary["end_ns"]
    # It ends as a market of that length, whose end is whole and takes its time.
    wanted = [data for _, _, data in market]
    assert len(wanted) == summary["messages"]
    assert summary["seconds"] > 1.1 + 0.2 - 0.01


def test_end_of_a_venues_market_is_sent_without_faults(listeners):
    words = ["--venue", "itch", "--simulate", "--seed", 6, "--seconds", 0.1, "--rate", 100]
    summary(listeners, *words, "--loss", 1)
    wanted = [data for _, _, data in ItchMarket(6, rate_per_s=100, seconds=0.1)][-3:]
    assert [listeners.datagrams(line) for line in range(2)] == [wanted, wanted]


def test_venue_is_simulated_on_each_line(listeners):
    found = summary(
        listeners, "--venue", "itch", "--simulate", "--seed", 6, "--seconds", 0.2, "--rate", 500
    )
    wanted = [data for _, _, data in ItchMarket(6, rate_per_s=500, seconds=0.2)]
    assert [listeners.datagrams(line) for line in range(2)] == [wanted, wanted]
    assert (found["mode"], found["messages"]) == ("venue", len(wanted))


@pytest.mark.parametrize("recovery", [1, 2])
def test_loops_of_a_venue_have_lines_of_their_own(recovery):
    listeners = Listeners(3 + recovery)
    _, _, definitions, *snapshots = listeners.addresses
    found = summary(
        listeners,
        *("--venue", "cme", "--simulate", "--seed", 6, "--rate", 500, "--count", 60),
        *("--definitions", definitions, "--recovery", ",".join(snapshots)),
    )
    sent = list(itertools.islice(CmeMarket(6, rate_per_s=500), 60))
    # The lines of the market that each address is sent.
    sent_to = [{0}, {0}, {1}, *([{2, 3}] if recovery == 1 else [{2}, {3}])]
    for line, of in enumerate(sent_to):
        assert listeners.datagrams(line) == [data for _, at, data in sent if at in of]
    assert found["messages"] == sum(line == 0 for _, line, _ in sent)
    assert [line["channel"] for line in found["lines"]] == (
        ["incremental"] * 2 + ["recovery"] * recovery + ["definitions"]
    )
    listeners.close()


def test_faults_lose_each_line_its_own_and_say_what_no_line_brought(capture, listeners):
    found = summary(listeners, capture, "--loss", "0.2", "--seed", "5")
    arrived = [listeners.datagrams(line) for line in range(2)]
    for line in range(2):
        assert len(arrived[line]) + found["lines"][line]["lost_on_purpose"] == COUNT
    missing = COUNT - len({*arrived[0], *arrived[1]})
    assert missing == found["lost_on_all_lines"]["incremental"] > 0
    assert arrived[0] != arrived[1]


def test_same_seed_spoils_alike(capture, listeners):
    options = ("--loss", "0.1", "--duplicate", "0.1", "--seed", "9")
    summary(listeners, capture, *options, lines=1)
    first = listeners.datagrams(0)
    summary(listeners, capture, *options, lines=1)
    assert listeners.datagrams(0) == first
    assert len(first) > len(set(first))


def test_lines_of_a_capture_stay_apart(tmp_path, listeners):
    both = [(line, datagram(number)) for number in range(1, 50) for line in (1, 2)]
    del both[10]
    found = summary(listeners, written(tmp_path / "two.pcap", both), "--framing", "moldudp64")
    arrived = [listeners.datagrams(line) for line in range(2)]
    assert sorted(map(len, arrived)) == [48, 49]
    assert found["messages"] == 97


def test_count_ends_a_capture_early(capture, listeners):
    assert summary(listeners, capture, "--count", "10", lines=1)["messages"] == 10
    (unit,) = Framing("moldudp64").units(listeners.datagrams(0)[-1])
    assert unit.number == 10


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--simulate"], "--simulate cannot be combined with a capture"),
        (["--restart-at", "1"], "--restart-at cannot be combined with a capture"),
        (["--framing", "nonsense"], "nonsense"),
    ],
)
def test_what_does_not_go_with_a_capture_is_refused(capture, options, words):
    result = CliRunner().invoke(send, [str(capture), *options])
    assert result.exit_code == 2
    assert words in result.output


def test_capture_of_two_lines_needs_an_address_for_each(tmp_path):
    both = [(line, datagram(number)) for number in range(1, 50) for line in (1, 2)]
    path = written(tmp_path / "two.pcap", both)
    result = CliRunner().invoke(send, [str(path), "--incremental", "127.0.0.1:9001"])
    assert result.exit_code == 2
    assert "one address for each of the capture's 2 lines, found 1" in result.output
