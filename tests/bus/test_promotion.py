"""A promotion that cannot succeed fences nobody; a later failure reports that nobody writes."""

from lab.bus_memory import MemoryLog
from lab.bus_world import Host, World
from tests.bus.drive import IDENTITY, LAYOUT, MS, S, lead, register, send
from udpfast.bus.hello import Answer
from udpfast.bus.log import Store
from udpfast.bus.promotion import ANSWER_NS, LATE_NS, Promotion, PromotionState


def calm(*names: str) -> World:
    """Return hosts without random faults, whose store has begun."""
    world = World(1, names=list(names), gate=0)
    world.loss = world.twice = world.flip = world.late = world.damage = 0
    world.tiny, world.delay_ns, world.sources = False, MS, {}
    for host in world.hosts.values():
        host.quarantine = False
        host.kill()
        host.start()
    run(world, 3)
    assert writers(world) == ["S"]
    return world


def run(world: World, seconds: float) -> None:
    world.run(world.now_ns + int(seconds * S))


def writers(world: World) -> list[str]:
    return [name for name, host in world.hosts.items()
            if host.node is not None and host.node.store.writer]  # fmt: skip


def said(host: Host) -> str:
    return "\n".join(host.daemon.store.said)


def diverged(*names: str) -> World:
    """Return hosts where `one` writes, and S has records that no other host has."""
    world = calm(*names)
    for name in names[1:]:
        world.apart.add(frozenset(("S", name)))
    run(world, 2)
    world.send(world.hosts["S"], "a")
    run(world, 1)
    world.promote(world.hosts["one"])
    run(world, 6)
    world.apart.clear()
    run(world, 3)
    assert writers(world) == ["one"]
    assert world.hosts["S"].daemon.copying.stop_reason == "diverged"
    return world


def test_host_that_differs_is_refused_and_whoever_writes_goes_on() -> None:
    world = diverged("S", "one", "two")
    epochs = {name: host.daemon.store.promised for name, host in world.hosts.items()}
    world.promote(world.hosts["S"])
    run(world, 8)
    assert writers(world) == ["one"]
    assert epochs == {name: host.daemon.store.promised for name, host in world.hosts.items()}
    host = world.hosts["S"]
    assert host.daemon.outcome[0].startswith("not promoted: ")
    assert host.daemon.outcome[0].endswith("has more records, and refuses to give them: DIVERGED")
    assert host.daemon.copying.stop_reason == "diverged", "it still does not copy"
    world.send(world.hosts["two"], "b")
    run(world, 2)
    assert world.hosts["two"].daemon.store.end == world.hosts["one"].daemon.store.end


def test_planned_failover_leaves_one_history() -> None:
    world = calm("S", "one", "two")
    world.hosts["S"].stop()
    run(world, 1)
    world.promote(world.hosts["one"])
    run(world, 5)
    end = world.hosts["S"].log.end
    world.hosts["S"].start()
    run(world, 5)
    assert writers(world) == ["one"]
    assert world.hosts["S"].daemon.stream_comes
    assert world.hosts["S"].daemon.copying.stop_reason == ""
    assert world.hosts["S"].log.end == world.hosts["one"].log.end >= end
    assert not world.hosts["S"].log.aside
    world.promote(world.hosts["S"])
    run(world, 5)
    assert writers(world) == ["S"]


def test_writer_that_is_promoted_itself_goes_on_without_a_pause_if_refused() -> None:
    world = calm("S", "one")
    writer = world.hosts["S"].daemon
    world.promote(world.hosts["S"])
    assert writer.sequencer is not None
    assert writer.store.writer
    run(world, 5)
    assert writers(world) == ["S"]
    assert "now writes epoch" in said(world.hosts["S"])
    assert "another host writes" not in said(world.hosts["S"])


def test_furthest_host_that_goes_away_is_left_out_after_a_while() -> None:
    world = calm("S", "one", "two")
    world.apart.add(frozenset(("S", "two")))
    run(world, 2)
    world.send(world.hosts["S"], "a")
    run(world, 1)
    assert world.hosts["one"].log.end > world.hosts["two"].log.end
    world.hosts["S"].kill()
    world.promote(world.hosts["two"])
    while "one" not in world.hosts["two"].promotion.answers:
        run(world, 0.001)
    world.hosts["one"].frozen = True
    run(world, 6)
    assert writers(world) == ["two"]
    assert "one could not be reached" in said(world.hosts["two"])


def answer(kept: Store, host: str, **changed) -> Answer:
    told = {"promised": kept.promised, "epoch": kept.epoch, "end": kept.end, **changed}
    return Answer(told["promised"], told["epoch"], told["end"], 0, 0, False, host, IDENTITY)


def copy(host: str) -> Store:
    seq = lead(Store(MemoryLog(1 << 18, LAYOUT, IDENTITY), host))
    register(seq)
    send(seq, 1, 3)
    seq.store.fence(seq.store.epoch + (1 << 24))  # it follows
    return seq.store


def test_new_epoch_is_later_than_all_that_were_promised() -> None:
    kept = copy("one")
    promotion = Promotion(kept, ("S", "two"), 7, 0)
    assert (promotion.state, promotion.epoch) == (PromotionState.ASKING, 0)
    before = kept.promised
    promotion.answered("S", answer(kept, "S", promised=before + (9 << 40)), MS)
    assert kept.promised == before, "nobody promised anything"
    promotion.answered("two", answer(kept, "two"), MS)
    assert promotion.state is PromotionState.FENCING
    assert promotion.epoch > before + (9 << 40)
    assert kept.promised == promotion.epoch


def test_host_that_did_not_answer_at_first_is_waited_for_a_moment_only() -> None:
    kept = copy("one")
    promotion = Promotion(kept, ("S", "two"), 7, 0)
    promotion.answered("two", answer(kept, "two"), MS)
    promotion.work(ANSWER_NS, 0)
    assert promotion.state is PromotionState.FENCING
    promotion.work(ANSWER_NS + LATE_NS, 0)
    assert promotion.state is PromotionState.FENCING, "two was there a moment ago"
    promotion.answered("two", answer(kept, "two"), ANSWER_NS + LATE_NS)
    assert promotion.state is PromotionState.READY
    assert promotion.unreachable == ("S",)


def test_answer_from_before_the_fence_is_no_promise() -> None:
    kept = copy("one")
    promotion = Promotion(kept, ("two",), 7, 0)
    promotion.answered("two", answer(kept, "two"), MS)
    promotion.answered("two", answer(kept, "two", promised=promotion.epoch - 1), MS)
    assert promotion.state is PromotionState.FENCING


def test_promotion_that_is_overtaken_does_not_say_that_nobody_writes() -> None:
    kept = copy("one")
    promotion = Promotion(kept, ("two",), 7, 0)
    promotion.answered("two", answer(kept, "two"), MS)
    later = promotion.epoch + (1 << 40)
    promotion.answered("two", answer(kept, "two", promised=later), MS)
    assert promotion.state is PromotionState.REFUSED
    assert "two has promised a later epoch" in promotion.reason
    assert not promotion.silent


def test_promotion_that_fails_behind_the_fence_says_who_could_write() -> None:
    world = calm("S", "one")
    one = world.hosts["one"]
    world.hosts["S"].frozen = True
    world.promote(one)
    promotion = one.promotion
    while promotion.state is not PromotionState.FENCING:
        run(world, 0.01)
    # The copy of two differs and is longer, as if two had been cut off before.
    store = one.daemon.store
    promotion.answers["S"] = answer(store, "S", epoch=store.epoch, end=store.end + 64)
    promotion._refuse("S has more records, and refuses to give them: GONE")
    run(world, 0.1)
    assert one.daemon.outcome == (
        "not promoted: S has more records, and refuses to give them: GONE; no host writes the "
        "store now: run `udpfast bus promote` for S",
    )
