"""What needs attention: every kind of it, the worst first, the same wherever it is shown."""

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from tests.waiting import wait_until
from udpfast.agents.feed.companion_run import describe_failure
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.archive.groups import GroupFeed, GroupFile
from udpfast.cli.main import cli
from udpfast.core.clock import realtime_ns
from udpfast.monitor.host import HostFacts, HostFinding, read_host_facts
from udpfast.monitor.journals import DiskStatus, Journals
from udpfast.monitor.status import InstanceStatus, read_status
from udpfast.monitor.troubles import TroubleKind, describe_troubles, feed_troubles, find_troubles
from udpfast.net.ports import free_port
from udpfast.shm.lock import open_existing
from udpfast.shm.relay_counts import RELAY_COUNTS, RelayCounts

NOW_NS = realtime_ns()


@pytest.fixture
def feed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Subscriber]:
    """Run a feed of two lines to which nobody sends."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path / "journals"))
    lines = [{"name": name, "address": f"127.0.0.1:{free_port()}"} for name in "AB"]
    settings = {"name": "deribit", "incremental": {"lines": lines}, "image": {"enabled": True}}
    settings["session"] = {"inactivity_timeout_ms": 1}
    with Subscriber({**settings, "ring": {"capacity_bytes": 1 << 22}}) as subscriber:
        yield subscriber


def status_of(feed: Subscriber, **changed: Any) -> InstanceStatus:
    """Return a feed's status, changed, with lines that speak unless that is changed."""
    status = read_status(feed.name)
    agents = tuple(msgspec.structs.replace(each, state="running") for each in status.agents)
    return msgspec.structs.replace(status, **{"silent": (), "agents": agents, **changed})


def well(**changed: Any) -> HostFacts:
    """Return a host to which nothing happened, but for what is changed."""
    facts = msgspec.structs.replace(read_host_facts(), findings=())
    return msgspec.structs.replace(facts, **changed)


def texts(status: InstanceStatus) -> list[str]:
    return describe_troubles(well(), {"deribit": status})


def test_instance_that_cannot_be_read_is_named_with_the_reason() -> None:
    found = describe_troubles(well(), {}, {"x": "others may write it: chmod 700"})
    assert found == ["instance x cannot be read: others may write it: chmod 700"]


def test_feed_that_is_well_needs_nobody(feed: Subscriber) -> None:
    assert texts(status_of(feed)) == []


def test_feed_that_was_stopped_needs_nobody_and_a_dead_one_does(feed: Subscriber) -> None:
    silent = ("incremental.A: nothing for 9 s", "incremental.B: nothing for 9 s")
    stopped = status_of(feed, alive=False, state="closed", silent=silent)
    assert texts(stopped) == []
    dead = status_of(feed, alive=False, state="open", silent=silent)
    assert [each[:20] for each in texts(dead)] == ["feed deribit is dead"]


def test_feed_that_waits_for_its_network_is_not_said_to_be_stopped_by_a_signal(
    feed: Subscriber,
) -> None:
    status = status_of(feed, stuck_ns=7_000_000_000)
    assert "a signal or a debugger" in texts(status)[0]
    agents = tuple(
        msgspec.structs.replace(each, state="waiting", failure="OSError: [Errno 100] network down")
        if each.name == "feed"
        else each
        for each in status.agents
    )
    assert texts(msgspec.structs.replace(status, agents=agents)) == [
        "feed deribit receives nothing: its lines are closed until its network is back (tried "
        "again and again), and readers' books are in doubt: OSError: [Errno 100] network down"
    ]


def test_one_silent_line_and_all_of_them_are_told_apart(feed: Subscriber) -> None:
    one = ("incremental.B: nothing for 9 s",)
    assert texts(status_of(feed, silent=one)) == ["feed deribit: incremental.B: nothing for 9 s"]
    both = ("incremental.A: nothing for 7 s", *one)
    assert texts(status_of(feed, silent=both)) == [
        "feed deribit: every line of incremental is silent: incremental.A: nothing for 7 s; "
        "incremental.B: nothing for 9 s"
    ]


def test_what_waits_for_several_silent_lines_is_said_once(feed: Subscriber) -> None:
    status = status_of(feed)
    waits = "; objects that wait for a snapshot wait on"
    lines = ("snapshot.A: nothing for 7 s", "snapshot.B: nothing for 9 s")
    line = status.counters["incremental.A"]
    counters = {name: status.counters[name] for name in ("feed", "incremental")}
    counters |= {"snapshot.A": line, "snapshot.B": line}
    silent = tuple(line + waits for line in lines)
    assert texts(msgspec.structs.replace(status, silent=silent, counters=counters)) == [
        f"feed deribit: every line of snapshot is silent: {lines[0]}; {lines[1]}{waits}"
    ]


def test_relay_whose_lines_are_too_thin_is_named_until_they_are_not(feed: Subscriber) -> None:
    counts = RelayCounts.create(status_of(feed).path, ["microwave"])
    counts.relay[list(RELAY_COUNTS).index("short")] = 1
    counts.relay[list(RELAY_COUNTS).index("waiting")] = 7
    (text,) = texts(status_of(feed))
    assert text == (
        "feed deribit: its relay's lines are too thin: 7 updates wait now; since its start 0 were "
        "conflated, and 0 sound books and tops became STALE because they waited for longer than "
        "relay.late_ms"
    )
    shown = CliRunner().invoke(cli, ["top", "deribit", "--once"])
    assert "waiting 7, short 1" in shown.output
    counts.relay[list(RELAY_COUNTS).index("short")] = 0
    assert texts(status_of(feed)) == []
    counts.close()


def test_relay_that_stops_while_it_is_looked_at_is_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = RelayCounts.create(tmp_path, ["microwave"])
    looked = RelayCounts.attach(tmp_path)

    def stop_first(path: Path, flags: int) -> int:
        counts.close(ended=True)
        return open_existing(path, flags)

    monkeypatch.setattr("udpfast.shm.region.open_existing", stop_first)
    assert looked.gone == 0
    looked.close()


def test_relay_of_its_own_that_failed_is_named_and_one_that_the_feed_starts_is_an_agent(
    feed: Subscriber,
) -> None:
    RelayCounts.create(status_of(feed).path, ["microwave"]).close(ended=True)
    assert texts(status_of(feed)) == []
    RelayCounts.create(status_of(feed).path, ["microwave"]).close()
    (trouble,) = find_troubles(well(), {"deribit": status_of(feed)})
    assert trouble.kind is TroubleKind.RELAY_GONE
    assert trouble.text.startswith("feed deribit: its relay is gone: process ")
    for ended in ("closed", "open", "failed"):  # it waited for the next feed
        status = status_of(feed, alive=False, state=ended)
        kinds = [each.kind for each in find_troubles(well(), {"deribit": status})]
        assert TroubleKind.RELAY_GONE in kinds


@pytest.mark.parametrize("state", ["waiting", "running", "failed"])
def test_agent_that_fails_again_and_again_is_named_in_every_state(
    feed: Subscriber, state: str
) -> None:
    status = status_of(feed)
    *others, agent = status.agents
    broken = msgspec.structs.replace(
        agent, state=state, failure="the socket was refused", down_ns=NOW_NS - 5_000_000_000,
        down_records=42, changed_ns=realtime_ns() - 41_500_000_000,
    )  # fmt: skip
    # What the ring has of runs before is not what came since.
    counters = status.counters | {"feed": status.counters["feed"] | {"records": 271_484}}
    (text,) = texts(
        msgspec.structs.replace(
            status, agents=(*others, broken), records=900_000, counters=counters
        )
    )
    if state == "running":
        assert f"agent {agent.name} failed at 20" in text
        assert "and has worked again for 41 s" in text
    else:
        assert f"agent {agent.name} does not work since 20" in text
        assert "271,442 records have come since: the socket was refused" in text
    stuck = msgspec.structs.replace(broken, state="stuck")
    (text,) = texts(msgspec.structs.replace(status, agents=(*others, stuck)))
    assert "has made no turn since 20" in text and "(41 s)" in text
    back = msgspec.structs.replace(broken, state="running", down_ns=0)
    assert texts(msgspec.structs.replace(status, agents=(*others, back))) == []


def test_agent_that_runs_says_when_it_was_started_again_last(feed: Subscriber) -> None:
    (agent, *_) = status_of(feed).agents
    assert agent.restarts_text == "0 restarts"
    again = msgspec.structs.replace(
        agent, restarts=5, changed_ns=NOW_NS - 41 * 10**9, looked_ns=NOW_NS
    )
    assert again.restarts_text == "5 restarts, the last 41 s ago"
    failing = msgspec.structs.replace(again, down_ns=1_764_000_000_000_000_000)
    assert failing.restarts_text == (
        "5 restarts, the last 41 s ago, NOT STEADY since 2025-11-24 16:00:00 UTC"
    )


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_agent_that_finds_no_room_says_that_the_disk_is_full(feed: Subscriber, number: int) -> None:
    status = status_of(feed)
    *others, agent = status.agents
    failure = describe_failure(OSError(number, "Auf dem Gerät ist kein Platz mehr"))
    broken = msgspec.structs.replace(agent, state="waiting", failure=failure, down_ns=NOW_NS)
    full = msgspec.structs.replace(status, agents=(*others, broken))
    (trouble,) = find_troubles(well(), {"x": full})
    assert trouble.kind is TroubleKind.DISK_FULL
    assert trouble.text.startswith(f"feed x: no room left: agent {agent.name} does not work")


def test_disk_on_which_no_segment_fits_is_full_whatever_part_of_it_is_free() -> None:
    disk = DiskStatus("/journals/x", 1, 100 << 20, 600 << 20, None, segment_bytes=128 << 20)
    (text,) = describe_troubles(well(journals=Journals({}, {}, (disk,))))
    assert "no further segment of 134,217,728 bytes fits" in text
    fits = msgspec.structs.replace(disk, free_bytes=129 << 20)
    assert describe_troubles(well(journals=Journals({}, {}, (fits,)))) == []


def test_the_worst_comes_first_whatever_the_order_of_the_facts(feed: Subscriber) -> None:
    disk = DiskStatus("/journals/x", 1, 1, 100, None, segment_bytes=2)
    host = well(
        journals=Journals({}, {"/bad": "damaged"}, (disk,)),
        findings=(HostFinding("cores", "2", "1", "", fault=True),),
    )
    silent = ("incremental.B: nothing for 9 s",)
    waiting = tuple(
        msgspec.structs.replace(each, state="waiting", down_ns=NOW_NS)
        for each in status_of(feed).agents[1:]
    )
    feeds = {
        "one-line": status_of(feed, silent=silent),
        "agent": status_of(feed, agents=waiting),
        "silent": status_of(feed, silent=("incremental.A: nothing", *silent)),
        "dead": status_of(feed, alive=False, state="open"),
    }
    kinds = [each.kind for each in find_troubles(host, feeds)]
    assert kinds == [
        TroubleKind.FEED_DEAD, TroubleKind.FEED_SILENT, TroubleKind.AGENT_DOWN,
        TroubleKind.DISK_FULL, TroubleKind.LINE_SILENT, TroubleKind.HOST_FAULT,
        TroubleKind.UNREADABLE,
    ]  # fmt: skip


def test_stat_and_top_say_what_is_found(feed: Subscriber) -> None:
    said = "every line of incremental is silent: incremental.A: nothing for"
    wait_until(lambda: feed.counters()["incremental.B"]["disconnected"])
    assert any(said in each for each in feed_troubles("deribit", read_status("deribit")))
    for arguments in (
        ["stat"],
        ["stat", "deribit"],
        ["top", "--once"],
        ["top", "--once", "deribit"],
    ):
        shown = CliRunner().invoke(cli, arguments).output
        assert said in " ".join(shown.split()), arguments


def test_feed_that_its_group_starts_again_is_said_alike_of_the_host_and_of_the_feed(
    feed: Subscriber,
) -> None:
    dead = status_of(feed, alive=False, state="open")
    entry = GroupFeed("deribit", "ring:deribit", state="waiting", failure="SIGKILL ended it")
    file = GroupFile("all")
    file.write([entry])
    try:
        assert feed_troubles("deribit", dead) == describe_troubles(
            msgspec.structs.replace(read_host_facts(), findings=()), {"deribit": dead}
        )
        again = msgspec.structs.replace(entry, state="running")
        file.write([again])
        counters = dead.counters | {"feed": dead.counters["feed"] | {"took_over": 1}}
        status = status_of(feed, counters=counters, started_ns=NOW_NS + 10**12)  # 0 s ago
        assert feed_troubles("deribit", status) == texts(status)
        assert "SIGKILL ended it" in texts(status)[0]
    finally:
        file.close()


def test_losses_and_disagreements_of_late_are_listed_and_older_ones_are_not(
    feed: Subscriber,
) -> None:
    def said(**recent: int) -> list[str]:
        status = status_of(feed)
        counted = status.counters["incremental"] | {"lost": 1371, "disagreements": 1495}
        agents = tuple(
            msgspec.structs.replace(each, **recent) if each.name == "feed" else each
            for each in status.agents
        )
        counters = status.counters | {"incremental": counted}
        return texts(msgspec.structs.replace(status, agents=agents, counters=counters))

    assert said() == []
    assert said(lost_recent=100) == []
    assert said(lost_recent=371, disagreements_recent=3) == [
        "feed deribit: lines brought different bytes for the same fragment, 3 times in the last 15 "
        "minutes: which are right, nobody knows",
        "feed deribit: 371 messages were lost in the last 15 minutes, of 1,371 since its start "
        "(udpfast stat deribit --losses says where)",
    ]
