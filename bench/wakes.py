"""What readers that sleep in event loops cost, and how soon they wake: part of `bench_styles`."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from udpfast.client.reader import Reader
from udpfast.core.clock import monotonic_ns
from udpfast.log.cursor import RingCursor
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.histogram import LatencyHistogram
from udpfast.shm.wake import Sleeper, WakeRegion

from .loops.hostprobe import pinned
from .loops.ring_hop import read_paced
from .loops.wake_hop import turn_cost_ns, wake_cost_ns, write_turns
from .partner import Partner
from .result import Row
from .ring_trial import close_ring, open_ring
from .trials import Outcome, Settings, interleave
from .wire_trial import LEAD_NS, memory_directory

__all__ = ["beside", "waking"]

NAME = "styles"
WAKE_PERIOD_NS = 1_000_000
IDLE_S = 2.0
HERE = "spinning, beside 8 asyncio"
ELSEWHERE = "spinning, 8 asyncio elsewhere"
#: How many readers sleep, and whether that is elsewhere.
BESIDE = {"spinning, alone": (0, False), HERE: (8, False), ELSEWHERE: (8, True)}


def waking(settings: Settings) -> Iterator[Row]:
    """Measure wake-ups, the writer's turn, and an idle reader's share of a core."""
    count = 200 if settings.quick else 1000
    core = settings.cores[1]
    with Partner(settings.cores[0]) as partner:
        variants: dict[str, Callable[[], float | Outcome]] = {
            "pipe, add_reader": partial(pipe_wakes, partner, core, count),
            "async for": partial(ring_wakes, partner, core, count, "backoff"),
            'async for, idle="spin"': partial(ring_wakes, partner, core, count, "spin"),
        }
        yield from interleave(variants, settings, label="wake-up").rows(
            NAME, "ns", {"rate": 1_000_000_000 // WAKE_PERIOD_NS}, base="pipe, add_reader"
        )
    turns: dict[str, Callable[[], float | Outcome]] = {
        "turn, nobody sleeps": partial(turn, core),
        "wake, one sleeper": partial(wake, core),
    }
    yield from interleave(turns, settings, label="turn", two_cores=False).rows(
        NAME, "ns/turn", {}, verified="the sleeper's descriptor became readable"
    )
    idle: dict[str, Callable[[], float | Outcome]] = {"async for, idle feed": partial(rest, core)}
    yield from interleave(idle, settings, label="idle", rounds=1, two_cores=False).rows(
        NAME, "percent", {}, goals={"async for, idle feed": "idle: <= 1 percent"}
    )


def due_times(count: int) -> Any:
    """Return when the records are due: regularly, after a start for the reader to be ready."""
    return monotonic_ns() + 60 * LEAD_NS + WAKE_PERIOD_NS * np.arange(count, dtype=np.int64)


def ring_wakes(partner: Partner, core: int, count: int, idle: str) -> Outcome:
    """Let the partner write on a schedule; time each record until the task has it."""
    histogram = LatencyHistogram()

    async def read(reader: Reader) -> None:
        seen = 0
        async for record in reader:
            histogram.record(monotonic_ns() - record.published_ns)
            if record.number != seen:
                raise ValueError(f"expected record {seen}, found {record.number}")
            seen += 1
            if seen == count:
                return

    with memory_directory() as directory:
        partner.call(open_wake, str(directory))
        try:
            with pinned(core), Reader(f"ring:{directory}", idle=idle) as reader:
                partner.start(write_wakes, due_times(count))
                asyncio.run(read(reader))
            partner.result()
        finally:
            partner.call(close_wake)
    return Outcome(float(histogram.percentile(50.0)), histogram, f"{count:,} records, in order")


def pipe_wakes(partner: Partner, core: int, count: int) -> Outcome:
    """The same with a named pipe: what an event loop itself takes to wake."""
    histogram = LatencyHistogram()

    async def read(descriptor: int) -> None:
        done = asyncio.get_running_loop().create_future()
        seen = 0

        def readable() -> None:
            nonlocal seen
            for due_ns in np.frombuffer(os.read(descriptor, 4096), np.int64):
                histogram.record(monotonic_ns() - int(due_ns))
                seen += 1
            if seen == count:
                done.set_result(None)

        asyncio.get_running_loop().add_reader(descriptor, readable)
        await done

    with memory_directory() as directory:
        path = directory / "pipe"
        os.mkfifo(path)
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        try:
            with pinned(core):
                partner.start(write_pipe, str(path), due_times(count))
                asyncio.run(read(descriptor))
            partner.result()
        finally:
            os.close(descriptor)
    return Outcome(float(histogram.percentile(50.0)), histogram, f"{count:,} written and read")


def turn(core: int) -> float:
    """Return what a turn costs the writer while nobody sleeps."""
    with memory_directory() as directory, pinned(core):
        wake_region = WakeRegion.create(directory)
        try:
            return turn_cost_ns(wake_region, 10_000_000)
        finally:
            wake_region.close()


def wake(core: int) -> float:
    """Return what waking costs the writer."""
    with memory_directory() as directory, pinned(core):
        wake_region, sleeper = WakeRegion.create(directory), Sleeper.attach(directory)
        try:
            cost = wake_cost_ns(wake_region, 10_000)
            if not os.read(sleeper.fileno(), 4096):
                raise ValueError("expected a readable descriptor, found none")
            return cost
        finally:
            sleeper.close()
            wake_region.close()


def rest(core: int) -> Outcome:
    """Return the share of a core that a reader takes while its feed is silent."""

    async def wait(reader: Reader) -> float:
        started = time.process_time()
        if await reader.arrival(timeout=IDLE_S):
            raise ValueError("expected silence, found a record")
        return time.process_time() - started

    with memory_directory() as directory, pinned(core):
        state: dict[str, Any] = {}
        open_wake(state, str(directory))
        try:
            with Reader(f"ring:{directory}") as reader:
                used = asyncio.run(wait(reader))
        finally:
            close_wake(state)
    return Outcome(100 * used / IDLE_S, verified=f"{IDLE_S} s of silence, no record")


# --- a spinning reader beside them ----------------------------------------------------------------


def beside(settings: Settings) -> Iterator[Row]:
    """Measure a spinning reader's latency beside readers that sleep in an event loop.

    Where there is no third core they take time from the writer's. So the base is a twin: as many
    readers that do the same with a ring of their own.
    """
    count = 200 if settings.quick else 1000
    third = sorted(os.sched_getaffinity(0) - set(settings.cores))
    if not third:
        settings.note("event loops share the writer's core: there is no third one")
    with (
        Partner(settings.cores[0]) as writer,
        Partner(third[0] if third else settings.cores[0]) as others,
    ):
        variants: dict[str, Callable[[], float | Outcome]] = {
            name: partial(spin, writer, others, settings.cores[1], count, *how)
            for name, how in BESIDE.items()
        }
        yield from interleave(variants, settings, label="spinning").rows(
            NAME,
            "ns",
            {"rate": 1_000_000_000 // WAKE_PERIOD_NS, "measure": "spinning reader"},
            base=ELSEWHERE,
            goals={HERE: "unchanged: <= 1.1"},
        )


def spin(
    writer: Partner, others: Partner, core: int, count: int, sleepers: int, elsewhere: bool
) -> Outcome:
    """Let a compiled loop follow the writer's schedule while event loops do, here or elsewhere."""
    histogram = LatencyHistogram()
    with memory_directory() as directory, memory_directory() as other:
        place = other if elsewhere else directory
        writer.call(open_wake, str(directory))
        try:
            with RingCursor.attach(directory, "begin", payload_hash=PAYLOAD_HASH) as cursor:
                due_ns = due_times(count)
                if sleepers:
                    others.start(sleep_and_read, str(place), sleepers, due_ns, elsewhere)
                # Over already: on a host that is busy with others, or it failed and says so below.
                while len(list(place.glob("readers/*"))) < sleepers and not others.ended:
                    time.sleep(0.001)
                with pinned(core):
                    writer.start(write_wakes, due_ns)
                    seen, wrong = read_paced(cursor, count, histogram)
            writer.result()
            read = others.result() if sleepers else []
        finally:
            writer.call(close_wake)
    if (seen, wrong) != (count, 0) or read != [count] * sleepers:
        raise ValueError(f"expected {count} records each, found {seen}, {wrong} wrong, {read}")
    verified = f"{count:,} records, in order, to each of {1 + sleepers}"
    return Outcome(float(histogram.percentile(50.0)), histogram, verified)


# --- what partners do -------------------------------------------------------------------------


def open_wake(state: dict[str, Any], directory: str) -> None:
    """Create a ring, and the file that wakes its readers."""
    open_ring(state, directory)
    state["wake"] = WakeRegion.create(directory)


def close_wake(state: dict[str, Any]) -> None:
    """Close both."""
    close_ring(state)
    state.pop("wake").close()


def write_wakes(state: dict[str, Any], due_ns: Any) -> None:
    """Write on schedule; take turns in between."""
    write_turns(state["ring"], state["wake"], due_ns)


def sleep_and_read(
    state: dict[str, Any], directory: str, sleepers: int, due_ns: Any, elsewhere: bool
) -> list[int]:
    """Read in as many tasks of one event loop; return what each of them had, in order.

    Elsewhere: the ring is their own, and a task of the same loop writes it.
    """

    async def read(reader: Reader) -> int:
        seen = 0
        async for record in reader:
            seen += record.number == seen
            if seen == len(due_ns):
                break
        reader.close()
        return seen

    async def write() -> None:
        for n in range(len(due_ns)):
            await asyncio.sleep((int(due_ns[n]) - monotonic_ns()) / 1e9)
            write_turns(state["ring"], state["wake"], due_ns[n : n + 1], n)

    async def read_all() -> list[int]:
        readers = [Reader(f"ring:{directory}", start="begin") for _ in range(sleepers)]
        writing = asyncio.create_task(write()) if elsewhere else None
        seen = await asyncio.gather(*map(read, readers))
        if writing is not None:
            await writing
        return seen

    if not elsewhere:
        return asyncio.run(read_all())
    open_wake(state, directory)
    try:
        return asyncio.run(read_all())
    finally:
        close_wake(state)


def write_pipe(state: dict[str, Any], path: str, due_ns: Any) -> None:
    """Write each due time into the pipe when it has come."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        for due in due_ns:
            while monotonic_ns() < due:
                pass
            os.write(descriptor, due.tobytes())
    finally:
        os.close(descriptor)
