"""Readers in an event loop: the records that they get, and how they wake up and end."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.instance import Instance
from tests.waiting import PATIENCE_S
from udpfast import Kind, Reader, RingClosedError
from udpfast.core.clock import monotonic_ns
from udpfast.log.readers import list_readers
from udpfast.shm.wake import WakeRegion


class Waking(Instance):
    """An instance whose writer takes turns."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.wake = WakeRegion.create(directory)

    def turn(self) -> None:
        self.wake.turn(self.ring.position, monotonic_ns())


@pytest.fixture
def waking(tmp_path: Path) -> Iterator[Waking]:
    instance = Waking(tmp_path / "feed")
    yield instance
    instance.wake.close()
    instance.close()


@pytest.mark.parametrize("idle", ["backoff", "spin"])
def test_async_for_returns_all_in_order_and_ends(instance: Instance, idle: str) -> None:
    async def read() -> list[int]:
        with Reader(instance.address, start="begin", idle=idle) as reader:
            return [record.number async for record in reader]

    for number in range(10_000):
        instance.top(float(number), 1.0)
        if number == 2:
            break
    instance.ring.close()
    assert asyncio.run(read()) == [1, 2, 3]


def test_async_for_on_a_closed_reader_is_refused(instance: Instance) -> None:
    async def read(reader: Reader) -> None:
        async for _ in reader:
            raise AssertionError("it has no records")

    reader = Reader(instance.address)
    reader.close()
    with pytest.raises(ValueError, match="is closed"):
        asyncio.run(read(reader))


def test_sleeping_task_is_woken_by_the_writers_turn(waking: Waking) -> None:
    turns = 0

    async def write() -> None:
        nonlocal turns
        for number in range(50):
            await asyncio.sleep(0.001)
            waking.top(float(number), 1.0)
            waking.turn()
            turns += 1
        waking.ring.close()

    async def read() -> list[float]:
        with Reader(waking.address) as reader:
            writer = asyncio.create_task(write())
            bids = [float(record.data["bid_price"]) async for record in reader]
            await writer
            return bids

    assert asyncio.run(read()) == [float(number) for number in range(50)]
    assert turns == 50


def test_task_does_not_look_before_it_is_woken_or_ticks(
    waking: Waking, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The descriptor alone ends the sleep: with ticks that never come, only a turn does.
    async def read() -> bool:
        loop = asyncio.get_running_loop()
        with Reader(waking.address) as reader:
            monkeypatch.setattr(
                loop, "call_later", lambda *_: type("Timer", (), {"cancel": lambda self: None})()
            )
            arrival = asyncio.create_task(reader.arrival())
            for _ in range(20):
                await asyncio.sleep(0)
            waking.top(1.0, 2.0)
            for _ in range(20):
                await asyncio.sleep(0)
            assert not arrival.done()
            waking.turn()
            return await arrival

    assert asyncio.run(read())


def test_ring_without_a_wake_file_is_looked_at(instance: Instance) -> None:
    async def read() -> float:
        with Reader(instance.address) as reader:
            asyncio.get_running_loop().call_later(0.01, instance.top, 7.0, 8.0)
            async for record in reader:
                return float(record.data["bid_price"])
        raise AssertionError("the ring ended")

    assert asyncio.run(read()) == 7.0


def test_arrival_ends_in_time_and_at_the_end(waking: Waking) -> None:
    async def read() -> None:
        with Reader(waking.address) as reader:
            assert not await reader.arrival(timeout=0)
            assert not await reader.arrival(timeout=0.002)
            waking.top(1.0, 2.0)
            assert await reader.arrival(timeout=0)
            assert len(reader.poll(timeout=0)) == 1
            waking.ring.close()
            assert not await reader.arrival()
            with pytest.raises(RingClosedError):
                reader.poll()

    asyncio.run(read())


def test_other_tasks_have_their_turn_between_runs(instance: Instance) -> None:
    async def read() -> tuple[int, int]:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        with Reader(instance.address, start="begin", batch=10) as reader:
            task = asyncio.create_task(other())
            count = len([record async for record in reader])
            task.cancel()
        return count, turns

    for number in range(1000):
        instance.append(Kind.MESSAGE, bytes([number % 256]))
    instance.ring.close()
    count, turns = asyncio.run(read())
    assert count == 1000
    assert turns >= 99


def test_close_ends_the_iteration_of_a_sleeping_task(waking: Waking) -> None:
    async def read(by_thread: bool) -> int:
        reader = Reader(waking.address)
        if by_thread:
            threading.Timer(0.01, reader.close).start()
        else:
            asyncio.get_running_loop().call_later(0.01, reader.close)
        return len([record async for record in reader])

    assert asyncio.run(read(by_thread=True)) == 0
    assert asyncio.run(read(by_thread=False)) == 0


def test_reader_goes_on_in_another_event_loop(waking: Waking) -> None:
    async def one(reader: Reader) -> int:
        asyncio.get_running_loop().call_later(0.005, append)
        async for record in reader:
            return record.number
        raise AssertionError("the ring ended")

    def append() -> None:
        waking.top(1.0, 2.0)
        waking.turn()

    with Reader(waking.address) as reader:
        assert [asyncio.run(one(reader)) for _ in range(3)] == [1, 2, 3]


def test_two_tasks_of_one_reader_both_end_in_time(waking: Waking) -> None:
    async def read() -> list[bool]:
        with Reader(waking.address) as reader:
            waits = [reader.arrival(timeout=each) for each in (0.02, 0.03, 0.01)]
            return await asyncio.wait_for(asyncio.gather(*waits), 30)

    assert asyncio.run(read()) == [False, False, False]


def test_loop_that_a_reader_left_watches_it_no_more(
    waking: Waking, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    watched: list[int] = []
    add, remove = first.add_reader, first.remove_reader

    def note_add(fd: int, *args: Any) -> None:
        watched.append(fd)
        add(fd, *args)

    def note_remove(fd: int) -> bool:
        watched.append(-fd)
        return remove(fd)

    monkeypatch.setattr(first, "add_reader", note_add)
    monkeypatch.setattr(first, "remove_reader", note_remove)
    with Reader(waking.address) as reader:
        assert not first.run_until_complete(reader.arrival(timeout=0.001))
        assert not second.run_until_complete(reader.arrival(timeout=0.001))
        assert not first.run_until_complete(reader.arrival(timeout=0.001))
        waking.top(1.0, 2.0)
        assert second.run_until_complete(reader.arrival(timeout=PATIENCE_S))
    first.run_until_complete(asyncio.sleep(0))
    first.close()
    second.close()
    assert len(watched) == 4
    assert sum(watched) == 0


@pytest.mark.parametrize("left", ["settled", "asleep", "elsewhere", "in a cycle"])
def test_reader_dropped_in_a_running_loop_is_freed(waking: Waking, left: str) -> None:
    async def wait() -> None:
        reader = Reader(waking.address)
        if left == "asleep":
            waiting = asyncio.create_task(reader.arrival())
            await asyncio.sleep(0.002)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        else:
            assert not await reader.arrival(timeout=0.001)
        held = [reader]
        del reader
        if left == "elsewhere":
            await asyncio.to_thread(held.clear)
        if left == "in a cycle":
            held.append(held)  # type: ignore[arg-type]

    async def count() -> list[int]:
        found = []
        for _ in range(8):
            await wait()
            gc.collect()
            await asyncio.sleep(0)  # of another thread's reader: the loop's next turn
            assert list_readers(waking.directory) == []
            found.append(len(list(Path("/proc/self/fd").iterdir())))
        return found

    found = asyncio.run(count())
    # Another thread of this process may have opened a file, but leaks would add up.
    assert found[-1] - found[0] < len(found) - 1
    assert list_readers(waking.directory) == []


def test_two_readers_of_one_loop_are_both_woken(waking: Waking) -> None:
    async def count(reader: Reader) -> int:
        return len([record async for record in reader])

    async def read() -> list[int]:
        async def write() -> None:
            for number in range(20):
                await asyncio.sleep(0.001)
                waking.top(float(number), 1.0)
                waking.turn()
            waking.ring.close()

        with Reader(waking.address) as first, Reader(waking.address) as second:
            *counts, _ = await asyncio.gather(count(first), count(second), write())
            return counts

    assert asyncio.run(read()) == [20, 20]


def test_cancelled_step_takes_no_record(instance: Instance) -> None:
    async def read() -> list[int]:
        with Reader(instance.address, start="begin") as reader:
            records = aiter(reader)
            found = [(await anext(records)).number]
            for _ in range(3):
                step = asyncio.ensure_future(anext(records))
                step.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await step
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(records), 0)
            return found + [record.number async for record in records]

    for number in range(9):
        instance.top(float(number), 1.0)
    instance.ring.close()
    assert asyncio.run(read()) == list(range(1, 10))


def test_ring_removed_raises_in_the_task(waking: Waking) -> None:
    async def read() -> None:
        with Reader(waking.address) as reader:
            (waking.directory / "ring").unlink()
            with pytest.raises(RingClosedError):
                await reader.arrival(timeout=PATIENCE_S)

    asyncio.run(read())
