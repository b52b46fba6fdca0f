"""The runner: turns, stopping, failures, grants and statistics."""

import multiprocessing
import os
import threading
from multiprocessing.queues import Queue
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S
from udpfast.core.agent import Agent, AgentRunner, CallableAgent
from udpfast.errors import ConfigError


def _thread_name() -> str:
    # The name that the kernel has for this thread.
    return Path(f"/proc/self/task/{threading.get_native_id()}/comm").read_text().strip()


class Hooked(Agent):
    """An agent that ends at its first turn, and notes its hooks and their threads."""

    def __init__(self, role: str, seen: list[tuple[str, str]]) -> None:
        super().__init__(role)
        self.seen = seen

    def on_start(self) -> None:
        self.seen.append((f"start {self.role}", _thread_name()))

    def on_stop(self) -> None:
        self.seen.append((f"stop {self.role}", _thread_name()))


class Refusing(Agent):
    """An agent that cannot start."""

    def on_start(self) -> None:
        raise FileNotFoundError("no such device")


def counting(turns: int, calls: list[int]) -> CallableAgent:
    """Return an agent that notes `now_ns` at each turn and ends after some turns."""

    def work(now_ns: int) -> int | None:
        calls.append(now_ns)
        return None if len(calls) == turns else 1

    return CallableAgent("counting", work)


def test_run_agent_done_returns() -> None:
    calls: list[int] = []
    AgentRunner(counting(5, calls)).run()
    assert len(calls) == 5
    assert calls == sorted(calls)


def test_start_stop_join_ends_the_thread() -> None:
    turned = threading.Event()

    def work(_: int) -> int:
        turned.set()
        return 0

    runner = AgentRunner(CallableAgent("waiting", work), idle="sleep")
    runner.start()
    assert turned.wait(PATIENCE_S)
    assert runner.join(0.0) is False
    runner.stop()
    assert runner.join(PATIENCE_S) is True
    assert runner.cycles >= 1


def test_with_statement_stops_and_joins() -> None:
    calls: list[int] = []
    with AgentRunner(counting(1_000_000_000, calls), idle="yield") as runner:
        pass
    assert runner.cycles == len(calls)


def test_hooks_run_in_the_agents_thread_and_stop_in_reverse() -> None:
    seen: list[tuple[str, str]] = []
    runner = AgentRunner([Hooked("first", seen), Hooked("second", seen)])
    runner.start()
    runner.join()
    thread = "first+second"
    assert seen == [
        ("start first", thread),
        ("start second", thread),
        ("stop second", thread),
        ("stop first", thread),
    ]


def test_on_start_raising_is_raised_by_start_and_stops_the_started() -> None:
    seen: list[tuple[str, str]] = []
    runner = AgentRunner([Hooked("first", seen), Refusing("second")])
    with pytest.raises(FileNotFoundError, match="no such device"):
        runner.start()
    assert [event for event, _ in seen] == ["start first", "stop first"]


def test_work_raising_is_raised_by_join() -> None:
    def work(_: int) -> int:
        raise LookupError("no such object")

    runner = AgentRunner(CallableAgent("failing", work))
    runner.start()
    with pytest.raises(LookupError, match="no such object"):
        runner.join()


def test_work_returning_errno_raises_the_os_error() -> None:
    runner = AgentRunner(CallableAgent("failing", lambda _: -13))
    with pytest.raises(PermissionError, match="cannot run agent: failing: Permission denied"):
        runner.run()


def test_second_agent_failing_is_the_one_named() -> None:
    runner = AgentRunner(
        [CallableAgent("first", lambda _: 1), CallableAgent("second", lambda _: -5)]
    )
    with pytest.raises(OSError, match="second"):
        runner.run()


def test_core_allowed_is_granted_and_pins_the_thread() -> None:
    core = min(os.sched_getaffinity(0))
    cores: list[set[int]] = []

    def work(_: int) -> None:
        cores.append(os.sched_getaffinity(0))

    runner = AgentRunner(CallableAgent("pinned", work), core=core)
    runner.start()
    runner.join()
    assert cores == [{core}]
    assert [(grant.name, grant.granted) for grant in runner.grants] == [("core", True)]


def test_core_absent_is_noted_and_goes_on() -> None:
    calls: list[int] = []
    runner = AgentRunner(counting(1, calls), core=1023)
    runner.start()
    runner.join()
    assert len(calls) == 1
    assert not runner.grants[0].granted
    assert runner.grants[0].reason == "Invalid argument"


def test_core_absent_strict_is_raised_by_start() -> None:
    runner = AgentRunner(counting(1, []), core=1023, strict=True)
    with pytest.raises(OSError, match="cannot get core 1023: Invalid argument"):
        runner.start()


def granted(results: "Queue[list[tuple[str, bool, str]]]") -> None:
    runner = AgentRunner(counting(1, []), fifo_priority=1, lock_memory=True)
    runner.run()
    results.put([(grant.name, grant.granted, grant.reason) for grant in runner.grants])


def test_priority_and_memory_are_granted_or_have_a_reason() -> None:
    # Run this in another process, because locking all mappings of this one would take much memory.
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=granted, args=(results,))
    process.start()
    found = results.get(timeout=PATIENCE_S)
    process.join()
    assert [name for name, _, _ in found] == ["fifo_priority", "lock_memory"]
    assert all(was_granted == (reason == "") for _, was_granted, reason in found)


def test_cycle_longest_is_at_least_a_slow_turn() -> None:
    def work(now_ns: int) -> int | None:
        while runner.cycles == 0 and clock.monotonic_ns() - now_ns < 2_000_000:
            pass
        return 1 if runner.cycles == 0 else None

    from udpfast.core import clock

    runner = AgentRunner(CallableAgent("slow", work))
    runner.run()
    assert runner.cycles == 1
    assert runner.cycle_longest_ns >= 2_000_000
    assert runner.cycles_slow == 1


def test_started_twice_is_refused() -> None:
    runner = AgentRunner(counting(1, []))
    runner.run()
    with pytest.raises(RuntimeError, match="started before"):
        runner.start()


@pytest.mark.parametrize("count", [0, 9])
def test_agents_too_few_or_many_is_refused(count: int) -> None:
    with pytest.raises(ConfigError, match=f"1 to 8 agents, was {count}"):
        AgentRunner([Agent("idle")] * count)


def test_idle_unknown_is_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match=r"spin, yield, backoff, sleep, .*'snooze'"):
        AgentRunner(Agent("idle"), idle="snooze")
