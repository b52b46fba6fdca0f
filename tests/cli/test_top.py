"""`udpfast top`: what it shows fits 80 x 24, moves with the keys, and is right about the dead."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tests.cli.test_stat import feed, killed_feed
from udpfast import Reader
from udpfast.agents.subscriber import Subscriber
from udpfast.cli.main import cli
from udpfast.cli.top_text import HOST_TITLE, feed_lines, host_caption, host_row, short
from udpfast.monitor.change import changes, look_at_host

COLUMNS, ROWS = 80, 24


@pytest.fixture(autouse=True)
def own_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))


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


def test_lines_fit_the_terminal_whatever_is_counted(live: Subscriber) -> None:
    with Reader("ring:live", name="a strategy with a long name"):
        look = look_at_host()
        for one in changes(look, look):
            counters = {
                scope: dict.fromkeys(values, 2**60) for scope, values in one.status.counters.items()
            }
            full = msgspec.structs.replace(one.status, counters=counters)
            later = msgspec.structs.replace(
                look, at_ns=look.at_ns + 10**9, feeds={one.name: full}, hops={one.name: {}}
            )
            (much,) = changes(look, later)
            assert len(host_row(much)) <= COLUMNS
            lines = [line for line in feed_lines(much, look.unix_ns) if "FULL" not in line]
            assert max(map(len, lines)) <= COLUMNS, max(lines, key=len)
    assert len(HOST_TITLE) <= COLUMNS
    assert len(host_caption(look)) <= COLUMNS


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
    assert re.search(r"feeds: 1 running, 0 stopped, 1 dead$", lines[0])
    assert [line.split()[:2] for line in lines[2:4]] == [["killed", "DEAD"], ["live", "running"]]
    assert lines[4:6] == ["", "what needs somebody"]
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


def test_host_without_feeds_says_how_to_start_one() -> None:
    async def check(app: object, pilot: object) -> None:
        assert "udpfast run FEED.TOML" in screen(app)
        await pilot.press("enter", "j", "r")  # type: ignore[attr-defined]

    piloted(check)
