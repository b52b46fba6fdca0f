"""Records in the store of a feed have the times of its loop, as its recording has them."""

from pathlib import Path

import numpy as np
import pytest

from tests.agents.test_replayer import batch_of, datagram, feed
from udpfast import Kind, Reader
from udpfast.agents.feed.feed_store import FeedStore
from udpfast.agents.feed.replayer import Replayer
from udpfast.core.clock import realtime_ns
from udpfast.log.cursor import RingCursor
from udpfast.log.record_hash import RecordHash
from udpfast.net.pcap import CaptureEvent


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of instances and journals."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path / "journals"))
    (tmp_path / "shm").mkdir(mode=0o700)
    return tmp_path


def play(directory: Path, output: str, times_ns: list[int]) -> list[int]:
    """Let a feed receive a message at each time of its loop's clock; return the recorded times."""
    instance = directory / "shm" / output
    instance.mkdir(mode=0o700)
    store = {"store": {"directory": str(directory / "store")}} if output == "store" else {}
    config = feed(name=output, output=output, record={"what": "raw"}, **store)
    batch = batch_of([(0, datagram(number)) for number in range(1, len(times_ns) + 1)])
    batch.headers["event"] = CaptureEvent.OWN
    batch.headers["timestamp_ns"] = batch.headers["unix_ns"] = times_ns
    batch.headers["now_ns"] = np.arange(len(times_ns)) * 1_000
    keeper = FeedStore(config) if output == "store" else None
    player = Replayer(config, instance, None if keeper is None else keeper.disk)
    assert player.play(batch, 0, len(times_ns)) == len(times_ns)
    player.finish()
    with RingCursor.attach(instance / "capture", "begin", 100) as cursor:
        headers = cursor.headers[: cursor.poll()]
        kept = [int(each["published_ns"]) for each in headers if each["kind"] == Kind.DATAGRAM]
    player.close()
    if keeper is not None:
        keeper.close()
    return kept


def read(address: str) -> tuple[list[int], str]:
    """Return the times at which messages were published, and the hash of all records."""
    said = RecordHash()
    times = []
    with Reader(address, start="oldest") as reader:
        while reader.wait(0):
            batch = reader.poll(timeout=0)
            said.add(batch.headers, batch.offsets, batch.payloads)
            messages = batch.headers["kind"] == Kind.MESSAGE
            times += batch.headers["published_ns"][messages].tolist()
    return times, said.hexdigest()


@pytest.mark.filterwarnings("ignore:.*its writer .* has ended")
def test_records_of_a_store_are_those_that_a_ring_gets(directory: Path) -> None:
    base_ns = realtime_ns() + 10**10
    times_ns = [base_ns + step for step in (0, 0, 0, 5, 5, 100)]  # one batch has one time
    for output in ("ring", "store"):
        assert play(directory, output, times_ns) == times_ns
    stored, ring = read(f"store:{directory / 'store'}"), read("ring:ring")
    assert stored == ring and stored[0] == times_ns


def test_time_of_a_store_that_stands_still_is_that_of_what_was_received(directory: Path) -> None:
    base_ns = realtime_ns() + 10**10
    kept = play(directory, "store", [base_ns, base_ns - 5 * 10**9, base_ns + 1])
    assert kept == [base_ns, base_ns, base_ns + 1]  # the clock was set back
    assert read(f"store:{directory / 'store'}")[0] == kept
