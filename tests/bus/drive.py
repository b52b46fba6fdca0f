"""A store, its sequencer and its copies, which tests advance step by step."""

from lab.bus_memory import MemoryLog
from udpfast.bus.link_receiver import LinkReceiver
from udpfast.bus.link_sender import LinkSender
from udpfast.bus.log import Store
from udpfast.bus.outbox import Outbox
from udpfast.bus.outbox_sender import OutboxSender, StreamWatch
from udpfast.bus.sequencer import Sequencer
from udpfast.bus.wire import SendFlag, epoch_after, name_bytes, send_datagram

MS = 1_000_000
S = 1000 * MS
T0 = 1_700_000_000 * S
IDENTITY = bytes(range(16))
LAYOUT = 7


def store(host="S", capacity=1 << 18, identity=None, **options):
    return Store(MemoryLog(capacity, LAYOUT, identity), host, **options)


def lead(kept, now_ns=0, unix_ns=T0, promoted=False):
    epoch = epoch_after(max(kept.promised, kept.epoch), 5, promoted=promoted)
    return Sequencer(kept, epoch, now_ns, unix_ns)


def sequencer(capacity=1 << 18, **options):
    return lead(store("S", capacity, IDENTITY, **options))


def register(seq, name="a", host="h", nonce=1, now_ns=0):
    body = nonce.to_bytes(8, "little") + name_bytes(name) + name_bytes(host)
    datagram = send_datagram(
        seq.store.key, seq.store.epoch, 0, 0, 0, 0, flags=SendFlag.REGISTER, body=body
    )
    return seq.receive(datagram, now_ns, T0 + now_ns)


def send(seq, first, count=1, sender=1, incarnation=1, now_ns=0, unix_ns=None, epoch=None):
    messages = [(n & 0xFFFF, b"%d" % n) for n in range(first, first + count)]
    datagram = send_datagram(
        seq.store.key, seq.store.epoch if epoch is None else epoch, sender, incarnation, first, 1,
        messages,
    )  # fmt: skip
    return seq.receive(datagram, now_ns, T0 + now_ns if unix_ns is None else unix_ns)


def records(kept, kind=None):
    """Return all records as (kind, number, payload, stamp)."""
    found = []
    for record in kept.log.records(kept.log.first()[0], kept.end):
        if kind is None or record[4] == kind:
            length = int.from_bytes(record[:4], "little")
            found.append((record[4], int.from_bytes(record[40:48], "little"), record[64:length],
                          int.from_bytes(record[32:40], "little")))  # fmt: skip
    return found


def numbers(kept):
    return [number for _, number, _, _ in records(kept, 48)]


class Copy:
    """A link between a store and its copy."""

    def __init__(self, source, copy, now_ns=0, **options):
        self.source = LinkSender(source, 1, now_ns)
        self.receiver = LinkReceiver(copy, 2, now_ns, **options)
        self.now_ns = now_ns
        self.waiting = b""  # bytes for which the consumer had no room

    def pump(self, chunk=1 << 20, turns=100):
        """Carry bytes until no more arrive."""
        for _ in range(turns):
            self.source.feed(self.receiver.output(), self.now_ns)
            self.waiting += self.source.output() if not self.waiting else b""
            if not self.waiting or not self.receiver.room:
                break
            while self.waiting and self.receiver.room:
                taken = self.receiver.feed(self.waiting[:chunk], self.now_ns)
                self.waiting = self.waiting[taken:]
        return self

    def work(self, by_ns):
        self.now_ns += by_ns
        self.source.work(self.now_ns, T0 + self.now_ns)
        self.receiver.work(self.now_ns, T0 + self.now_ns)
        return self.pump()


def outbox(name="a", host="h", nonce=1, slots=64, capacity=1 << 16):
    memory = bytearray(Outbox.size_bytes(slots, capacity))
    return Outbox.create(memory, name, host, nonce, slots, capacity)


def outbox_sender(seq, box, resend_ns=500 * MS, now_ns=0):
    """An outbox sender on the host of the sequencer, and the watch over its store."""
    carried = OutboxSender(box, seq.store, now_ns, resend_ns=resend_ns)
    watch = StreamWatch(seq.store)
    watch.add(carried)
    return carried, watch


def sequenced(box, seconds):
    """Return a sequencer that has taken what an outbox holds, in a turn a second."""
    seq = sequencer(capacity=1 << 22)
    carried, watch = outbox_sender(seq, box)
    for now_ns in range(0, seconds * 1000 * MS, 1000 * MS):
        for datagram in carried.work(now_ns, True):
            seq.receive(datagram, now_ns, 1_700_000_000_000_000_000 + now_ns)
        watch.work()
    return seq
