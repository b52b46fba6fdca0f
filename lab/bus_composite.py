"""Simulate a composite from one seed: two stores and the log of their order on the same hosts.

    udpfast lab bus-composite --seeds 100 --seed 1

The same faults happen to hosts as in `udpfast lab bus`. A daemon has all three logs, so that a host
that is killed, stopped or cut off loses all of them at once. Full disks, broken links and
promotions concern one log at a time. On each host a reader follows the composite through all of
that.

I10: a composite has each record of each input exactly once, in the order of that input, and so has
the replay of every host at the end. The replays of all hosts are the same bytes. Readers must have
read the same bytes along the way, except for what the order log or an input lost meanwhile.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from udpfast.bus.merger import Merger

from .bus import FAULTS, remove, settle
from .bus_memory import MemoryLog
from .bus_oracle import Wrong
from .bus_world import MS, Host, S, Time, World
from .program import by_seeds

__all__ = ["CompositeWorld", "check_seed", "main", "run"]

_ENTRY = struct.Struct("<IIQQQQ")
_ORDER, _BACK = 52, 1
_INPUTS = ("a", "b")


def _number(record: bytes, at: int) -> int:
    return int.from_bytes(record[at : at + 8], "little")


@dataclass(frozen=True)
class _Entry:
    """An entry of the order log: a range of records of an input, or that a range is lost."""

    record: bytes
    place: int
    at: int
    back: bool
    first: int
    end: int
    index: int
    count: int
    epoch: int


def _entry(record: bytes) -> _Entry:
    at, flags, first, end, index, count = _ENTRY.unpack_from(record, 64)
    back = bool(flags & _BACK)
    return _Entry(
        record, _number(record, 8), at, back, first, end, index, count, _number(record, 40)
    )


class Follower:
    """Reads a composite on one host, and continues whatever happens to its daemon and its logs."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.begin()

    def begin(self) -> None:
        """Begin to read from the first record."""
        self._taken: list[tuple[int, int, bytes]] = []  # place of the entry, input, record
        self._entries: list[_Entry] = []
        self._done = 0  # entries that are read
        self._place = 0

    @property
    def read(self) -> list[tuple[int, bytes]]:
        """Inputs and records in order, without the records that were lost again."""
        return [(at, record) for _, at, record in self._taken]

    def look(self, order: Any, inputs: Sequence[Any]) -> None:
        """Read the new records that readers may see."""
        while self._entries and not _has(order.log, self._entries[-1].record):
            lost = self._entries.pop()  # the order log has lost this entry
            self._place = lost.place
            self._taken = [each for each in self._taken if each[0] != lost.place]
        self._done = min(self._done, len(self._entries))
        for record in order.log.records(self._place, order.released):
            if record[4] == _ORDER:
                self._entries.append(_entry(record))
                self._place = self._entries[-1].place + len(record)
        while self._done < len(self._entries) and self._do(self._entries[self._done], inputs):
            self._done += 1

    def _do(self, entry: _Entry, inputs: Sequence[Any]) -> bool:
        # Read the records of an entry; return False if this host does not have all of them yet.
        if entry.back:
            self._taken = [(place, at, record) for place, at, record in self._taken
                           if at != entry.at or _number(record, 8) < entry.first]  # fmt: skip
            return True
        # Do not wait for records that a later entry declares lost.
        end, epoch = min([(entry.end, entry.epoch), *(
            (each.first, each.epoch) for each in self._entries[self._done :]
            if each.back and each.at == entry.at)])  # fmt: skip
        store = inputs[entry.at]
        if end <= entry.first:
            return True
        if store.released < end or store.lineage.at(end - 1)[0] != epoch:
            return False
        own = list(store.log.records(entry.first, end))
        if (_number(own[0], 8), _number(own[0], 16)) != (entry.first, entry.index):
            raise Wrong(f"I10 {self.host}: an entry takes {_INPUTS[entry.at]} from record "
                        f"{entry.index} at {entry.first}, there is another one")  # fmt: skip
        self._taken += [(entry.place, entry.at, record) for record in own]
        return True


def _has(log: Any, record: bytes) -> bool:
    return bool(log.checksum_at(_number(record, 8)) == int.from_bytes(record[60:64], "little"))


def replay(order: Any, inputs: Sequence[Any]) -> list[tuple[int, bytes]]:
    """Return the records of a composite as a late reader finds them, from complete logs."""
    entries = [_entry(record) for record in order.records(0, order.end) if record[4] == _ORDER]
    found: list[tuple[int, bytes]] = []
    for entry in entries:
        ends = [each.first for each in entries
                if each.back and each.at == entry.at and each.place > entry.place]  # fmt: skip
        end = min([entry.end, *ends])
        if entry.back or end <= entry.first:
            continue
        own = list(inputs[entry.at].records(entry.first, end))
        found += [(entry.at, record) for record in own]
        first, index = (_number(own[0], 8), _number(own[0], 16)) if own else (-1, -1)
        if (first, index) != (entry.first, entry.index):
            raise Wrong(f"I10 an entry takes {_INPUTS[entry.at]} from record {entry.index} at "
                        f"{entry.first}, there is {index} at {first}")  # fmt: skip
        if end == entry.end and len(own) != entry.count:
            raise Wrong(f"I10 an entry takes {entry.count} records, there are {len(own)}")
    return found


class Machine:
    """The process and the clock that the three logs of one host share."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parts: list[Part] = []
        self.follower = Follower(name)
        self.merger: Merger | None = None
        self.frozen = False
        self.offset_ns = 0

    @property
    def order(self) -> Part:
        """The part that has the order log."""
        return self.parts[-1]

    def start(self) -> None:
        """Start the daemon: all parts that do not run."""
        if len(self.parts) <= len(_INPUTS):
            return  # the world is being made
        for part in self.parts:
            if part.node is None:
                Host.start(part)
        if any(part.node is None for part in self.parts):
            return  # it was killed during the start, and starts again later
        inputs = [part.daemon for part in self.parts[: len(_INPUTS)]]
        self.merger = Merger(self.order.daemon, inputs)

    def kill(self) -> None:
        """End the daemon as `kill -9` does."""
        self.merger = None
        for part in self.parts:
            Host.kill(part)

    def stop(self) -> None:
        """Stop the daemon cleanly."""
        if self.frozen or any(part.node is None or part.log.dead for part in self.parts):
            return
        self.merger = None
        for part in self.parts:
            Host.stop(part)

    def work(self) -> None:
        """Do the work of the daemon for the composite, and let its reader read."""
        order = self.order
        if order.node is None or self.frozen or self.merger is None:
            return
        if self.merger.work(order.world.now_ns, order.unix_ns):
            order.wake()
        order.world.look(order)
        if all(part.node is not None for part in self.parts):
            stores = [part.daemon.store for part in self.parts]
            self.follower.look(stores[-1], stores[:-1])


class Part(Host):
    """One log of a machine."""

    def __init__(self, world: World, name: str, log: MemoryLog, machine: Machine) -> None:
        self.machine = machine
        super().__init__(world, name, log)
        machine.parts.append(self)

    @property
    def frozen(self) -> bool:
        """Whether the process is stopped."""
        return self.machine.frozen

    @frozen.setter
    def frozen(self, frozen: bool) -> None:
        self.machine.frozen = frozen

    @property
    def offset_ns(self) -> int:
        """Error of the clock of the host."""
        return self.machine.offset_ns

    @offset_ns.setter
    def offset_ns(self, offset_ns: int) -> None:
        self.machine.offset_ns = offset_ns

    def start(self) -> None:
        """Start the daemon."""
        self.machine.start()

    def kill(self) -> None:
        """End the daemon."""
        self.machine.kill()

    def stop(self) -> None:
        """Stop the daemon cleanly."""
        self.machine.stop()

    def lose_power(self) -> None:
        """End everything at once; each disk keeps only what was synced."""
        for part in self.machine.parts:
            Host.lose_power(part)
        self.machine.follower.begin()

    def wipe(self) -> None:
        """End the daemon, and replace the disk of this log by an empty one."""
        super().wipe()
        self.machine.follower.begin()

    def turn(self) -> None:
        """Let the daemon work."""
        super().turn()
        self.machine.work()


class CompositeWorld:
    """Two stores and an order log on the same hosts, with faults from a seed."""

    def __init__(self, seed: int) -> None:
        self.time = Time()
        self.machines: dict[str, Machine] = {}

        def make(world: World, name: str, log: MemoryLog) -> Host:
            return Part(world, name, log, self.machines.setdefault(name, Machine(name)))

        first = World(f"{seed} a", time=self.time, make_host=make)
        names = list(first.hosts)
        others = [World(f"{seed} {name}", time=self.time, names=names, make_host=make)
                  for name in ("b", "order")]  # fmt: skip
        self.worlds = [first, *others]
        for world in others:
            world.apart = first.apart  # one network
        self.rng = first.rng

    @property
    def inputs(self) -> list[World]:
        """The stores."""
        return self.worlds[: len(_INPUTS)]


def run(seed: int, seconds: float = 6.0) -> CompositeWorld:
    """Run the history of a seed; raise `Wrong` if a promise is broken."""
    world = CompositeWorld(seed)
    rng = world.rng
    # No segment is removed, because a replay reads from the first record.
    faults = [(0 if do is remove or rng.random() < 0.4 else weight, do) for weight, do in FAULTS]
    weights = [weight for weight, _ in faults]
    calm, pace = rng.choice([50, 300, 1000]), rng.choice([10, 50, 100])
    end_ns = int(seconds * S)

    def fault() -> None:
        if world.time.now_ns < end_ns:
            if any(weights):
                do = rng.choices([do for _, do in faults], weights)[0]
                whose = rng.choice(world.worlds)
                do(whose, rng.choice(list(whose.hosts.values())))
            world.time.after(rng.randrange(2 * calm) * MS, fault)

    def app() -> None:
        if world.time.now_ns < end_ns:
            whose = rng.choice(world.inputs)
            host = rng.choice(list(whose.hosts.values()))
            whose.send(host, rng.choice(["a", f"{host.name}-a"]))
            world.time.after(rng.randrange(2 * pace) * MS, app)

    world.time.after(MS, fault)
    world.time.after(MS, app)
    world.time.run(end_ns)
    settle(*world.worlds)
    world.time.run(world.time.now_ns + 2 * S)  # the rest is ordered and read
    _compare(world)
    return world


def _compare(world: CompositeWorld) -> None:
    found = {}
    for name, machine in world.machines.items():
        *inputs, order = (part.log for part in machine.parts)
        whole = replay(order, inputs)
        for at, log in enumerate(inputs):
            own = [record for whose, record in whole if whose == at]
            if own != list(log.records(0, log.end)):
                raise Wrong(f"I10 {name}: of {_INPUTS[at]} the composite has {len(own)} records, "
                            f"not those {log.end_index} that there are")  # fmt: skip
        if machine.follower.read != whole:
            raise Wrong(f"I10 {name}: its reader read another order than a replay has")
        found[name] = hashlib.sha256(b"".join(record for _, record in whole)).hexdigest()
    if len(set(found.values())) != 1:
        raise Wrong(f"I10 the composite is not the same bytes on all hosts: {found}")


def check_seed(seed: int) -> dict[str, int]:
    """Run one seed; raise `Wrong` if a promise is broken; return counts of what happened."""
    world = run(seed)
    order = world.worlds[-1].hosts["S"].log
    entries = [_entry(record) for record in order.records(0, order.end) if record[4] == _ORDER]
    return {
        "records of composites": sum(len(each.follower.read) for each in world.machines.values()),
        "entries": len(entries),
        "losses of inputs": sum(entry.back for entry in entries),
    }


main = by_seeds(__name__, check_seed, 100)
