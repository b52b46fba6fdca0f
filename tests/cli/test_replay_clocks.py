"""`udpfast replay` of stamps of a clock that was set: ranges, the pace, and what it says."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from lab import frames
from tests.net.test_pcap import ethernet, ipv4, pcap, udp
from udpfast.cli import replay_target
from udpfast.cli.main import cli
from udpfast.cli.replay_target import Pacer
from udpfast.core.layout import Kind
from udpfast.log.journal import Journal
from udpfast.market.updates import LAYOUTS

SECOND = 1_000_000_000
BEGIN_NS = 1_800_000_000 * SECOND
#: Seconds of the stamps: set back by an hour, forward by two, back by ten seconds.
SECONDS = (*range(10), *range(-3600, -3590), *range(3600, 3610), *range(3600, 3605))
STAMPS = [BEGIN_NS + second * SECOND for second in SECONDS]
PORT = int.from_bytes(udp(b"")[2:4], "big")
SET_BACK = "the clock was set back 2 times, by up to 3609.000 s"


def of_journal(directory):
    """Make a journal; return the arguments that replay it."""
    with Journal.open(directory / "journal", LAYOUTS, segment_bytes=1 << 18) as journal:
        for number, at_ns in enumerate(STAMPS):
            journal.append(Kind.RESTART, b"", received_ns=at_ns, published_ns=at_ns)
            if number % 7 == 6:
                journal.prepare()
                journal.roll(number, unix_ns=at_ns)
    return [str(directory / "journal")]


def of_capture(directory):
    """Make a capture file; return the arguments that replay it."""
    found = [
        (at_ns, ethernet(ipv4(udp(frames.datagram(b"x", seqno=number + 1)))))
        for number, at_ns in enumerate(STAMPS)
    ]
    (directory / "a.pcap").write_bytes(pcap(found, nanoseconds=True))
    return [str(directory / "a.pcap"), "--incremental", str(PORT)]


def replay(*arguments):
    """Return exit code, result and text."""
    found = CliRunner().invoke(cli, ["replay", *arguments, "--json"])
    return found.exit_code, json.loads(found.stdout.splitlines()[-1])


@pytest.mark.parametrize("made", [of_journal, of_capture])
@pytest.mark.parametrize(
    ("start", "end"), [(0, 5), (-3600, -3595), (3602, 3604), (-10, 3602), (5, 4000), (None, 8)]
)
def test_replay_of_a_range_has_every_record_of_it_wherever_it_lies(tmp_path, made, start, end):
    wanted = sum((start is None or start <= second) and second < end for second in SECONDS)
    arguments = ["--until", str(BEGIN_NS + end * SECOND)]
    if start is not None:
        arguments += ["--from", str(BEGIN_NS + start * SECOND)]
    code, found = replay(*made(tmp_path), *arguments)
    if made is of_capture:
        assert found["ledger"]["datagrams"] == wanted
    else:
        assert (code, found["records"]) == (0, wanted)


@pytest.mark.parametrize("made", [of_journal, of_capture])
def test_replay_says_how_often_the_clock_was_set_back(tmp_path, made):
    arguments = made(tmp_path)
    found = CliRunner().invoke(cli, ["replay", *arguments])
    assert SET_BACK in found.stdout
    assert replay(*arguments)[1]["set_back"] == {"count": 2, "longest_ns": 3609 * SECOND}


@pytest.mark.parametrize("speed", [1.0, 10.0])
def test_pacer_keeps_the_pace_behind_each_step_of_the_clock(monkeypatch, speed):
    now_ns = 0

    def clock():
        nonlocal now_ns
        now_ns += 1_000
        return now_ns

    def sleep(seconds):
        nonlocal now_ns
        now_ns += int(seconds * 1e9)

    monkeypatch.setattr(replay_target, "monotonic_ns", clock)
    monkeypatch.setattr(replay_target.time, "sleep", sleep)
    stamps, pacer, at, taken = np.array(STAMPS), Pacer(speed), 0, []
    while at < len(stamps):
        stop = pacer.due(stamps, at, 1)
        taken += [now_ns] * (stop - at)
        at = stop
    steps = np.diff(taken) / 1e9
    expected = np.maximum(np.diff(np.array(SECONDS)), 0) / speed
    assert np.abs(steps - expected).max() < 0.01
