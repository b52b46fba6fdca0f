"""`udpfast top`: what it shows fits 80 x 24, moves with the keys, and is right about the dead."""

import asyncio
import re
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from tests.cli.test_stat import feed, killed_feed
from udpfast import Reader
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.archive.groups import Group, GroupFeed
from udpfast.cli.main import cli
from udpfast.cli.top_host import host_lines
from udpfast.cli.top_text import HOST_TITLE, feed_lines, host_caption, host_row
from udpfast.cli.top_words import plain, short, size, soon, tail
from udpfast.monitor.change import changes, look_at_host
from udpfast.monitor.host import Groups, HostFacts, HostFinding
from udpfast.monitor.journals import DiskStatus, Journals, JournalStatus
from udpfast.monitor.losses import HostLosses
from udpfast.monitor.objects import ObjectStates
from udpfast.monitor.stores import OutboxStatus, ReplicaStatus, StoreReader, Stores, StoreStatus

COLUMNS, ROWS = 80, 24


@pytest.fixture(autouse=True)
def own_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path / "journals"))


@pytest.fixture
def live() -> Iterator[Subscriber]:
    killed_feed("killed")
    with feed("live") as subscriber:
        yield subscriber


@pytest.mark.parametrize(
    ("count", "width", "text"),
    [
        (0, 9, "0"),
        (12_345.6, 9, "12,346"),
        (123_456_789, 9, "123M"),
        (1_234_567, 6, "1.23M"),
        (99_999, 5, "100k"),
        (2**63, 9, "9.22E"),
    ],
)
def test_short_keeps_its_width(count: float, width: int, text: str) -> None:
    assert short(count, width) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (999.6, "1.00 kB"), (12_345, "12.3 kB"), (2**60, "1.15 EB")],
)
def test_size_keeps_its_width(count: float, text: str) -> None:
    assert size(count) == text
    assert len(text) <= 7


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (5, "5 s"), (90, "1.5 min"), (7200, "2 h"), (1e6, "11.6 d"), (1e9, "> 1 y")],
)
def test_soon_says_when(seconds: float | None, text: str) -> None:
    assert soon(seconds) == text


def test_tail_keeps_the_end_that_tells_paths_apart() -> None:
    assert tail("/a/b", 4) == "/a/b"
    assert tail("/a/bcdef", 6) == "..cdef"


def test_lines_fit_the_terminal_whatever_is_counted(live: Subscriber) -> None:
    with Reader("ring:live", name="a strategy with a long name"):
        look = look_at_host()
        for one in changes(look, look):
            counters = {
                scope: dict.fromkeys(values, 2**60) for scope, values in one.status.counters.items()
            }
            silent = ("incremental.A: nothing for 9 s",)
            full = msgspec.structs.replace(one.status, counters=counters, silent=silent)
            later = msgspec.structs.replace(
                look, at_ns=look.at_ns + 10**9, feeds={one.name: full}, hops={one.name: {}}
            )
            (much,) = changes(look, later)
            assert len(host_row(much)) <= COLUMNS
            lines = [line for line in feed_lines(much, look.unix_ns) if "FULL" not in line]
            assert max(map(len, lines)) <= COLUMNS, max(lines, key=len)
            assert " 1.15E+? " in host_row(much)  # took_over: nobody knows how much more
    assert len(HOST_TITLE) <= COLUMNS
    assert len(host_caption(look)) <= COLUMNS


def largest(kind: type[msgspec.Struct], **fields: object) -> Any:
    """Return facts of which every number is as large as numbers get."""
    known = dict.fromkeys(kind.__struct_fields__, 2**60)
    return kind(**{**known, **fields})


def host_of_large_numbers() -> HostFacts:
    name = "a name that is longer than most"
    store = largest(
        StoreStatus, store=name, host=name, epoch="f" * 16, writer=False, writer_host=name,
        alive=True, stuck=False, starting=False, ended=False, end=2**62, waits="", stopped="",
        problem="", feed=None, verdicts={}, said=[], unreadable={}, directory=f"/{name}",
        silent_s=0.0, away=[],
        consumers={"replica-1": ReplicaStatus(True, 1, 2**33, 2**43, 0)},
        outboxes={"algo": largest(OutboxStatus, state="registered")},
        readers=[
            largest(StoreReader, name="reader-1", lag_records=2**33, lag_bytes=2**43, lag_ms=0)
        ],
    )  # fmt: skip
    journal = largest(JournalStatus, directory=f"/{name}" * 3, state="writing", bytes_per_s=1e18)
    feed = GroupFeed(name, f"ring:{name}", "running", restarts=2**32)
    disk = DiskStatus(f"/{name}" * 3, 1, 2**60, 2**61, 1e12)
    return HostFacts(
        (HostFinding("net.core.rmem_max", "at least 67108864", "212992", "", fault=False),),
        HostLosses(*[2**60] * 6, None),
        Stores({store.directory: store}, {}),
        Journals({journal.directory: journal}, {}, (disk,)),
        Groups({name: Group(name, 2**31, 0, 0, False, (feed,) * 8192, True)}, {}),
    )


def test_lines_of_the_host_fit_the_terminal_whatever_is_counted() -> None:
    lines = list(host_lines(host_of_large_numbers(), {}))
    # Sentences wrap, tables do not. One column is the scroll bar's.
    lines = lines[next(at for at, line in enumerate(lines) if line.startswith("store  ")) :]
    assert max(map(len, lines)) < COLUMNS, max(lines, key=len)


def test_names_change_nothing_in_a_terminal(live: Subscriber, tmp_path: Path) -> None:
    evil = "evil\x1b]0;owned\x07\x9b2J\u202e"
    shutil.copytree(tmp_path / "killed", tmp_path / evil)
    with Reader("ring:live", name="reader"):
        look = look_at_host()
        (feed,) = (one for one in changes(look, look) if one.name == "live")
        (reader,) = feed.readers
        named = msgspec.structs.replace(reader.status, name=evil)
        shown = msgspec.structs.replace(
            feed, readers=(msgspec.structs.replace(reader, status=named),)
        )
        assert "owned" in plain(feed_lines(shown, look.unix_ns))
        assert all(one.isprintable() for one in plain(feed_lines(shown, 0)).split("\n"))
    for command in (["top", "--once", "--interval", "0.1"], ["stat"]):
        output = CliRunner().invoke(cli, command).output
        assert "owned" in output
        assert all(line.isprintable() for line in output.split("\n"))


def test_changes_are_those_between_two_looks(live: Subscriber) -> None:
    before = look_at_host(["live"])
    status = before.feeds["live"]
    counters = {scope: dict(values) for scope, values in status.counters.items()}
    counters["incremental.A"] |= {"datagrams": 500, "wins": 50, "leads": 2, "lead_ns": 3000}
    counters["feed"]["records"] += 100
    counters["incremental"]["lost"] = 7
    now = msgspec.structs.replace(
        before,
        at_ns=before.at_ns + 2 * 10**9,
        feeds={"live": msgspec.structs.replace(status, counters=counters)},
    )
    (change,) = changes(before, now)
    assert (change.datagrams_per_s, change.records_per_s, change.lost) == (250.0, 50.0, 7)
    assert (change.lines[0].first, change.lines[0].lead_ns) == (1.0, 1500.0)
    again = msgspec.structs.replace(status, counters=counters, started_ns=status.started_ns + 1)
    (change,) = changes(now, msgspec.structs.replace(now, feeds={"live": again}))
    assert change.lost == 7  # of a start that began with 0


def test_once_prints_the_list_and_those_that_are_named(live: Subscriber) -> None:
    result = CliRunner().invoke(cli, ["top", "--once", "--interval", "0.1"])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert re.search(r"feeds: 1 running, 0 stopped, 0 failed, 1 dead$", lines[0])
    assert [line.split()[:2] for line in lines[2:4]] == [["killed", "DEAD"], ["live", "running"]]
    assert lines[4:6] == ["", "what needs attention"]
    named = CliRunner().invoke(cli, ["top", "--once", "--interval", "0.1", "killed"])
    assert "killed: DEAD, what follows is the last known" in named.output
    assert "feed: was running" in named.output
    absent = CliRunner().invoke(cli, ["top", "--once", "--interval", "0.1", "absent"])
    assert absent.exit_code == 1


def test_without_a_terminal_it_says_what_prints() -> None:
    pytest.importorskip("textual")
    result = CliRunner().invoke(cli, ["top"])
    assert result.exit_code == 2
    assert "--once" in result.output


def piloted(check: Callable[..., Awaitable[None]]) -> None:
    """Run `udpfast top` in a terminal of 80 x 24 that a test looks at and types into."""
    pytest.importorskip("textual")
    from udpfast.cli.top_app import TopApp

    async def run() -> None:
        app = TopApp(interval_s=3600)  # it looks when the test presses r
        async with app.run_test(size=(COLUMNS, ROWS)) as pilot:
            await pilot.pause()
            await check(app, pilot)

    asyncio.run(run())


def screen(app: object) -> str:
    """Return what the terminal shows, as text."""
    strips = app.screen._compositor.render_strips()  # type: ignore[attr-defined]
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


def test_keys_lead_to_a_feed_and_back(live: Subscriber) -> None:
    async def check(app: object, pilot: object) -> None:
        press = pilot.press  # type: ignore[attr-defined]
        text = screen(app)
        assert "killed" in text and "DEAD" in text and "running" in text
        assert all(len(line) <= COLUMNS for line in text.splitlines())
        await press("j", "enter")
        assert "live: running" in screen(app)
        assert "incremental.A" in screen(app)
        await press("escape", "up", "enter")
        assert "killed: DEAD" in screen(app)
        await press("escape", "question_mark")
        assert "Any key goes back" in screen(app)
        await press("x")
        assert HOST_TITLE in screen(app)
        await press("o", "o")
        assert "what needs attention" in screen(app)
        await press("r", "escape")
        assert HOST_TITLE in screen(app)
        await press("p")
        assert "PAUSED" in screen(app)

    piloted(check)


def test_feeds_that_come_and_go_are_followed(live: Subscriber) -> None:
    async def check(app: object, pilot: object) -> None:
        with feed("another"):
            await pilot.press("r")  # type: ignore[attr-defined]
            assert screen(app).index("another") < screen(app).index("killed")
        await pilot.press("r")  # type: ignore[attr-defined]
        assert re.search(r"another +stopped", screen(app))

    piloted(check)


def test_page_of_a_feed_has_objects_gaps_verdicts_and_journals(live: Subscriber) -> None:
    look = look_at_host(["live"])
    status = look.feeds["live"]
    counters = {scope: dict(values) for scope, values in status.counters.items()}
    counters["incremental"] |= {"gaps": 3, "gaps_by_time": 2, "gaps_by_count": 1, "lost": 7}
    counters["incremental.A"] |= {"late": 5, "delivered": 9}
    journal = largest(JournalStatus, directory="/j", state="dead", lapped_records=4)
    states = ObjectStates(10, {"gap": 2, "silent": 1, "first": 0})
    full = msgspec.structs.replace(
        status,
        counters=counters,
        objects=states,
        journals=Journals({"/j": journal}, {"/bad": "damaged"}, ()),
    )
    later = msgspec.structs.replace(look, feeds={"live": full})
    (change,) = changes(look, later)
    text = "\n".join(feed_lines(change, look.unix_ns))
    assert re.search(r"^incremental +3 +1 +2 +0 +7$", text, re.MULTILINE)
    assert re.search(r"^late +incremental.A +5$", text, re.MULTILINE)
    assert "delivered" not in text
    assert "objects: 10 sound, 3 in doubt; since the start: 3 GAP, 0 STALE" in text
    assert "  1: they wait for a snapshot, and that channel is silent" in text
    assert re.search(r"^/j +dead ", text, re.MULTILINE)
    assert "not recorded: 4 overwritten before they were recorded" in text
    assert "/bad: damaged" in text


def test_what_needs_somebody_is_said_below_the_list(tmp_path: Path) -> None:
    for name in "abcde":
        (tmp_path / "journals" / name).mkdir(mode=0o700, parents=True)
        (tmp_path / "journals" / name / "journal").write_bytes(b"x")

    async def check(app: object, pilot: object) -> None:
        text = screen(app)
        assert str(tmp_path / "journals" / "a") in text.replace("\n", "").replace(" ", "")
        assert re.search(r"and [2-9] more: o shows them", text)

    piloted(check)


def test_host_without_feeds_says_how_to_start_one() -> None:
    async def check(app: object, pilot: object) -> None:
        assert "udpfast run FEED.TOML" in screen(app)
        await pilot.press("enter", "j", "r")  # type: ignore[attr-defined]

    piloted(check)
