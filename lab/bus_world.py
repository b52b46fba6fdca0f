"""Simulated hosts, links, disks and clocks of a bus in one process, with all their faults.

Time is a number. Everything random is drawn from one generator, so that a seed gives one history.
The code of `udpfast.bus` runs as it does with real sockets; only its surroundings are simulated.
"""

from __future__ import annotations

import functools
import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from udpfast.bus.link_receiver import LinkReceiver
from udpfast.bus.link_sender import LinkSender
from udpfast.bus.log import Store
from udpfast.bus.node import Node
from udpfast.bus.outbox import Outbox, OutboxState
from udpfast.bus.outbox_sender import OutboxSender
from udpfast.bus.promotion import Promotion, PromotionState
from udpfast.bus.release import Release
from udpfast.bus.sequencer import Sequencer
from udpfast.errors import OutboxFullError, OutboxLostError, SupersededError

from .bus_away import Excused
from .bus_memory import MemoryLog
from .bus_oracle import Oracle, Wrong

__all__ = ["Host", "Time", "World"]

MS = 1_000_000
#: Offsets of these counters in the memory of an outbox.
NONCE, ACCEPTED, FREED = 64, 128, 256
S = 1000 * MS
LAYOUT = 0x5EED
SOCKET_BYTES = 1 << 16
#: The message of a host that continues to write without others, and how long it waits at least.
UNASKED, UNASKED_NS = "continues to write without an answer from ", 2 * S


@dataclass
class Side:
    """One end of a link."""

    host: Host
    key: int
    other: Side | None = None
    life: int = 0
    flying: int = 0  # bytes on their way to this end
    arrived: bytearray = field(default_factory=bytearray)
    chunk: int = 1 << 16  # the most bytes that one read returns
    open: bool = True


class Host:
    """A host, with everything that outlives its daemon.

    Attributes
    ----------
    node : Node or None
        None: the daemon does not run.
    """

    def __init__(self, world: World, name: str, log: MemoryLog) -> None:
        self.world = world
        self.name = name
        self.log = log
        self.node: Node | None = None
        self.outboxes: dict[str, bytearray] = {}
        self._outboxes_then: dict[str, bytes] = {}  # at the end of a process within a turn
        self.sides: dict[int, Side] = {}
        self.datagrams: list[tuple[str, bytes]] = []
        self.life = 0  # number of the daemon: bytes for an earlier one are lost
        self.frozen = False
        self.powerless = False  # it lost its power, and the disk did not have all records
        self.offset_ns = world.rng.randrange(-20 * MS, 20 * MS)
        self.due = False
        self.cuts = 0
        self.epoch = self.epochs = 0  # last epoch of the store, and how often it changed
        self.promotion: Promotion | None = None
        self.started_ns = 0
        self.known: dict[str, int] = {}  # host -> promise at the start of this daemon
        self.quarantine = world.rng.random() < 0.8
        log.on_death = self._note_outboxes

    # --- Carrier --------------------------------------------------------------------------------

    def connect(self, host: str) -> int:
        """See `Carrier`."""
        return self.world.connect(self, self.world.hosts[host])

    def send(self, link: int, data: bytes) -> None:
        """See `Carrier`."""
        side = self.sides.get(link)
        if side is not None and side.open and data and not self.log.dead:
            self.world.carry(side, data)

    def room(self, link: int) -> int:
        """See `Carrier`."""
        side = self.sides.get(link)
        if side is None or side.other is None:
            return 0
        return SOCKET_BYTES - side.other.flying - len(side.other.arrived)

    def close(self, link: int) -> None:
        """See `Carrier`."""
        side = self.sides.pop(link, None)
        if side is not None:
            self.world.end(side)

    def carry(self, link: int, end: LinkSender | LinkReceiver) -> bool:
        """See `Carrier`. The simulation has no threads."""
        return False

    def datagram(self, host: str, data: bytes) -> None:
        """See `Carrier`."""
        if self.log.dead:
            return
        world, store = self.world, self.daemon.store
        whose = self.name, self.life, store.cuts, self.note_epoch()
        world.oracle.sends(whose, data, world.now_ns, world.resend_ns)
        world.fly(self.name, host, data)

    # --- life -----------------------------------------------------------------------------------

    @property
    def daemon(self) -> Node:
        """The node of the daemon, which must be running."""
        assert self.node is not None
        return self.node

    @property
    def unix_ns(self) -> int:
        """Time by the clock of the host."""
        return self.world.now_ns + self.offset_ns + 1_700_000_000 * S

    def start(self) -> None:
        """Start the daemon."""
        world = self.world
        peers = [name for name in world.hosts if name != self.name]
        store = Store(
            self.log, self.name, gate=world.gate,
            standbys=[name for name in peers if world.sources.get(name, "") in ("", self.name)],
            followers=[name for name in peers if world.sources.get(name) == self.name],
            release=Release(away_ns=world.away_ns),
        )  # fmt: skip
        self.life += 1
        self.cuts = 0
        self.promotion = None
        self.started_ns, self.known = world.now_ns, dict(world.oracle.promised)
        self.node = Node(
            store, peers, self, lambda: world.rng.getrandbits(63),
            source=world.sources.get(self.name, ""), quarantine=self.quarantine,
        )  # fmt: skip
        for memory in self.outboxes.values():
            self._add(memory)
        self.node.start(
            world.now_ns, self.unix_ns, named=self.name == "S", intact=not self.powerless
        )
        world.look(self)
        self.wake()

    def note_epoch(self) -> int:
        """Return how often the epoch of the host's records has changed."""
        self.epochs += self.daemon.store.epoch != self.epoch
        self.epoch = self.daemon.store.epoch
        return self.epochs

    def _add(self, memory: bytearray) -> None:
        assert self.node is not None
        outbox_sender = OutboxSender(
            Outbox(memory), self.node.store, self.world.now_ns, resend_ns=self.world.resend_ns
        )
        self.node.add(outbox_sender)

    def stop(self) -> None:
        """Stop the daemon cleanly, as SIGTERM does."""
        if self.node is None or self.frozen or self.log.dead:
            return
        self.world.happened["stops"] += 1
        self.node.stop()
        for side in list(self.sides.values()):
            self.world.end(side)
        self.sides.clear()
        self.log.close()
        self._end()

    def kill(self) -> None:
        """End the daemon as `kill -9` does."""
        self.world.happened["kills"] += self.node is not None
        self._end()

    def _end(self) -> None:
        self.node = None
        self.frozen = False
        for name, then in self._outboxes_then.items():
            self.outboxes[name][:] = then
        self._outboxes_then = {}
        self.log.revive()
        self.life += 1
        self.datagrams.clear()
        for side in list(self.sides.values()):
            self.world.end(side, lost=True)
        self.sides.clear()

    def _note_outboxes(self) -> None:
        self._outboxes_then = {name: bytes(memory) for name, memory in self.outboxes.items()}

    def lose_power(self) -> None:
        """End everything at once; the disk keeps what was synced, and perhaps more."""
        self.kill()
        self.outboxes.clear()
        places = [int.from_bytes(r[8:16], "little")
                  for r in self.log.records(max(self.log.synced(), self.log.first()[0]),
                                            self.log.end)]  # fmt: skip
        position = self.world.rng.choice([*places, self.log.end])
        if position < self.log.end:
            self.world.lost_power.add(self.name)
            self.powerless = True
            self.log.lose_power(position)
            self.world.oracle.forget(self.name, position)

    def wipe(self) -> None:
        """End the daemon, and replace the disk by an empty one."""
        self.kill()
        self.world.oracle.forget_all(self.name)
        for host in self.world.hosts.values():
            host.known.pop(self.name, None)  # its promise is lost for everybody
        self.world.lost_power.add(self.name)  # its records are lost as well
        self.powerless = False
        self.epoch = 0
        self.log = self.world.empty_log(self.name, self.log.capacity)
        self.log.on_death = self._note_outboxes

    def outbox(self, name: str) -> Outbox:
        """Return the outbox of an app; create it if needed."""
        if name not in self.outboxes:
            slots, capacity = self.world.outbox
            memory = bytearray(Outbox.size_bytes(slots, capacity))
            nonce = self.world.rng.getrandbits(63) | 1
            Outbox.create(memory, name, self.name, nonce, slots, capacity)
            self.outboxes[name] = memory
            self.world.oracle.accepted[nonce] = []
            self.world.nonces[nonce] = (self.name, name)
            if self.node is not None:
                self._add(memory)
        return Outbox(self.outboxes[name])

    def start_again(self) -> None:
        """Start the daemon, unless it runs."""
        if self.node is None:
            self.start()

    def wake(self) -> None:
        """Schedule a turn of the daemon."""
        if not self.due:
            self.due = True
            self.world.after(0, self.turn)

    def turn(self) -> None:
        """Let the daemon read what has arrived, and do its work."""
        self.due = False
        node = self.node
        if node is None or self.frozen:
            return
        now_ns, unix_ns = self.world.now_ns, self.unix_ns
        for sender, data in self.datagrams:
            told = self._take(data)
            if told and not self.log.dead:
                self.world.fly(self.name, sender, told)
        self.datagrams.clear()
        more = False
        for link, side in list(self.sides.items()):
            size = min(len(side.arrived), node.room(link), side.chunk)
            if size:
                data = bytes(side.arrived[:size])
                del side.arrived[:size]
                node.received(link, data, now_ns)
                more = more or bool(side.arrived)
        node.work(now_ns, unix_ns)
        self.powerless = not node.intact
        self.world.look(self)
        if self.node is not None and more:
            self.world.after(50_000, self.wake)

    def _take(self, data: bytes) -> bytes:
        node, world = self.daemon, self.world
        sequencer = node.sequencer
        if sequencer is None or self.log.dead:
            return node.datagram(data, world.now_ns, self.unix_ns)
        world.look(self)
        expected = world.oracle.expected(self.name, node.store, data)
        before = self._said(sequencer)
        told = node.datagram(data, world.now_ns, self.unix_ns)
        if not self.log.dead:
            world.look(self)
            world.oracle.judged(self.name, data, expected, before, self._said(sequencer))
        return told

    def _said(self, sequencer: Sequencer) -> tuple[dict[str, int], int, dict[Any, int]]:
        verdicts = {verdict.name: count for verdict, count in sequencer.verdicts.items()}
        following = dict(self.world.oracle.views[self.name].next)
        return verdicts, sequencer.held, following


class Time:
    """The simulated clock, with the events that are due."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay_ns: int, do: Callable[[], None]) -> None:
        """Schedule an event."""
        self._count += 1
        heapq.heappush(self._events, (self.now_ns + delay_ns, self._count, do))

    def run(self, until_ns: int) -> None:
        """Run all events up to a time."""
        while self._events and self._events[0][0] <= until_ns:
            self.now_ns, _, do = heapq.heappop(self._events)
            do()
        self.now_ns = until_ns


class World:
    """The hosts of one store, with faults from a seed.

    Parameters
    ----------
    seed : int or str
    time : Time, optional
        Clock that several worlds share.
    names : list of str, optional
        Names of the hosts; by default the seed draws one to three.
    make_host : callable, optional
        Makes a host from a world, a name and a log; by default `Host`.
    gate : int, optional
        Gate of the store; by default the seed draws it.
    """

    def __init__(
        self,
        seed: int | str,
        *,
        time: Time | None = None,
        names: list[str] | None = None,
        make_host: Callable[[World, str, MemoryLog], Host] = Host,
        gate: int | None = None,
    ) -> None:
        self.rng = rng = random.Random(seed)
        self.time = time or Time()
        self.oracle = Oracle()
        self.nonces: dict[int, tuple[str, str]] = {}
        self.apart: set[frozenset[str]] = set()
        self.lost_power: set[str] = set()
        self.happened: Counter[str] = Counter()
        self.behind_ns = 0  # delay of links; datagrams do not have it
        #: Time after which a standby is away; 0: never. Another generator draws it, so that the
        #: histories of seeds stay the same.
        self.away_ns = random.Random(f"away {seed}").choice([0, 0, 200 * MS, 1500 * MS])
        self.unprotected = False  # an outbox let messages go that a standby lacked
        self.blind = False  # a promotion may have missed every host with records that readers saw
        self._keys = 0
        self.loss = rng.choice([0, 0, 0.01, 0.1, 0.3])
        self.twice = rng.choice([0, 0, 0.05, 0.5])
        self.flip = rng.choice([0, 0, 0, 0.001])
        self.delay_ns = rng.choice([50_000, MS, 20 * MS])
        self.late = rng.choice([0, 0, 0.1])
        self.tiny = rng.random() < 0.2
        self.resend_ns = rng.choice([5 * MS, 50 * MS, 500 * MS])
        self.damage = rng.choice([0, 0, 0.02])
        # Slots and bytes of outboxes: some have room for more than a sequencer holds.
        self.outbox = rng.choice([(64, 16384)] * 19 + [(1 << 14, 1 << 20)])
        drawn = ["S", "one", "two"][: rng.choice([1, 2, 3, 3, 3])]
        names = names or drawn
        self.gate = rng.choice([0, 0, 0, 1, 2]) if gate is None else gate
        self.gate = min(self.gate, len(names) - 1)
        self.sources = {}
        if len(names) == 3 and rng.random() < 0.2:
            self.sources["two"] = "one"
            self.gate = min(self.gate, 1)
        self.excused = Excused(self.oracle, names, self.sources, self.away_ns)
        capacity = rng.choice([4096, 16384, 1 << 18])
        self.hosts: dict[str, Host] = {}
        for name in names:
            self.hosts[name] = make_host(self, name, self.empty_log(name, capacity))
        for host in self.hosts.values():
            host.start()
            self._tick(host)

    def empty_log(self, name: str, capacity: int) -> MemoryLog:
        """Return the empty log of a new host."""
        return MemoryLog(capacity, LAYOUT, fresh=self.rng.randbytes(16) if name == "S" else b"")

    # --- time -----------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """The simulated time."""
        return self.time.now_ns

    def after(self, delay_ns: int, do: Callable[[], None]) -> None:
        """Schedule an event."""
        self.time.after(delay_ns, do)

    def run(self, until_ns: int) -> None:
        """Run all events up to a time."""
        self.time.run(until_ns)

    def _tick(self, host: Host) -> None:
        host.wake()
        self.after(self.rng.randrange(5 * MS, 80 * MS), lambda: self._tick(host))

    def promote(self, host: Host) -> None:
        """Begin the promotion of a host."""
        self.happened["promotions"] += 1
        host.promotion = host.daemon.promote(self.now_ns)
        host.wake()

    def look(self, host: Host) -> None:
        """Check a host after a step; if its process ended in that step, start it again later."""
        node = host.node
        assert node is not None
        host.note_epoch()
        end = min((position for position, _ in host.log.aside), default=None)
        if end is not None:
            self.oracle.forget(host.name, end)
            host.log.aside.clear()
        # Do this first, because the process may have ended in the turn in which it took over.
        said = node.store.said
        unreached = sum(" could not be reached" in line for line in said[-len(self.hosts) :])
        if unreached > self.gate and any("writes epoch" in line for line in said):
            self.blind = True
        if host.log.dead:
            host.kill()
            self.after(self.rng.choice([1, 50, 500]) * MS, host.start_again)
            return
        self.oracle.look(host.name, node.store, node.sequencer, self.now_ns, host.unix_ns)
        self.oracle.one_store(each.log.identity for each in self.hosts.values())
        promotion = host.promotion
        if promotion is not None and promotion.state is PromotionState.READY:
            reached = [name for name in self.hosts
                       if name != host.name and name not in promotion.unreachable]  # fmt: skip
            self.oracle.taken_over(host.name, promotion.epoch, reached)
        if promotion is not None and promotion is not node.promotion:
            host.promotion = None
        self._look_who_writes(host, node)
        if node.store.writer:
            self.excused.look(host.name, node.store, self.now_ns)
        disk = {host.name: host.log.synced()}
        for memory in host.outboxes.values():
            nonce, freed = _number(memory, NONCE), _number(memory, FREED)
            if freed != self.oracle.freed.get(nonce, 0):
                protected = self.oracle.let_go(
                    nonce, freed, set(self.hosts), disk, self.excused.places
                )
                self.unprotected = self.unprotected or not protected

    def _look_who_writes(self, host: Host, node: Node) -> None:
        # Check a host that continues to write after a start: it must have asked the others.
        if not node.store.writer or not host.known:
            return
        if node.outcome:  # a promotion asks in another way
            host.known = {}
            return
        unasked: set[str] = set()
        if self.now_ns - host.started_ns >= UNASKED_NS:
            for line in node.store.said:
                if line.startswith(UNASKED):
                    unasked.update(line.removeprefix(UNASKED).partition(":")[0].split(", "))
        known = {name: epoch for name, epoch in host.known.items() if name not in unasked}
        host.known = {}
        self.oracle.writes_on(host.name, node.store.epoch, known)

    # --- links ----------------------------------------------------------------------------------

    def _apart(self, one: str, two: str) -> bool:
        return frozenset((one, two)) in self.apart

    def _delay(self) -> int:
        return self.rng.randrange(self.delay_ns // 2, 2 * self.delay_ns)

    def connect(self, host: Host, peer: Host) -> int:
        """Begin a link to another host."""
        self._keys += 1
        mine = Side(host, self._keys, life=host.life)
        host.sides[mine.key] = mine
        if self._apart(host.name, peer.name) or peer.node is None:
            delay = 300 * MS if peer.node is not None else self._delay()
            self.after(delay, lambda: self._fail(mine))
            return mine.key
        self._keys += 1
        other = Side(peer, self._keys, mine, life=peer.life)
        mine.other = other
        if self.tiny:
            mine.chunk = other.chunk = self.rng.choice([1, 7, 100])
            mine.chunk = max(mine.chunk, 64)
        self.after(self._delay(), lambda: self._open(mine, other))
        return mine.key

    def _fail(self, side: Side) -> None:
        if side.open and side.host.sides.pop(side.key, None) is not None:
            side.open = False
            if side.host.node is not None and side.host.life == side.life:
                side.host.node.broken(side.key, self.now_ns)

    def _open(self, mine: Side, other: Side) -> None:
        if not mine.open:
            return
        if (
            other.host.node is None
            or other.host.life != other.life
            or (mine.host.node is None or mine.host.life != mine.life)
        ):
            self._fail(mine)
            return
        other.host.sides[other.key] = other
        other.host.node.accepted(other.key, self.now_ns)
        mine.host.node.opened(mine.key, self.now_ns)
        mine.host.wake()

    def carry(self, side: Side, data: bytes) -> None:
        """Send bytes to the other end, where they arrive later."""
        other = side.other
        assert other is not None
        other.flying += len(data)
        if self.flip and self.rng.random() < self.flip * len(data) / 100:
            at = self.rng.randrange(len(data))
            data = data[:at] + bytes([data[at] ^ 1 << self.rng.randrange(8)]) + data[at + 1 :]
        # Bytes arrive in the order in which they were sent.
        at_ns = max(self.now_ns + self._delay() + self.behind_ns, getattr(side, "last_ns", 0))
        side.last_ns = at_ns  # type: ignore[attr-defined]
        self.after(at_ns - self.now_ns, lambda: self._arrive(other, data))

    def _arrive(self, side: Side, data: bytes) -> None:
        if not side.open:
            return
        assert side.other is not None
        if self._apart(side.host.name, side.other.host.name):
            # TCP resends in order until the bytes arrive, or one end gives up.
            self._hold(side, data)
            return
        held = getattr(side, "held", None)
        if held:
            held.append(data)
            return
        self._deliver(side, data)

    def _hold(self, side: Side, data: bytes) -> None:
        held = getattr(side, "held", None)
        if held is None:
            held = side.held = []  # type: ignore[attr-defined]
        if not held:
            self.after(100 * MS, lambda: self._again(side))
        held.append(data)

    def _again(self, side: Side) -> None:
        if not side.open or side.other is None:
            return
        if self._apart(side.host.name, side.other.host.name):
            self.after(100 * MS, lambda: self._again(side))
            return
        held, side.held = side.held, []  # type: ignore[attr-defined]
        for data in held:
            self._deliver(side, data)

    def _deliver(self, side: Side, data: bytes) -> None:
        side.flying -= len(data)
        side.arrived += data
        side.host.wake()

    def end(self, side: Side, *, lost: bool = False) -> None:
        """End a link from one side; the other side may learn of it after the bytes on their way."""
        other = side.other
        side.open = False
        if other is None or not other.open:
            return
        at_ns = self.now_ns + self._delay()
        if not lost:
            at_ns = max(at_ns, getattr(side, "last_ns", 0)) + 1

        def hear() -> None:
            if self._apart(side.host.name, other.host.name):
                return  # the other side notices only that nothing arrives
            if other.open and other.arrived and not lost:
                self.after(MS, hear)
                return
            self._fail(other)

        self.after(at_ns - self.now_ns, hear)

    def cut(self, one: str, two: str) -> None:
        """Break all links between two hosts."""
        for side in list(self.hosts[one].sides.values()):
            if side.other is not None and side.other.host.name == two:
                other = side.other
                self._fail(side)
                self._fail(other)

    def fly(self, sender: str, to: str, data: bytes) -> None:
        """Send a datagram, which may be lost, duplicated or delayed."""
        if sender == to:
            return
        for _ in range(1 + (self.rng.random() < self.twice)):
            if self._apart(sender, to) or self.rng.random() < self.loss:
                continue
            delay = self._delay() * (self.rng.randrange(1, 200) if self.rng.random() < self.late
                                     else 1)  # fmt: skip
            landing = self._damaged(data) if self.rng.random() < self.damage else data
            self.after(delay, functools.partial(self._land, sender, to, landing))

    def _damaged(self, data: bytes) -> bytes:
        # Damage a field in a way that cannot yield another valid message.
        rng = self.rng
        at, value = rng.choice([
            (0, rng.randbytes(4)), (4, rng.randbytes(1)), (5, bytes([rng.randrange(4, 256)])),
            (6, rng.randbytes(2)), (8, rng.randbytes(8)), (16, bytes(8)),
            (24, rng.randrange(1000, 1 << 32).to_bytes(4, "little")),
            (28, rng.randrange(1000, 1 << 31).to_bytes(4, "little")),
            (len(data) - rng.randrange(1, len(data)), b""),
        ])  # fmt: skip
        return data[:at] + value + data[at + len(value) :] if value else data[:at]

    def _land(self, sender: str, to: str, data: bytes) -> None:
        host = self.hosts[to]
        if host.node is not None and len(host.datagrams) < 500:
            if len(data) > 5 and data[5] == 2:  # from the sequencer, for outboxes
                for outbox_sender in host.node.watch.outbox_senders:
                    outbox_sender.told(data)
                return
            host.datagrams.append((sender, data))
            host.wake()

    # --- apps -----------------------------------------------------------------------------------

    def send(self, host: Host, name: str) -> None:
        """Send a few messages from an app."""
        if host.log.dead:
            self.look(host)  # end its process, before its outboxes change
        outbox = host.outbox(name)
        accepted = self.oracle.accepted[_number(host.outboxes[name], NONCE)]
        count, sizes = self.rng.randrange(1, 12), [0, 1, 8, 30, 200, 1388]
        if self.outbox[0] > 64 and self.rng.random() < 0.01:
            count, sizes = 6000, [0]
        for _ in range(count):
            size = self.rng.choice(sizes)
            payload = f"{host.name}.{name}.{len(accepted)}.".encode().ljust(size, b".")
            try:
                number = outbox.send(payload, self.rng.randrange(1 << 16))
            except (OutboxFullError, OutboxLostError, SupersededError):
                break
            accepted.append(payload)
            assert number == len(accepted)
        host.wake()

    def lost_outboxes(self) -> set[int]:
        """Return the outboxes that are gone, or whose name another outbox has taken."""
        living = set()
        for host in self.hosts.values():
            for memory in host.outboxes.values():
                outbox = Outbox(memory)
                if outbox.state == OutboxState.LOST and not (self.lost_power or self.unprotected):
                    raise Wrong(f"I6 {outbox.name}: lost messages, and no host lost its power")
                if outbox.state < OutboxState.SUPERSEDED:
                    living.add(_number(memory, NONCE))
        return set(self.oracle.accepted) - living

    def waiting(self, lost: set[int]) -> list[str]:
        """Return which outboxes still keep messages, except lost ones."""
        return [
            f"{name} on {host.name}: {_number(memory, FREED)} of {_number(memory, ACCEPTED)}"
            for host in self.hosts.values() for name, memory in host.outboxes.items()
            if _number(memory, NONCE) not in lost
            and _number(memory, FREED) != _number(memory, ACCEPTED)
        ]  # fmt: skip


def _number(memory: bytearray, at: int) -> int:
    return int.from_bytes(memory[at : at + 8], "little")
