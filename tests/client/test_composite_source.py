"""`Reader("composite:...")`: several stores in one order, on every host and in every replay."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents.test_bus_host import HOSTS, running
from tests.bus.drive import Copy, lead, register, send
from tests.client.test_store_source import Kept
from tests.waiting import wait_until
from udpfast.archive.bus_files import describe_composite
from udpfast.bus.log import Store
from udpfast.bus.merger import BATCH, LACKING_NS, ORDER_BACK, ORDER_ENTRY, Merger
from udpfast.bus.node import Node
from udpfast.client.app import App
from udpfast.client.reader import Reader
from udpfast.config.bus import BusConfig, parse_bus
from udpfast.core.layout import Kind, LappedReason
from udpfast.errors import ConfigError
from udpfast.net.ports import free_ports


class Composite:
    """Two stores and an order log on one host, merged by hand."""

    def __init__(self, folder: Path) -> None:
        self.kept = {name: Kept(folder / name) for name in ("a", "b", "order")}
        self.seqs = [lead(self.kept[name].store) for name in "ab"]
        for seq, name in zip(self.seqs, "ab", strict=True):
            register(seq, name=name)
        self.node = Node(self.kept["order"].store, [], None, lambda: 1)
        self.node.sequencer = lead(self.kept["order"].store)
        self.begin()
        self.address = f"composite:{folder / 'order'}"
        describe_composite(folder / "order", [folder / "a", folder / "b"])
        self.now_ns = 0

    def begin(self) -> None:
        """Start a merger that knows only the log."""
        self.merger = Merger(
            self.node, [Node(self.kept[name].store, [], None, lambda: 1) for name in "ab"]
        )

    def work(self) -> int:
        self.now_ns += 1_000_000
        count = self.merger.work(self.now_ns, 1_700_000_000_000_000_000 + self.now_ns)
        for kept in self.kept.values():
            kept.tell()
        return count

    def send_ahead(self) -> int:
        """Send four messages to the first input; return the position after the first of them."""
        send(self.seqs[0], 1)
        position: int = self.kept["a"].store.end
        send(self.seqs[0], 2, 3)
        self.work()
        return position

    def lose(self, position: int) -> None:
        """Let the first input lose its records from there on, and continue with another message."""
        store = self.kept["a"].store
        store.cut(position)
        self.seqs[0] = lead(store, promoted=True)
        send(self.seqs[0], 2, 1)
        self.work()


def tagged(reader: Reader) -> list[tuple[str, bytes]]:
    """Return the input and the bytes of each record."""
    found = []
    while reader.wait(0):
        record = bytes(next(reader))
        found.append((reader.origin.rpartition("/")[2], record))
    return found


def read(reader: Reader) -> list[bytes]:
    return [record for _, record in tagged(reader)]


def messages(records: list[bytes]) -> list[bytes]:
    return [record[64:] for record in records if record[4] == Kind.BUS]


def test_tail_of_a_composite_whose_daemon_is_dead_ends_with_what_it_left(tmp_path: Path) -> None:
    both = Composite(tmp_path)
    for number in range(1, 1001):
        for seq in both.seqs:
            send(seq, number)
    while both.work():
        pass
    both.kept["order"].tell(ago_ns=2_000_000_000)
    command = [sys.executable, "-m", "udpfast", "tail", both.address, "--begin", "--kind", "bus"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.count(" bytes") == 2000
    assert f"{both.address}: its daemon on this host is dead" in done.stderr


def test_composite_read_late_is_what_was_read_live(tmp_path: Path) -> None:
    both = Composite(tmp_path)
    both.work()
    with Reader(both.address) as live:
        seen = tagged(live)
        for number in range(1, 60):
            send(both.seqs[number % 2], (number + 1) // 2)
            if number % 7 == 0:
                both.work()
                seen += tagged(live)
            if number % 20 == 0:
                both.begin()  # it was killed
        both.work()
        seen += tagged(live)
    with Reader(both.address) as late:
        assert tagged(late) == seen
    for name in "ab":
        log = both.kept[name].store.log
        whole = [record[: int.from_bytes(record[:4], "little")]
                 for record in log.records(0, log.end)]  # fmt: skip
        assert [record for origin, record in seen if origin == name] == whole
    assert len(messages([record for _, record in seen])) == 59


def test_entry_takes_so_many_records_at_most(tmp_path: Path) -> None:
    both = Composite(tmp_path)
    for first in range(1, BATCH + 100, 64):
        send(both.seqs[0], first, 64)
        both.kept["a"].store.log.keep()
    counts = []
    while count := both.work():
        counts.append(count)
    assert sum(counts) == both.kept["a"].store.log.end_index + both.kept["b"].store.log.end_index
    assert max(counts) <= 2 * BATCH
    with Reader(both.address) as reader:
        assert len(read(reader)) == sum(counts)


def test_input_that_lost_records_loses_them_in_the_composite(tmp_path: Path) -> None:
    both = Composite(tmp_path)
    position = both.send_ahead()
    with Reader(both.address) as live:
        assert messages(read(live)) == [b"1", b"2", b"3", b"4"]
        both.lose(position)
        kinds = [record[4] for record in read(live)]
        assert kinds[0] == Kind.ROLLBACK
        assert kinds[-1] == Kind.BUS
    with Reader(both.address) as late:
        assert messages(read(late)) == [b"1", b"2"]


def test_reader_does_not_wait_for_what_an_input_lost_before_it_was_read(tmp_path: Path) -> None:
    both = Composite(tmp_path)
    send(both.seqs[0], 1)
    both.work()
    kept = both.kept["a"].store
    with Reader(both.address) as live:
        assert messages(read(live)) == [b"1"]
        position = kept.end
        send(both.seqs[0], 2, 30)
        entry = (kept.end, kept.log.end_index)
        both.merger.work(5_000_000, 1_700_000_000_005_000_000)
        both.kept["order"].tell()
        kept.cut(position)  # before this host's reader had any of it
        both.kept["a"].tell()
        assert read(live) == []
        both.seqs[0] = lead(kept, promoted=True)
        both.now_ns = 6_000_000
        send(both.seqs[1], 1)
        both.work()
        assert kept.end < entry[0]
        assert messages(read(live)) == [b"1"]
    with Reader(both.address) as late:
        assert messages(read(late)) == [b"1", b"1"]


def fill(both: Composite, input_: int, segments: int) -> int:
    """Send messages into an input until it has `segments` more; return the next number."""
    kept = both.kept["ab"[input_]].store
    until, number = kept.log.count + segments, 1
    while kept.log.count < until:
        send(both.seqs[input_], number, 20)
        number += 20
        if number % 200 == 1:
            kept.log.keep()
            send(both.seqs[1 - input_], number // 200)
            both.work()
    while both.work():
        pass
    return number


def account(reader: Reader) -> tuple[dict[str, list[int]], dict[str, int]]:
    """Read all records: the indices of each input's records, and how many are reported missing."""
    indices: dict[str, list[int]] = {"a": [], "b": []}
    missed = {"a": 0, "b": 0}
    while reader.wait(0):
        record = next(reader)
        name = reader.origin.rpartition("/")[2]
        if record.kind is Kind.LAPPED:
            assert record.data["reason"] == LappedReason.READER
            missed[name] += int(record.data["missed"])
        else:
            indices[name].append(record.index)
    return indices, missed


def test_reader_is_told_exactly_what_inputs_removed(tmp_path: Path) -> None:
    both = Composite(tmp_path)
    fill(both, 0, 3)
    log, other = both.kept["a"].store.log, both.kept["b"].store.log
    end = log.end_index
    with Reader(both.address, batch=64) as live, Reader(both.address) as whole:
        assert account(whole) == ({"a": list(range(end)), "b": list(range(other.end_index))},
                                  {"a": 0, "b": 0})  # fmt: skip
        assert live.wait(0)  # it has begun, and read a little
        for _ in range(2):
            log.keep()
            assert log.remove_oldest()
        first = log.first()[1]
        assert 0 < first < end
        for reader in (live, Reader(both.address)):
            with reader:
                found, missed = account(reader)
                assert found["b"] == list(range(other.end_index))
                assert missed["b"] == 0
                assert found["a"][-1] == end - 1
                assert len(found["a"]) + missed["a"] == end
                assert missed["a"] <= first
        assert missed["a"] == first


def test_input_that_removed_what_was_not_taken_goes_on_behind_it(tmp_path: Path) -> None:
    both = Composite(tmp_path)
    fill(both, 0, 1)
    log, other = both.kept["a"].store.log, both.kept["b"].store.log
    with Reader(both.address) as live:
        account(live)
        both.node.sequencer, leads = None, both.node.sequencer  # nobody writes the order
        fill(both, 0, 4)
        while log.count > 1:
            log.keep()
            assert log.remove_oldest()
        first, end = log.first()[1], log.end_index
        both.node.sequencer = leads
        while both.work():
            pass
        for reader in (live, Reader(both.address)):
            with reader:
                found, missed = account(reader)
                assert found["b"][-1] == other.end_index - 1
                assert missed["b"] == 0
                assert found["a"][-1] == end - 1
                assert found["a"][0] == (first if reader is not live else found["a"][0])
                assert missed["a"] > 0
        assert (len(found["a"]), missed["a"]) == (end - first, first)


def settings(folder: Path) -> BusConfig:
    ports = free_ports(3)
    stores = {
        name: {"sequencer": writer, "replicas": [other], "port": port, "resend_ms": 20,
               "segment_bytes": 1 << 20}
        for name, writer, other, port in
        (("orders", "S", "one", ports[0]), ("prices", "one", "S", ports[1]))
    }  # fmt: skip
    algo = {"inputs": ["orders", "prices"], "host": "one", "port": ports[2], "replicas": ["S"]}
    return parse_bus({"hosts": HOSTS, "stores": stores, "composites": {"algo": algo}}, "bus.toml")


def test_composite_is_the_same_bytes_on_every_host(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with running(config, "S", tmp_path) as first, running(config, "one", tmp_path) as second:
        parts = [*first.parts, *second.parts]
        wait_until(lambda: all(part.store.end for part in parts), "all copies")
        with (
            App(f"store:{tmp_path / 'S' / 'orders'}", "app") as orders,
            App(f"store:{tmp_path / 'one' / 'prices'}", "feed") as prices,
        ):
            for number in range(1, 201):
                assert orders.send(b"o%d" % number) == prices.send(b"p%d" % number) == number
        streams = {}
        for host in HOSTS:
            with Reader(f"composite:{tmp_path / host / 'algo'}") as reader:
                found: list[bytes] = []

                def whole(found: list[bytes] = found, reader: Reader = reader) -> bool:
                    found += read(reader)
                    return len(messages(found)) >= 400

                wait_until(whole, "all messages")
                streams[host] = found
        assert streams["S"] == streams["one"]
        assert [m for m in messages(streams["S"]) if m[:1] == b"o"] == [
            b"o%d" % number for number in range(1, 201)
        ]


@pytest.mark.parametrize(
    ("algo", "message"),
    [
        (
            {"inputs": ["orders", "x"]},
            r"composites.algo.inputs: expected stores of this file .*, found 'x'",
        ),
        ({"inputs": ["orders", "orders"]}, r"algo.inputs: expected each store once"),
        ({"host": "x"}, r"composites.algo.host: expected a host of this file .*, found 'x'"),
        (
            {"port": 9400},
            r"algo.port: expected a port that nothing else in this file uses, found 9400",
        ),
        ({"replicas": ["one"]}, r"algo: expected hosts that have a copy of orders, found 'one'"),
    ],
)
def test_composite_wrong_is_refused(algo: dict[str, object], message: str) -> None:
    tables = {
        "hosts": HOSTS,
        "stores": {"orders": {"sequencer": "S", "port": 9400}},
        "composites": {"algo": {"inputs": ["orders"], "host": "S", "port": 9401} | algo},
    }
    with pytest.raises(ConfigError, match=message):
        parse_bus(tables, "bus.toml")


def copied(both: Composite, folder: Path) -> tuple[Copy, Store, Merger]:
    """A host's copy of an input, which lacks records that the order has, and a merger there."""
    send(both.seqs[0], 1)
    copy = Kept(folder / "copy", "one", create=False).store
    link = Copy(both.kept["a"].store, copy).pump()
    send(both.seqs[0], 2, 3)
    both.work()
    nodes = [Node(store, [], None, lambda: 1) for store in (copy, both.kept["b"].store)]
    return link, copy, Merger(both.node, nodes)


def ordered(merger: Merger, since: int) -> list[tuple[int, ...]]:
    """Let it work for a while; return the entries of the order log from a position on."""
    for now_ns in range(2_000_000, 10_000_000, 1_000_000):
        merger.work(now_ns, 1_700_000_000_000_000_000 + now_ns)
    store = merger.node.store
    return [ORDER_ENTRY.unpack_from(record, 64) for record in store.log.records(since, store.end)]


def test_host_that_leads_with_a_copy_that_is_behind_takes_nothing_back(tmp_path: Path) -> None:
    both = Composite(tmp_path)
    link, _, merger = copied(both, tmp_path)
    end = both.node.store.end
    assert ordered(merger, end) == []
    link.pump()
    send(both.seqs[0], 5)
    link.pump()
    assert [(entry[1], entry[5]) for entry in ordered(merger, end)] == [(0, 1)]


def test_host_that_leads_where_a_copy_that_was_behind_writes_takes_back_what_is_lost(
    tmp_path: Path,
) -> None:
    both = Composite(tmp_path)
    _, copy, merger = copied(both, tmp_path)
    order, taken = both.node.store.end, both.kept["a"].store.log.end_index
    end, index = copy.end, copy.log.end_index
    lead(copy, promoted=True)
    back, again = ordered(merger, order)
    assert back[:3] + back[4:] == (0, ORDER_BACK, end, index, taken - index)
    assert again == (0, 0, end, copy.end, index, copy.log.end_index - index)


def test_records_as_long_as_those_that_were_lost_are_not_taken_for_them(tmp_path: Path) -> None:
    both = Composite(tmp_path)
    both.work()
    source, order = both.kept["a"].store, both.node.store
    end, index = source.end, source.log.end_index
    lead(source, promoted=True)
    both.work()
    taken, place = source.end, order.end
    source.cut(end)
    lead(source, promoted=True)
    assert source.end == taken, "the records of another epoch, in the same place"
    both.begin()  # who writes the order log now did not see it
    back, again = ordered(both.merger, place)
    assert back == (0, ORDER_BACK, end, taken, index, source.log.end_index - index)
    assert again == (0, 0, end, taken, index, source.log.end_index - index)


def test_order_of_records_that_nobody_has_any_more_is_said_and_ends_with_a_promotion(
    tmp_path: Path,
) -> None:
    both = Composite(tmp_path)
    _, copy, merger = copied(both, tmp_path)
    order, end = both.node.store.end, copy.end
    now_ns, unix_ns = 10_000_000, 1_700_000_000_000_000_000
    assert merger.work(now_ns, unix_ns) == 0
    assert merger.lacks(now_ns + LACKING_NS - 1) == []
    assert merger.lacks(now_ns + LACKING_NS) == [0]
    lead(copy, promoted=True)
    back, _ = ordered(merger, order)
    assert (back[1], back[2]) == (ORDER_BACK, end)
    assert merger.lacks(now_ns + 2 * LACKING_NS) == []
