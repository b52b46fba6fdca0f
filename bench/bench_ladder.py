"""At which rate is the first message lost end to end, and which counter says so first?

    sender -- 127.0.0.1, whole messages, one rung --> subscriber --> ring --> strategy
     (own process, open schedule)                    (own process)        (own process)

    sender -- veth, trains, 900,000/s --> subscriber --> ring --> strategy
     (own namespace)                      (own namespace)

Default settings, nothing pinned, three processes on whatever cores there are. A rung is clean if
every message that was sent came out of the ring, in order, and the ledger adds up. The ladder ends
at the first rung that is not; its row says which counter moved, the one nearest to the sender
first. The last rung is the sender's full speed, and is repeated: on loopback the sender's core also
runs the kernel's work of receiving, so the sender is as a rule the first limit. Trains
(UDP_SEGMENT) over veth bring a receiver twice as many; making the interfaces needs root. With a
small receive buffer the ladder shows what an overload looks like that the sender alone cannot make.

Usage: udpfast bench run ladder [--quick]
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from udpfast.agents.feed.subscriber import Subscriber
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind
from udpfast.errors import RingClosedError
from udpfast.monitor.ledger import ledger_of

from .loops.pace import PaceResult
from .namespaces import Wire, WireUnavailableError, wire
from .partner import Partner
from .result import Row
from .schedule import Schedule, even_schedule
from .trials import Benchmark, Settings
from .wire_trial import feed_tables, own_instances, send_schedule

__all__ = ["BENCHMARK"]

NAME = "ladder"
RUNGS = (50_000, 100_000, 200_000, 300_000, 400_000, 500_000)
#: More than any sender reaches: everything is due at once.
FULL_SPEED = 1_000_000_000
SECONDS = 0.4
FULL_MESSAGES = 100_000
FULL_RUNS = 10
VETH_RATE = 900_000
SIZE = 64
SETTLE_S = 0.02
BUFFERS = {"default buffer": {}, "buffer of 256 KiB": {"receive": {"rcvbuf_bytes": 1 << 18}}}


@dataclass(frozen=True, slots=True)
class Rung:
    """What each stage saw.

    Attributes
    ----------
    sent, received, delivered, read : int
        Messages (of one datagram).
    unsent, kernel_drops, lost, lapped : int
        In the order of the way: given up by the sender, dropped by the kernel, reported as lost by
        the feed, missed by the strategy.
    per_s : float
        What the sender reached.
    late_ms : float
        The furthest that the sender was behind its schedule.
    adds_up : bool
        The ledger's.
    """

    sent: int
    received: int
    delivered: int
    read: int
    unsent: int
    kernel_drops: int
    lost: int
    lapped: int
    per_s: float
    late_ms: float
    adds_up: bool

    @property
    def moved(self) -> list[str]:
        """The counters of loss that moved, the one nearest to the sender first."""
        names = ("unsent", "kernel_drops", "lost", "lapped")
        return [f"{name} {getattr(self, name):,}" for name in names if getattr(self, name)]

    @property
    def clean(self) -> bool:
        """Whether nothing was lost anywhere."""
        whole = self.sent == self.received == self.delivered == self.read > 0
        return whole and self.adds_up and not self.moved

    def account(self) -> str:
        """Say what was found, as `Row.verified` does."""
        if self.clean:
            return f"{self.sent:,} sent = received = delivered = read, the ledger adds up"
        if not self.adds_up:
            raise ValueError(f"expected a ledger that adds up, found {self}")
        return (
            f"{self.sent:,} sent, {self.received:,} received, {self.delivered:,} delivered, "
            f"{self.read:,} read; moved: {', '.join(self.moved)}"
        )


def run(settings: Settings) -> Iterator[Row]:
    """Climb with the default buffer and with a small one; then repeat full speed."""
    part = 4 if settings.quick else 1
    with own_instances(), contextlib.ExitStack() as stack:
        trio = [stack.enter_context(Partner(None)) for _ in range(3)]
        for name, tables in BUFFERS.items():
            yield from climb(name, tables, trio, part, settings)
        runs = FULL_RUNS // part
        full_speed = partial(take, trio, FULL_SPEED, FULL_MESSAGES // part, {})
        yield clean_runs("clean runs at full speed", runs, full_speed, settings)
        try:
            link = stack.enter_context(wire())
        except WireUnavailableError as reason:
            settings.note(f"veth left out: {reason}")
            return
        over_veth = partial(take, trio, VETH_RATE, FULL_MESSAGES * 4 // part, {}, link)
        yield clean_runs("clean runs over veth", runs, over_veth, settings)


def clean_runs(variant: str, runs: int, once: Callable[[], Rung], settings: Settings) -> Row:
    """Repeat a rung; return how often it was clean, and how fast the slowest was sent."""
    rungs = []
    for number in range(runs):
        settings.progress(f"{variant}, run {number + 1} of {runs}")
        rungs.append(once())
    worst = next((rung for rung in rungs if not rung.clean), rungs[-1])
    slowest = min(rung.per_s for rung in rungs)
    return Row(
        benchmark=NAME,
        variant=variant,
        parameters={"size": SIZE, "runs": runs},
        unit="runs",
        values=[float(sum(rung.clean for rung in rungs))],
        placement="",
        goal=f"P21: >= {runs} runs",
        lower_is_better=False,
        verified=f"{worst.account()}; {slowest:,.0f} messages/s or more",
    )


def climb(
    name: str, tables: dict[str, Any], trio: list[Partner], part: int, settings: Settings
) -> Iterator[Row]:
    """Take rung after rung until one is not clean; yield a row for each, and the highest clean."""
    highest = None
    for rate in (*RUNGS, FULL_SPEED):
        words = "full speed" if rate == FULL_SPEED else rate
        settings.progress(f"{name}, {words}")
        full = rate == FULL_SPEED
        messages = (FULL_MESSAGES if full else int(rate * SECONDS)) // part
        rung = take(trio, rate, messages, tables)
        yield row_of(f"{name}: reached", rung, {"rate": words})
        if not rung.clean:
            settings.note(f"{name}: first loss at {words}: {', '.join(rung.moved)}")
            break
        if highest is None or rung.per_s > highest.per_s:
            highest = rung
    if highest is not None:
        yield row_of(f"{name}: highest clean rate", highest, {})


def row_of(variant: str, rung: Rung, parameters: dict[str, int | float | str]) -> Row:
    """Return one rung as a row."""
    return Row(
        benchmark=NAME,
        variant=variant,
        parameters={"size": SIZE, **parameters},
        unit="messages/s",
        values=[rung.per_s],
        placement="",
        lower_is_better=False,
        verified=f"{rung.account()}; sender {rung.late_ms:.1f} ms late at most",
    )


def take(
    trio: list[Partner],
    rate: int,
    messages: int,
    tables: dict[str, Any],
    link: Wire | None = None,
) -> Rung:
    """Run one rate through three processes; over the wire in trains, if there is one."""
    feed, strategy, sender = trio
    settings = feed_tables(1, window={}, **tables)
    line = settings["incremental"]["lines"][0]
    if link is not None:
        line["address"] = line["address"].replace("127.0.0.1", "10.99.0.2")
    feed.call(start_feed, settings, link)
    try:
        strategy.start(follow, settings["name"])
        feed.call(await_reader)
        schedule = even_schedule(rate, messages)
        sent: PaceResult = sender.call(send_rung, line["address"], schedule, link)
    finally:
        counters = feed.call(stop_feed)
    read, lapped = strategy.result()
    received, channel = counters["incremental.A"], counters["incremental"]
    return Rung(
        sent=sent.datagrams,
        received=received["datagrams"],
        delivered=channel["messages"],
        read=read,
        unsent=sent.unsent,
        kernel_drops=received["kernel_drops"],
        lost=channel["lost"],
        lapped=lapped,
        per_s=sent.datagrams * 1e9 / sent.elapsed_ns,
        late_ms=0.0 if rate == FULL_SPEED else sent.late_ns_max / 1e6,
        adds_up=ledger_of(counters).adds_up,
    )


# --- what the partners do ---------------------------------------------------------------------


def start_feed(state: dict[str, Any], tables: dict[str, Any], link: Wire | None) -> None:
    """Start a subscriber; it receives when this returns."""
    with link.inside(link.b) if link else contextlib.nullcontext():
        state["feed"] = Subscriber(tables)
        state["feed"].start()


def send_rung(
    state: dict[str, Any], address: str, schedule: Schedule, link: Wire | None
) -> PaceResult:
    """Send a schedule that begins now."""
    with link.inside(link.a) if link else contextlib.nullcontext():
        return send_schedule(state, [address], SIZE, schedule, segment=link is not None)


def await_reader(state: dict[str, Any]) -> None:
    """Wait until the strategy has attached."""
    while not any((state["feed"].directory / "readers").glob("*")):
        time.sleep(0.001)


def stop_feed(state: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Stop the subscriber when nothing moves any more; return its counters."""
    feed = state.pop("feed")
    before = -1
    while (now := feed.counters()["incremental.A"]["datagrams"]) != before:
        before = now
        time.sleep(SETTLE_S)
    feed.stop()
    counters: dict[str, dict[str, int]] = feed.counters()
    return counters


def follow(state: dict[str, Any], name: str) -> tuple[int, int]:
    """Read an instance to its end; return messages read, and records missed."""
    messages = 0
    with Reader(f"ring:{name}", start="begin") as reader:
        with contextlib.suppress(RingClosedError):
            while True:
                batch = reader.poll()
                messages += int((batch.headers["kind"] == Kind.MESSAGE).sum())
        return messages, reader.lapped


BENCHMARK = Benchmark(
    name=NAME,
    question="At which rate is the first message lost end to end, and which counter says so first?",
    topology="""
sender -- 127.0.0.1, whole messages, one rung --> subscriber --> ring --> strategy
 (own process, open schedule)                    (own process)        (own process)
sender -- veth, trains, 900,000/s --> subscriber --> ring --> strategy
 (own namespace)                      (own namespace)
""",
    run=run,
    seconds=18.0,
)
