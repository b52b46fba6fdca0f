"""A copy whose writer has a damaged record copies it from another host, then from the writer."""

from pathlib import Path

from udpfast_lab.bus_memory import MemoryLog

from tests.bus.drive import T0, Copy, S, lead, register, send
from tests.bus.test_failures import Pair
from tests.client.test_store_source import Kept
from udpfast.bus.link_sender import LinkSender
from udpfast.bus.log import Store
from udpfast.bus.node import Node
from udpfast.bus.sequencer import Sequencer
from udpfast.log.segment import segment_path


class Three(Pair):
    """A node that copies, the writer, and another host that has a copy."""

    def __init__(self, writer: Sequencer, other: Store) -> None:
        super().__init__(writer)
        one = Store(MemoryLog(1 << 18, writer.store.log.layout_hash), "one")
        self.node = Node(one, ["S", "two"], self, iter(range(1, 1 << 20)).__next__)
        self.node.start(0, T0, named=False, intact=True)
        self.stores = {"S": writer.store, "two": other}
        self.hosts: list[str] = []

    def connect(self, host: str) -> int:
        self.links += 1
        self.source = LinkSender(self.stores[host], self.links, self.now_ns)
        self.hosts.append(host)
        return self.links


def test_copy_takes_what_its_writer_has_damaged_from_another_host(tmp_path: Path) -> None:
    seq = lead(Kept(tmp_path).store)
    register(seq)
    other = Store(MemoryLog(1 << 18, seq.store.log.layout_hash), "two")
    three = Three(seq, other)
    three.run(S)
    assert three.node.store.end == seq.store.end
    three.tell = lambda data: b""  # it is cut off
    damaged = seq.store.end
    send(seq, 1, 3)
    link = Copy(seq.store, other).pump()
    link.source.close("copied")
    link.receiver.close("copied")
    record = next(seq.store.log.records(damaged, damaged + 1))
    with segment_path(tmp_path, 1).open("r+b") as file:
        file.seek(file.read().index(record) + len(record) - 8)
        file.write(b"\xff")
    send(seq, 4)
    three.tell = lambda data: data
    three.hosts.clear()
    three.run(20 * S)
    assert "two" in three.hosts
    assert three.node.store.end == seq.store.end
    assert three.node.copying.receiver is not None
    assert three.hosts[-1] == "S"
