"""Names beside a ring that are not its own: who hands records on never takes them for those."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agents.fanout import Turned
from tests.client.instance import NAMES_CAPACITY, Instance
from tests.waiting import PATIENCE_S
from udpfast import Kind, Reader
from udpfast.agents.feed.recorder import Recorder
from udpfast.agents.relay.relay import Relay
from udpfast.config import RecordConfig, RelayConfig
from udpfast.log.ring import Ring
from udpfast.market.names import NameTable, name_table_size
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.names import create_names, names_table


class Marked(Instance):
    """An instance whose ring says which table of names its records go by, as a feed's does."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.ring.close()
        (directory / "ring").unlink()
        self.mark()

    def mark(self) -> None:
        self.ring = Ring.create(self.directory, 1 << 20, PAYLOAD_HASH, names=self.names.mark)

    def lose_names(self) -> None:
        """Be killed, lose the names, and have others in their place; the ring is as it was."""
        self.ring.region.close()
        self.names_region.close()
        (self.directory / "names").unlink()
        self.names_region = create_names(self.directory / "names", name_table_size(NAMES_CAPACITY))
        self.names = NameTable(names_table(self.names_region), capacity=NAMES_CAPACITY)
        for name in ("binance-usdm", "WRONG", "WORSE"):
            self.names.intern(name)
        self.names_region.mark_ready()

    def go_on(self) -> None:
        """Be the writer that comes next: its records lie in another file."""
        self.mark()
        self.ring.announce_restart(1)


@pytest.fixture
def instance(tmp_path: Path) -> Marked:
    return Marked(tmp_path / "feed")


def drive(work: Callable[[int], int]) -> None:
    """Let an agent do all that there is."""
    idle, now_ns = 0, 1_000_000_000
    while idle < 4:
        now_ns += 200_000_000
        idle = 0 if work(now_ns) > 0 else idle + 1


@pytest.mark.parametrize("begins", ["before", "behind", "after"])
def test_recorder_keeps_no_other_names(instance: Marked, tmp_path: Path, begins: str) -> None:
    def recorder_of() -> Recorder:
        config = RecordConfig(directory=str(tmp_path / "journal"), segment_bytes=1 << 18)
        recorder = Recorder(config, instance.directory, "feed")
        recorder.on_start()
        return recorder

    def work(now_ns: int) -> int:
        taken = recorder.work(now_ns)
        assert recorder.recordings[0].failure is None
        recorder.keep()
        return taken

    instance.top(1.0, 2.0, symbol="OWN")
    if begins != "after":
        recorder = recorder_of()
    if begins == "before":
        drive(work)
    instance.lose_names()
    if begins == "after":
        recorder = recorder_of()
    drive(work)
    instance.go_on()
    instance.top(3.0, 4.0, symbol="NEW")
    drive(work)
    recorder.on_stop()
    instance.close()
    with Reader(f"journal:{tmp_path / 'journal'}") as reader:
        found = [record.symbol for record in reader if record.kind is Kind.TOP_OF_BOOK]
    assert found == [None if begins == "after" else "OWN", "NEW"]


def test_fan_out_hands_out_no_other_names(instance: Marked) -> None:
    instance.top(1.0, 2.0, symbol="OWN")
    instance.lose_names()
    with Turned(instance) as fanout:
        reader = fanout.open(image=True)
        found = [next(reader)]
        instance.go_on()
        instance.top(3.0, 4.0, symbol="NEW")
        instance.ring.flush()
        for _ in range(1000):
            fanout.turn()
            if reader.wait(PATIENCE_S / 1000):
                found.append(next(reader))
            if found[-1].symbol == "NEW":
                break
        tops = [record.symbol for record in found if record.kind is Kind.TOP_OF_BOOK]
        assert tops == [None, "NEW"]
        reader.close()
    instance.close()


def test_relay_sends_no_other_names(instance: Marked) -> None:
    def kept() -> bytes:
        for turn in range(1, 10):
            relay.work(turn * 1_000_000)
        return b"".join(bytes(each) for channel in relay.feed.kept for each in channel)

    instance.top(1.0, 2.0, symbol="OWN", object_type=3, object_id=7, session=1)
    instance.ring.flush()
    instance.lose_names()
    relay = Relay(RelayConfig(), instance.directory, keep=True)
    relay.on_start()
    assert b"WRONG" not in kept()
    instance.go_on()
    instance.top(3.0, 4.0, symbol="NEW", object_type=3, object_id=7, session=1)
    instance.ring.flush()
    assert b"NEW" in kept()
    relay.on_stop()
    instance.close()
