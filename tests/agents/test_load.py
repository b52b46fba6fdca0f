"""The load generator over loopback sockets."""

import math
import socket
import time

import pytest

from tests.feed.frames_out import parse
from tests.waiting import PATIENCE_S
from udpfast.agents.feed.load import LoadGenerator
from udpfast.net.sender import DatagramSender


@pytest.fixture
def line():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(PATIENCE_S)
        with DatagramSender(f"127.0.0.1:{listener.getsockname()[1]}") as sender:
            yield listener, sender


def test_load_numbers_and_stamps_every_datagram_by_the_schedule(line):
    listener, sender = line
    before = time.time_ns()
    load = LoadGenerator(
        [sender], rate_per_s=50_000, size_bytes=40, count=100, session_id=7, first_seqno=2**32 - 50
    )
    assert load.run(int(PATIENCE_S * 1e9))
    found = [parse(listener.recv(2048)) for _ in range(100)]
    assert [m.seqno for m in found] == [(2**32 - 50 + i) % 2**32 for i in range(100)]
    assert {(m.session_id, m.encoding, m.object_type, len(m.payload)) for m in found} == {
        (7, 1, 0, 40)
    }
    stamps = [int.from_bytes(m.payload[:8], "little") for m in found]
    assert before <= stamps[0] <= time.time_ns()
    assert all(abs(stamp - stamps[0] - i * 20_000) <= 1 for i, stamp in enumerate(stamps))
    assert (load.sent, load.unsent, load.next_seqno) == (100, [0], 50)


def test_load_reaches_every_line(line):
    listener, sender = line
    load = LoadGenerator([sender, sender], rate_per_s=1e6, count=3)
    assert load.run(int(PATIENCE_S * 1e9))
    assert sorted(parse(listener.recv(2048)).seqno for _ in range(6)) == [1, 1, 2, 2, 3, 3]


def test_load_stops_when_time_is_up_and_goes_on_later(line):
    _, sender = line
    load = LoadGenerator([sender], rate_per_s=0.001, count=2)
    assert not load.run(1_000_000)
    assert not load.run(1_000_000)
    assert load.sent == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate_per_s": 0}, "rate_per_s must be above 0 and at most 1,000,000,000, was 0"),
        ({"rate_per_s": 1e300}, "at most 1,000,000,000, was 1e"),
        ({"rate_per_s": math.nan}, "at most 1,000,000,000, was nan"),
        ({"rate_per_s": 1, "size_bytes": 513}, "size_bytes must be 8 to 512, was 513"),
        ({"rate_per_s": 1, "size_bytes": 7}, "size_bytes must be 8 to 512, was 7"),
        ({"rate_per_s": 1, "count": -1}, "count must be 0 or more, was -1"),
    ],
)
def test_load_impossible_setting_is_refused(line, settings, message):
    with pytest.raises(ValueError, match=message):
        LoadGenerator([line[1]], **settings)


def test_load_line_that_fails_leaves_the_others_alone(line):
    _, whole = line
    broken = DatagramSender("127.0.0.1:9")
    broken.close()
    load = LoadGenerator([broken, whole], rate_per_s=1e6, count=100)
    assert load.run(int(PATIENCE_S * 1e9))
    assert load.unsent == [100, 0]
    assert whole.counts["datagrams"] == 100
    with pytest.raises(OSError, match="cannot send"):
        LoadGenerator([broken], rate_per_s=1e6, count=100).run(int(PATIENCE_S * 1e9))


def test_load_without_lines_is_refused():
    with pytest.raises(ValueError, match=r"expected 1 to 8 lines, found 0"):
        LoadGenerator([], rate_per_s=1)
