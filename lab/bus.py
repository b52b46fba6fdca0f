"""Simulate a whole bus in one process, from one seed.

    udpfast lab bus --seeds 100 --seed 1
    udpfast lab bus --row B11 --seeds 100

Hosts are killed, frozen and cut off from the network; they are stopped cleanly and started again,
one of them, one after another or all at once; they lose their power, their disks fill up, and
their clocks are set. Links lose, duplicate, delay and damage what they carry. Replicas are
promoted at any moment. After every step, every copy is checked (`bus_oracle`). At the end all
faults stop, and every accepted message must be in every copy exactly once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from .bus_oracle import Wrong
from .bus_world import MS, Host, S, World
from .program import by_seeds

__all__ = ["FAULTS", "ROWS", "Row", "check_seed", "main", "remove", "run", "settle", "wipe"]


def _kill(world: World, host: Host) -> None:
    host.kill()
    world.after(world.rng.choice([1, 50, 500, 3000]) * MS, host.start_again)


def _restart(world: World, host: Host) -> None:
    # As `systemctl restart` does, or an operator who does something between stop and start.
    host.stop()
    world.after(world.rng.choice([1, 50, 500, 3000]) * MS, host.start_again)


def _restart_in_turn(world: World, _: Host) -> None:
    gap = world.rng.choice([1, 50, 500, 1500]) * MS
    hosts = world.rng.sample(list(world.hosts.values()), len(world.hosts))
    for at, host in enumerate(hosts):
        world.after(at * gap, functools.partial(_restart, world, host))


def _restart_all(world: World, _: Host) -> None:
    for host in world.hosts.values():
        _restart(world, host)


def _replace_writer(world: World, host: Host) -> None:
    # A planned change: the writer stops, another host is promoted, the old writer starts again.
    for writer in world.hosts.values():
        if writer.node is not None and writer.node.store.writer and writer is not host:
            writer.stop()
            wait = world.rng.choice([1, 50, 500]) * MS
            world.after(wait, lambda: _promote(world, host))
            world.after(wait + world.rng.choice([1, 500, 4000]) * MS, writer.start_again)
            return


def _kill_within(_: World, host: Host) -> None:
    # Kill the host in the middle of a write to its disk.
    host.log.kill_in = host.world.rng.randrange(1, 5)


def _power(world: World, host: Host) -> None:
    host.lose_power()
    world.after(world.rng.choice([500, 3000]) * MS, host.start_again)


def wipe(world: World, host: Host) -> None:
    """Lose the disk of a host, if another host has the store as well."""
    if any(any(other.log.identity) for other in world.hosts.values() if other is not host):
        host.wipe()
        world.after(world.rng.choice([1, 500, 3000]) * MS, host.start_again)


def _stop(world: World, host: Host) -> None:
    host.frozen = True

    def go_on() -> None:
        host.frozen = False
        host.wake()

    world.after(world.rng.choice([50, 900, 1500, 5000]) * MS, go_on)


def _part(world: World, host: Host) -> None:
    pair = frozenset((host.name, world.rng.choice(list(world.hosts))))
    if len(pair) == 2:
        world.apart.add(pair)
        world.after(world.rng.choice([20, 300, 2000, 5000]) * MS,
                    lambda: world.apart.discard(pair))  # fmt: skip


def _isolate(world: World, host: Host) -> None:
    pairs = {frozenset((host.name, other)) for other in world.hosts if other != host.name}
    world.apart |= pairs
    world.after(world.rng.choice([300, 2000, 5000]) * MS,
                lambda: world.apart.difference_update(pairs))  # fmt: skip


def _cut(world: World, host: Host) -> None:
    other = world.rng.choice(list(world.hosts))
    if other != host.name:
        world.cut(host.name, other)


def _fill(world: World, host: Host) -> None:
    host.log.disk_full = True

    def empty() -> None:
        host.log.disk_full = False
        host.wake()

    world.after(world.rng.choice([10, 500, 2000]) * MS, empty)


def _clock(world: World, host: Host) -> None:
    host.offset_ns += world.rng.choice([-10 * S, 3600 * S, -5 * S, 900 * MS, -900 * MS])


def _sync(world: World, host: Host) -> None:
    host.log.sync()


def remove(_: World, host: Host) -> None:
    """Remove the oldest segment, unless a standby needs it or the disk does not have it yet."""
    node = host.node
    if node is not None and len(host.log.segments) > 1:
        end = host.log.segments[1].position
        if end <= node.store.kept and end < host.log.synced():
            host.log.remove_oldest()


def _promote(world: World, host: Host) -> None:
    if host.node is None or host.frozen or len(world.hosts) == 1:
        return
    if host.daemon.promotion is not None:
        return
    if host.daemon.sequencer is not None and world.rng.random() < 0.9:
        return
    world.promote(host)


def _failover(world: World, host: Host) -> None:
    # The writer is killed or cut off, and another host is promoted.
    for writer in world.hosts.values():
        if writer.node is not None and writer.node.store.writer and writer is not host:
            if world.rng.random() < 0.5:
                writer.kill()
                world.after(world.rng.choice([1000, 4000]) * MS, writer.start_again)
            else:
                _isolate(world, writer)
            world.after(world.rng.choice([1, 50, 500]) * MS, lambda: _promote(world, host))
            return


def _app(world: World, host: Host) -> None:
    name = world.rng.choice(["a", f"{host.name}-a", f"{host.name}-b"])
    world.send(host, name)


FAULTS: list[tuple[int, Callable[[World, Host], None]]] = [
    (6, _kill), (1, _power), (3, _stop), (4, _part), (2, _isolate), (6, _cut), (2, _fill),
    (2, _clock), (8, _sync), (4, remove), (2, _promote), (3, _failover), (2, _kill_within),
    (1, wipe), (4, _restart), (1, _restart_in_turn), (1, _restart_all), (2, _replace_writer),
]  # fmt: skip


def run(seed: int, row: str | None = None) -> World:
    """Run the history of a seed; raise `Wrong` if a promise is broken.

    Parameters
    ----------
    seed : int
    row : str, optional
        Row of `ROWS`, to have only its faults. By default a history has all kinds of faults, except
        those that the seed leaves out.
    """
    drawn = ROWS[row] if row is not None else None
    world = World(seed) if drawn is None else drawn.world(seed)
    rng = world.rng
    faults = FAULTS if drawn is None else drawn.faults
    weights = [weight for weight, _ in faults]
    if drawn is None:
        # Some histories have few kinds of faults, because one kind may hide the effect of another.
        for at in range(len(weights)):
            if rng.random() < 0.4:
                weights[at] = 0
    calm = rng.choice([20, 200, 1000]) if drawn is None else drawn.calm
    end_ns = int((8.0 if drawn is None else drawn.seconds) * S)

    def fault() -> None:
        if world.now_ns < end_ns:
            if any(weights):
                do = rng.choices([do for _, do in faults], weights)[0]
                do(world, rng.choice(list(world.hosts.values())))
            world.after(rng.randrange(2 * calm) * MS, fault)

    pace = rng.choice([3, 20, 100]) if drawn is None else drawn.pace

    def app() -> None:
        if world.now_ns < end_ns:
            _app(world, rng.choice(list(world.hosts.values())))
            world.after(rng.randrange(2 * pace) * MS, app)

    world.after(MS, fault)
    world.after(MS, app)
    world.run(end_ns)
    settle(world)
    return world


@dataclass(frozen=True)
class Row:
    """Many faults of a few kinds.

    Attributes
    ----------
    faults : list
        Weights and functions, as in `FAULTS`.
    calm, pace : int
        Average milliseconds between two faults, and between two messages of apps.
    hosts, gate : int
    seconds : float
        Simulated seconds during which faults happen and apps send.
    """

    faults: list[tuple[int, Callable[[World, Host], None]]]
    calm: int = 400
    pace: int = 30
    hosts: int = 3
    gate: int = 0
    seconds: float = 8.0

    def world(self, seed: int) -> World:
        """Return the world of a seed, whose network loses, duplicates and delays datagrams."""
        world = World(seed, names=["S", "one", "two"][: self.hosts], gate=self.gate)
        world.loss, world.twice = world.rng.uniform(0, 0.3), world.rng.uniform(0, 0.5)
        world.late, world.flip, world.damage = 0.1, 0, 0
        world.outbox = 1 << 12, 1 << 20
        return world


def _kill_writer(world: World, host: Host) -> None:
    for writer in world.hosts.values():
        if writer.node is not None and writer.node.store.writer:
            (_kill if world.rng.random() < 0.7 else _kill_within)(world, writer)


def _stop_writer(world: World, host: Host) -> None:
    # The frozen writer continues where it was, after another host was promoted.
    for writer in world.hosts.values():
        if writer is not host and writer.node is not None and writer.node.store.writer:
            _stop(world, writer)
            world.after(world.rng.choice([1, 50, 500]) * MS, lambda: _promote(world, host))


def _fall_behind(world: World, host: Host) -> None:
    # Links delay more and more, up to 10 s, but so gradually that none seems to be silent.
    world.behind_ns = min(world.behind_ns + 30 * MS, 10 * S)


#: Rows of faults that concern messages and the writer.
ROWS = {
    "B10": Row([]),
    "B11": Row([(1, _kill_writer), (1, remove), (1, _sync)], calm=150),
    "B15": Row([(1, _fall_behind)], calm=100, seconds=45.0),
    "B16": Row([(2, _stop_writer), (1, _kill), (1, _cut)]),
    "B17": Row([(2, _stop_writer), (1, _kill), (1, _cut)], gate=1),
    "B18": Row([(2, _clock), (2, _failover), (1, _kill)]),
}


def settle(*worlds: World) -> None:
    """End all faults; check that every copy then has every message once. Worlds share a clock."""
    time = worlds[0].time
    time.run(time.now_ns + 6 * S)  # faults that have begun come to an end
    for world in worlds:
        world.apart.clear()
        world.loss = world.flip = world.damage = 0
        world.behind_ns = 0
        for host in world.hosts.values():
            host.log.disk_full = host.frozen = False
            host.log.kill_in = 0
            host.quarantine = True
            if host.node is None or host.daemon.copying.stop_reason:
                _start_again(world, host)
    for _ in range(60):
        time.run(time.now_ns + 1 * S)
        for world in worlds:
            for host in world.hosts.values():
                host.log.sync()
        waiting = [world for world in worlds if not _is_settled(world)]
        if not waiting:
            break
        for world in waiting:
            _look_after(world)
    for world in worlds:
        _compare(world)


def _start_again(world: World, host: Host) -> None:
    # Do what an operator does who has read why the daemon stopped.
    if host.node is not None and host.daemon.copying.stop_reason in ("gone", "wrong_store"):
        host.wipe()
    else:
        host.kill()
    host.start()


def _look_after(world: World) -> None:
    # Exactly one host must write. If none does, it is the one whose copy is longest.
    hosts = [host for host in world.hosts.values() if host.node is not None]
    latest = max(host.daemon.store.promised for host in hosts)
    writers = [host for host in hosts if host.daemon.sequencer is not None
               and host.daemon.store.epoch == latest]  # fmt: skip
    if any(host.daemon.promotion is not None for host in hosts):
        return
    for host in hosts:
        if host.daemon.copying.stop_reason:
            _start_again(world, host)
            return
    if not writers:
        furthest = max(hosts, key=lambda host: (host.daemon.store.epoch, host.daemon.store.end))
        if len(world.hosts) == 1:
            furthest.daemon.write_on(world.now_ns, furthest.unix_ns)
        else:
            world.promote(furthest)
        furthest.wake()


def _is_settled(world: World) -> bool:
    ends = {(host.daemon.store.end, host.daemon.store.epoch) for host in world.hosts.values()
            if host.node is not None}  # fmt: skip
    if len(ends) != 1 or any(host.node is None for host in world.hosts.values()):
        return False
    writers = [host for host in world.hosts.values() if host.daemon.sequencer is not None]
    if len(writers) != 1 or _away(writers[0]):
        return False
    sequenced = world.oracle.sequenced(writers[0].name)
    lost = world.lost_outboxes()
    lost |= {nonce for nonce in world.oracle.accepted if _refused(world, nonce)}
    return not world.waiting(lost) and all(
        sequenced.get(nonce, 0) == len(payloads)
        for nonce, payloads in world.oracle.accepted.items() if nonce not in lost
    )  # fmt: skip


def _away(writer: Host) -> tuple[str, ...]:
    return (*writer.daemon.store.release.away, *writer.daemon.store.release.above)


def _refused(world: World, nonce: int) -> bool:
    # An outbox waits for ever, and its app is told, if a living one has the same name.
    host, name = world.nonces[nonce]
    for outbox_sender in world.hosts[host].daemon.watch.outbox_senders:
        if outbox_sender.outbox.name == name:
            return outbox_sender.outbox.state.name in ("NAME_IN_USE", "NEW") and name == "a"
    return False


def _compare(world: World) -> None:
    hosts = list(world.hosts.values())
    for host in hosts:
        if host.node is None:
            raise Wrong(f"{host.name} does not run")
    writers = [host for host in hosts if host.daemon.sequencer is not None]
    if len(writers) != 1:
        raise Wrong(f"expected one writer, found {[host.name for host in writers]}")
    writer = writers[0]
    for host in hosts:
        if (host.daemon.store.end, host.daemon.store.epoch) != (
                writer.daemon.store.end, writer.daemon.store.epoch):  # fmt: skip
            raise Wrong(
                f"I2 {host.name} ends at {host.daemon.store.end}, {writer.name} at "
                f"{writer.daemon.store.end}: {host.daemon.store.said[-3:]}"
            )
    if _away(writer):
        raise Wrong(f"I6 {writer.name} takes {_away(writer)} for away: no copy lacks anything")
    first = max(host.log.first()[0] for host in hosts)
    copies = {b"".join(host.log.records(first, host.log.end)) for host in hosts}
    if len(copies) != 1:
        raise Wrong("I2 the copies differ")
    places = {tuple(s.position for s in host.log.segments if s.position >= first)
              for host in hosts}  # fmt: skip
    if len(places) != 1:
        raise Wrong(f"I2 the copies differ in where their segments begin: {places}")
    if world.gate and not world.blind and not world.lost_power:
        there = {(epoch, position) for position, epoch in world.oracle.views[writer.name].places}
        gone = [place for place in world.oracle.shown if place not in there]
        if gone:
            raise Wrong(f"I3 {len(gone)} records that readers saw are gone, from {gone[0]} on")
    sequenced = world.oracle.sequenced(writer.name)
    lost = world.lost_outboxes()
    lost |= {nonce for nonce in world.oracle.accepted if _refused(world, nonce)}
    waiting = world.waiting(lost)
    if waiting:
        raise Wrong(f"I6 outboxes still keep messages that are safe: {waiting}")
    for nonce, payloads in world.oracle.accepted.items():
        count = sequenced.get(nonce, 0)
        if count < len(payloads) and nonce not in lost:
            raise Wrong(f"I6 {world.nonces[nonce]}: {len(payloads)} accepted, {count} in the store")
        if count > len(payloads):
            raise Wrong(f"I5 {world.nonces[nonce]}: {len(payloads)} accepted, {count} in the store")


def check_seed(seed: int, row: str | None = None) -> dict[str, int]:
    """Run one seed; raise `Wrong` if a promise is broken; return counts of what happened."""
    world = run(seed, row)
    return {
        "records checked": world.oracle.checked,
        "messages accepted": sum(map(len, world.oracle.accepted.values())),
        "epochs": len({epoch for epoch, _ in world.oracle.truth}),
        "hosts without power": len(world.lost_power),
        "kills": world.happened["kills"],
        "stops": world.happened["stops"],
        "promotions": world.happened["promotions"],
        "duplicates refused": world.oracle.duplicates,
        "messages sent again": world.oracle.resent,
    }


main = by_seeds(__name__, check_seed, 100, ROWS)
