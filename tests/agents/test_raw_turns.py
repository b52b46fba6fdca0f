"""A raw capture has the turns of the loop that decide: its replay makes the same records."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner

from lab.frames import datagram
from udpfast.agents.feed.recorder import Recorder
from udpfast.agents.feed.replayer import Replayer
from udpfast.archive.feed_settings import write_feed
from udpfast.cli.main import cli
from udpfast.config import parse_feed
from udpfast.net.pcap import CAPTURED, CaptureBatch, CaptureEvent

MS = 1_000_000
BEGAN_NS = 10**18
TURN_MS = 20  # seldom: holes are given up as datagrams come


def brought() -> list[tuple[int, int, bytes]]:
    """A message a ms. B is 30 ms behind, and dies. Of each hundred both lose one, and A another.

    No hole is open when the loop turns to choose how long holes wait, each 100 ms.
    """
    found = []
    for number in range(1, 1_200):
        data = datagram(b"%d" % number, session_id=7, seqno=number, control=1)
        if number % 100 not in (43, 57):
            found.append((number * MS, 0, data))
        if number % 100 != 43 and number < 600:
            found.append((number * MS + 30 * MS, 1, data))
    return found


def entries() -> CaptureBatch:
    """What a loop does: it takes datagrams, and turns."""
    events = [(at_ns, CaptureEvent.OWN, line, data) for at_ns, line, data in brought()]
    events += [(at_ms * MS + 1, CaptureEvent.EXPIRE, 0, b"") for at_ms in range(0, 1_260, TURN_MS)]
    events.sort(key=lambda event: event[0])
    headers = np.zeros(len(events), CAPTURED)
    offset = 0
    for header, (at_ns, event, line, data) in zip(headers, events, strict=True):
        header["timestamp_ns"] = header["unix_ns"] = BEGAN_NS + at_ns
        header["now_ns"] = at_ns
        header["event"], header["line"] = event, line
        header["offset"], header["size"] = offset, len(data)
        offset += len(data)
    return CaptureBatch(headers, b"".join(data for *_, data in events))


def replay(*arguments: object) -> dict[str, Any]:
    result = CliRunner().invoke(cli, ["replay", *map(str, arguments), "--json"])
    assert result.output, result.exception
    return dict(json.loads(result.output.splitlines()[-1]))


def test_raw_capture_has_the_turns_that_choose_how_long_holes_wait(tmp_path: Path) -> None:
    config = parse_feed(
        {
            "name": "test",
            "window": {"lost_packet_wait_us": "auto"},
            "record": {"directory": str(tmp_path / "journal"), "what": "both"},
            "incremental": {
                "lines": [{"name": n, "address": f"0.0.0.0:{9001 + i}"} for i, n in enumerate("AB")]
            },
        }
    )
    feed = tmp_path / "feed"
    feed.mkdir()
    write_feed(config, feed)
    replayer = Replayer(config, feed)
    recorder = Recorder(config.record, feed, "test")
    recorder.on_start()
    batch = entries()
    assert replayer.play(batch, 0, len(batch.headers)) == len(batch.headers)
    waits = replayer.counters()["incremental"]["wait_ns"]
    replayer.finish()
    for now_ns in range(100):
        recorder.work(now_ns)
        recorder.keep()
    replayer.close()
    recorder.on_stop()
    assert waits == 5 * MS  # B, for which holes waited longer, is dead
    live = replay(tmp_path / "journal")
    again = replay(tmp_path / "journal", "--raw")
    assert live["kinds"]["GAP"] == 12 + 6
    assert (again["records"], again["sha256"]) == (live["records"], live["sha256"])
