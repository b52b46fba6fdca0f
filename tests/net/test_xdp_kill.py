"""`udpfast run` over AF_XDP is killed: the interface still works for everyone."""

import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import udpfast
from bench.namespaces import Wire, run
from tests.net.xdp_link import (
    MODES,
    assert_udp_arrives,
    assert_works_for_others,
    attached_program,
)
from tests.shared import ROOT
from tests.waiting import wait_until

pytestmark = pytest.mark.system

LINES = {"A": ("10.99.0.2", 9201), "B": ("239.9.9.2", 9202)}
FEED = """
name = "killed"
[receive]
path = "xdp"
[xdp]
mode = "{mode}"
frames = 1024
[ring]
capacity_bytes = 4194304
[[incremental.lines]]
name = "A"
address = "10.99.0.2:9201"
[[incremental.lines]]
name = "B"
address = "239.9.9.2:9202"
interface = "vb"
"""


@pytest.fixture
def feed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path / "feed.toml"


@pytest.mark.parametrize("mode", MODES)
def test_kill_of_a_running_feed_leaves_the_interface_to_everyone(
    link: Wire, feed: Path, mode: str
) -> None:
    feed.write_text(FEED.format(mode=mode))
    first = started(link, feed)
    try:
        send_until_received(link, range(1, 101))
        assert attached_program(link)
        assert joined(link)
        assert_works_for_others(link)
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    assert first.returncode == -signal.SIGKILL
    # The kernel removes the program in the background, a moment after the process has ended.
    wait_until(lambda: not attached_program(link))
    assert not joined(link)
    assert_works_for_others(link)
    with link.sender() as sender:  # the kernel serves the lines' ports again
        for host, port in LINES.values():
            assert_udp_arrives(link, sender, host, port)
    second = started(link, feed)
    try:
        send_until_received(link, range(1001, 1101))
        assert attached_program(link)
    finally:
        second.send_signal(signal.SIGTERM)
        second.communicate()
    assert second.returncode == 0
    assert not attached_program(link)
    assert_works_for_others(link)


def started(link: Wire, feed: Path) -> subprocess.Popen[str]:
    """Start `udpfast run` at the b side, and wait until it is ready."""
    with link.inside(link.b):
        process = subprocess.Popen(
            [sys.executable, "-m", "udpfast", "run", str(feed)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ,
        )
    assert process.stdout is not None
    # A slower mode than requested is reported before the start.
    said = process.stdout.readline()
    assert "WARNING udpfast: killed: vb (AF_XDP): frames are copied" in said
    assert "killed at" in process.stdout.readline()
    return process


def send_until_received(link: Wire, seqnos: range) -> None:
    """Send messages over both lines; all of them must arrive over both."""
    before = line_counts()
    with link.sender() as sender:
        for seqno in seqnos:
            message = struct.pack("<BBBBHHIIQ", 1, 0, 0, 0, 0, 7, seqno, 0, seqno)
            for address in LINES.values():
                sender.sendto(message, address)
    expected = [count + len(seqnos) for count in before]
    wait_until(lambda: line_counts() == expected, f"{expected} datagrams")
    for name in LINES:
        line = udpfast.counters("killed")[f"incremental.{name}"]
        assert line["frames"] == line["datagrams"]
        assert line["kernel_drops"] == 0


def line_counts() -> list[int]:
    """Return how many datagrams each line brought."""
    counters = udpfast.counters("killed")
    return [counters[f"incremental.{name}"]["datagrams"] for name in LINES]


def joined(link: Wire) -> bool:
    """Return whether the b side's interface is a member of line B's group."""
    return "239.9.9.2" in run("ip", "-n", link.b, "maddr", "show", "dev", "vb")
