"""Agents beside a feed: their lives with time as an integer, then as threads and as processes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.agents import companion
from tests.waiting import wait_until
from udpfast.agents.feed import companion_process
from udpfast.agents.feed.backoff import Backoff
from udpfast.agents.feed.companions import STUCK_NS, Companion, Companions
from udpfast.agents.feed.factories import AgentFactory
from udpfast.config import RunConfig, parse_feed
from udpfast.core.layout import Kind
from udpfast.log.ring import Ring
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.roster import AgentEntry, AgentState, Roster, read_roster

MS = 1_000_000


def settings(**run):
    """Return the configuration of a feed with lines of every role."""
    lines = {"lines": [{"name": "A", "address": "127.0.0.1:0"}]}
    roles = dict.fromkeys(("streams", "recovery", "definitions"), lines)
    wire = {"framing": "cme_mdp3", "payload": "cme"}
    return parse_feed({"name": "test", "wire": wire, **roles, "run": run})


class FakeRun:
    """A run that ends when the test says so."""

    def __init__(self):
        self.pid = 42
        self.cycles = 0
        self.end = (False, "")
        self.asked = []

    def look(self):
        return self.end

    def stop(self):
        self.asked.append("stop")

    def abandon(self):
        self.asked.append("abandon")


@pytest.fixture
def runs():
    """Return the list of runs that were started."""
    return []


@pytest.fixture
def agent_of(runs):
    """Return what makes an agent of fake runs."""

    def launch():
        runs.append(FakeRun())
        return runs[-1]

    config = settings(restart_first_ms=100, restart_longest_ms=300, restart_steady_ms=1000)
    return lambda *counts: Companion("helper", launch, config, *counts)


@pytest.fixture
def agent(agent_of):
    """Return an agent of fake runs."""
    return agent_of()


def test_backoff_doubles_up_to_its_longest_and_begins_anew_after_steady_running():
    config = RunConfig(restart_first_ms=100, restart_longest_ms=500, restart_steady_ms=1000)
    backoff = Backoff(config)
    assert [backoff.ended(0) // MS for _ in range(5)] == [100, 200, 400, 500, 500]
    assert backoff.in_a_row == 5
    assert backoff.ended(1000 * MS) // MS == 100
    for _ in range(1000):
        assert backoff.ended(0) <= 500 * MS


def test_companion_failed_is_started_again_when_its_time_has_come(agent, runs):
    now = 0
    agent.look(now)
    for restarts, wait_ms in enumerate((100, 200, 300, 300), 1):
        runs[-1].end = (True, "OSError: gone")
        agent.look(now)
        assert (agent.entry.state, agent.entry.failure) == (AgentState.WAITING, "OSError: gone")
        agent.look(now + wait_ms * MS - 1)
        assert len(runs) == restarts
        now += wait_ms * MS
        agent.look(now)
        assert (len(runs), agent.entry.restarts) == (restarts + 1, restarts)
        assert agent.entry.state is AgentState.STARTING


def test_companion_runs_from_its_first_turn_on(agent, runs):
    for start_ns in (0, 200 * MS):
        agent.look(start_ns)
        agent.look(start_ns + 1)
        assert agent.entry.state is AgentState.STARTING
        runs[-1].cycles = 1
        agent.look(start_ns + 2)
        assert agent.entry.state is AgentState.RUNNING
        runs[-1].end = (True, "OSError: gone")
        agent.look(start_ns + 3)


def test_companion_that_ran_steadily_waits_the_first_time_again(agent, runs):
    now = 0
    for ran_ms, wait_ms in ((0, 100), (0, 200), (1000, 100)):
        agent.look(now)
        runs[-1].end = (True, "x")
        now += ran_ms * MS
        agent.look(now)
        now += wait_ms * MS
        count = len(runs)
        agent.look(now - 1)
        assert len(runs) == count
    agent.look(now)
    assert len(runs) == 4


def test_companion_that_cannot_start_is_tried_again(runs):
    def launch():
        runs.append(None)
        raise OSError(5, "no device")

    agent = Companion("helper", launch, settings(restart_first_ms=100))
    agent.look(0)
    assert agent.entry.state is AgentState.WAITING
    assert "no device" in agent.entry.failure
    agent.look(100 * MS)
    assert (len(runs), agent.entry.restarts) == (2, 1)


def test_companion_says_why_it_cannot_start_once(capsys):
    free = iter(range(1000, 2000))

    def launch():
        raise OSError(f"cannot reserve 16793600 bytes ({next(free)} free)")

    agent = Companion("record", launch, settings())
    for now_s in range(0, 3000, 100):
        agent.look(now_s * 1000 * MS)
    assert agent.entry.restarts > 2
    said = capsys.readouterr().err.splitlines()
    (line,) = said
    assert line.endswith(
        f"Z ERROR udpfast: {settings().name}: agent record failed and is being restarted: "
        "OSError: cannot reserve 16793600 bytes (1000 free)"
    )


def test_companion_that_flaps_is_down_until_it_has_worked_for_the_steady_time(
    agent_of, runs, capsys
):
    counts = {"records": 500, "missing": 3}
    agent = agent_of(lambda: counts["records"], lambda: counts["missing"])
    agent.look(0)
    assert agent.entry.down_ns == 0
    runs[-1].end = (True, "OSError: No space left on device")
    agent.look(10 * MS)
    since_ns = agent.entry.down_ns
    assert (since_ns > 0, agent.entry.down_records) == (True, 500)
    now_ns = 10 * MS
    for _ in range(5):  # each attempt works for a moment
        counts["records"] += 1000
        now_ns += 20_000 * MS
        agent.look(now_ns)
        runs[-1].cycles += 1
        agent.look(now_ns + MS)
        assert agent.entry.state is AgentState.RUNNING
        assert (agent.entry.down_ns, agent.entry.down_records) == (since_ns, 500)
        runs[-1].end = (True, "OSError: No space left on device")
        agent.look(now_ns + 2 * MS)
    now_ns += 20_000 * MS
    agent.look(now_ns)
    counts["missing"] = 1203
    steady_ns = 1000 * MS
    for at_ns in (now_ns + MS, now_ns + steady_ns - 1):
        runs[-1].cycles += 1
        agent.look(at_ns)
        assert agent.entry.down_ns == since_ns
    runs[-1].cycles += 1
    agent.look(now_ns + steady_ns)
    assert agent.entry.down_ns == 0
    failed, back = capsys.readouterr().err.splitlines()
    assert "agent helper failed" in failed
    assert "agent helper works again" in back
    assert back.endswith(": 1,200 records are missing in what it keeps")


def test_companion_that_waits_when_all_end_has_left_its_work_undone(agent_of, runs):
    records = iter([1000, 1500])
    agent = agent_of(lambda: next(records))
    agent.look(0)
    runs[0].end = (True, "OSError: full")
    agent.look(1)
    assert agent.entry.state is AgentState.WAITING
    agent.stop()
    agent.abandon()
    assert agent.entry.state is AgentState.FAILED
    assert agent.entry.failure == "OSError: full; 500 records have come since"


def test_companion_that_is_done_is_not_started_again(agent, runs):
    agent.look(0)
    runs[0].end = (True, "")
    agent.look(1)
    agent.look(10**12)
    assert (agent.entry.state, len(runs)) == (AgentState.ENDED, 1)


def test_companion_without_turns_is_stuck_until_it_makes_one(agent, runs, capsys):
    agent.look(0)
    runs[0].cycles = 7
    agent.look(1)
    started_ns = agent.entry.changed_ns
    agent.look(STUCK_NS)
    assert agent.entry.state is AgentState.RUNNING
    before_ns = time.time_ns()
    agent.look(STUCK_NS + 1)
    assert agent.entry.state is AgentState.STUCK
    assert 0 <= agent.entry.changed_ns - (before_ns - STUCK_NS) < STUCK_NS  # its last turn
    assert "makes no turn, 5 s after its last one" in capsys.readouterr().err
    runs[0].cycles = 8
    agent.look(STUCK_NS + 2)
    assert (agent.entry.state, agent.entry.changed_ns) == (AgentState.RUNNING, started_ns)
    assert "turns again, 5 s after its last one" in capsys.readouterr().err


def test_companion_that_fails_while_it_is_stopped_is_not_said_to_be_restarted(agent, runs, capsys):
    agent.look(0)
    agent.stop()
    runs[0].end = (True, "OSError: disk")
    agent.look(1)
    assert capsys.readouterr().err.endswith(" failed: OSError: disk\n")


def test_companion_stopped_is_not_started_again(agent, runs):
    agent.look(0)
    agent.stop()
    assert runs[0].asked == ["stop"]
    runs[0].end = (True, "killed by signal 9")
    agent.look(1)
    agent.look(10**12)
    assert (agent.entry.state, len(runs)) == (AgentState.FAILED, 1)


def test_companion_that_does_not_end_is_abandoned(agent, runs):
    agent.look(0)
    agent.stop()
    agent.abandon()
    assert runs[0].asked == ["stop", "abandon"]
    assert agent.entry.state is AgentState.FAILED


def test_roster_tells_what_was_written_last_dead_or_alive(tmp_path):
    entry = AgentEntry(
        name="image",
        state=AgentState.WAITING,
        restarts=3,
        pid=77,
        changed_ns=5,
        cycles=9,
        failure="é" * 120,
        looked_ns=6,
    )
    with Roster(tmp_path, 2) as roster:
        roster.write([AgentEntry("feed"), entry], 6)
        roster.publish()
        feed, image = read_roster(tmp_path)
    assert (feed.name, feed.state) == ("feed", AgentState.STARTING)
    entry.failure = "é" * 100
    assert image == entry
    assert read_roster(tmp_path) == [feed, image]


def test_roster_of_an_instance_without_one_is_empty(tmp_path):
    assert read_roster(tmp_path) == []


# --- real ones ---------------------------------------------------------------------------------


@pytest.fixture(params=["one", "each"])
def supervised(request, tmp_path, monkeypatch):
    """Return a ring and its `Companions` with one agent, as thread and as process."""
    factory = AgentFactory("helper", companion.__name__)
    monkeypatch.setattr("udpfast.agents.feed.companions.wanted_agents", lambda _: [factory])
    monkeypatch.setattr("udpfast.agents.feed.companions._LOOK_S", 0.02)
    config = settings(processes=request.param, restart_first_ms=20, drain_ms=3000)
    (tmp_path / "order").write_text("read")
    ring = Ring.create(tmp_path, 1 << 16, PAYLOAD_HASH)
    companions = Companions(config, tmp_path, lambda: AgentEntry("feed"))
    companions.start()
    yield ring, companions, tmp_path
    ring.close()
    if not companions._ended.is_set():
        companions.stop()


def order(directory, text):
    """Tell the agent what to do, at once whole."""
    (directory / "next").write_text(text)
    (directory / "next").rename(directory / "order")


def has_read(directory, records):
    """Whether the agent has come so far."""
    path = directory / "read"
    return path.exists() and path.read_text() == str(records)


def test_companions_read_what_is_left_when_the_ring_is_closed(supervised):
    ring, companions, directory = supervised
    wait_until(lambda: companions.entries[1].cycles, "a turn")
    order(directory, "wait")
    for _ in range(100):
        ring.append(Kind.MESSAGE, b"x")
    ring.close()
    order(directory, "read")
    companions.stop()
    assert has_read(directory, 100)
    assert [agent.state for agent in read_roster(directory)][1] is AgentState.ENDED


def test_companion_that_raises_is_started_again(supervised):
    _, companions, directory = supervised
    wait_until(lambda: companions.entries[1].cycles, "a turn")
    order(directory, "raise")
    wait_until(lambda: companions.entries[1].restarts >= 2, "restarts")
    assert companions.entries[1].failure == "ValueError: told to"
    order(directory, "read")
    wait_until(lambda: companions.entries[1].cycles > 1, "turns")
    assert read_roster(directory)[1].restarts >= 2


@pytest.mark.parametrize("supervised", ["each"], indirect=True)
def test_companion_that_crashes_in_its_process_is_started_again(supervised):
    ring, companions, directory = supervised
    wait_until(lambda: companions.entries[1].cycles, "a turn")
    os.kill(companions.entries[1].pid, signal.SIGKILL)
    wait_until(lambda: companions.entries[1].restarts == 1, "a restart")
    assert companions.entries[1].failure == "killed by signal 9"
    ring.append(Kind.MESSAGE, b"x")
    wait_until(lambda: has_read(directory, 1), "a record")


def test_companion_that_hangs_does_not_hold_up_the_end(supervised):
    ring, companions, directory = supervised
    wait_until(lambda: companions.entries[1].cycles, "a turn")
    order(directory, "hang")
    companions._drain_ns = 10 * MS
    ring.close()
    companions.stop()  # which otherwise never ends: the agent never says that it has nothing more
    assert not any(agent.running for agent in companions.agents)


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """Return a feed's entry, its `Companions` whose agent hangs in its start, and what lets go."""
    factory = AgentFactory("helper", companion.__name__)
    monkeypatch.setattr("udpfast.agents.feed.companions.wanted_agents", lambda _: [factory])
    entry, go_on = AgentEntry("feed", AgentState.RUNNING), threading.Event()
    companions = Companions(settings(drain_ms=3000), tmp_path, lambda: entry)
    run = FakeRun()
    run.end = (True, "")

    def launch():
        go_on.wait()
        return run

    companions.agents[0]._launch = launch
    companions.start()
    yield entry, companions, go_on
    go_on.set()


def test_end_waits_for_an_agent_that_takes_long_to_start(slow, tmp_path):
    entry, companions, go_on = slow
    entry.state = AgentState.ENDED
    timer = threading.Timer(1.2, go_on.set)
    timer.start()
    companions.stop()
    timer.join()
    assert [each.state for each in read_roster(tmp_path)] == [AgentState.ENDED] * 2


def test_agent_that_hangs_in_its_start_keeps_no_feed_from_having_ended(slow, tmp_path):
    entry, companions, _ = slow
    entry.state = AgentState.ENDED
    companions._drain_ns = 10 * MS
    companions.stop()
    feed, helper = read_roster(tmp_path)
    assert feed.state is AgentState.ENDED
    assert helper.state is AgentState.FAILED
    assert "its start" in helper.failure
    assert companions.entries[1].state is AgentState.FAILED


def test_companion_process_says_what_is_wrong_with_its_order():
    words = (sys.executable, "-m", companion_process.__name__, "helper", companion.__name__)
    order = {"directory": "/", "config": {"name": "test", "unheard": 1}}  # of another version
    run = subprocess.run(
        words, input=json.dumps(order), capture_output=True, text=True, check=False
    )
    assert run.stdout.startswith("failure ValidationError: Object contains unknown field")


@pytest.mark.parametrize("supervised", ["each"], indirect=True)
def test_companion_process_ends_with_the_process_that_started_it(supervised):
    _, companions, _ = supervised
    wait_until(lambda: companions.entries[1].cycles, "a turn")
    pid = companions.entries[1].pid
    run = companions.agents[0]._run
    run._input.close()  # as the kernel does for whoever dies
    with contextlib.suppress(ChildProcessError):  # who supervises it was faster
        assert os.waitpid(pid, 0) == (pid, 0)
