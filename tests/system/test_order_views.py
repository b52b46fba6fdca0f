"""Single orders in `udpfast top` and on the page of `udpfast monitor`: real feeds of venues."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.cases import nightly
from tests.cli.test_top import COLUMNS, ROWS
from tests.system.test_monitor_page import browser, end, start
from tests.waiting import wait_until
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.cli.order_text import books_lines
from udpfast.errors import ImageError
from udpfast.monitor.present import present_books
from udpfast.net.ports import free_port

__all__ = ["browser"]
pytestmark = pytest.mark.system
FRAMINGS = {"itch": "moldudp64", "pitch": "cboe_pitch", "cme": "cme_mdp3"}
#: CME's loops: of each table and option of that name, its lines.
LOOPS = {"recovery": "SO", "definitions": "N"}


@pytest.fixture(scope="module", params=["cme", *nightly("itch", "pitch")])
def venue(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Run a feed of a simulated venue, with single orders; return the feed's name."""
    folder = tmp_path_factory.mktemp("venue")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UDPFAST_SHM", str(folder / "shm"))
        patch.setenv("UDPFAST_JOURNALS", str(folder / "journals"))
        yield from run(request.param)


def run(payload: str) -> Iterator[str]:
    """Run it until it is not looked at any more."""
    lines = {"streams": "A"} | (LOOPS if payload == "cme" else {})
    addresses = {
        table: {name: f"127.0.0.1:{free_port()}" for name in names}
        for table, names in lines.items()
    }
    settings: dict[str, Any] = {
        "name": "venue",
        "wire": {"framing": FRAMINGS[payload], "payload": payload, "streams_max": 8},
        "window": {"slab_cells": 1024},
        "objects": {"max": 64, "collect_bytes": 1 << 16},
        "books": {"orders": True, "orders_max": 10_000},
        "image": {"enabled": True, "capacity_bytes": 1 << 24, "objects": 64},
        "ring": {"capacity_bytes": 1 << 22, "names": 64},
        # Textual goes on when its process is idle, or a second later.
        "agent": {"idle": "sleep"},
    } | {
        table: {"lines": [{"name": name, "address": address} for name, address in named.items()]}
        for table, named in addresses.items()
    }
    command = [sys.executable, "-m", "udpfast", "send", "--venue", payload, "--simulate"]
    command += ["--seconds", "300", "--rate", "500"]
    for table, named in addresses.items():
        option = "incremental" if table == "streams" else table
        command += [f"--{option}", ",".join(named.values())]
    with Subscriber(settings), subprocess.Popen(command, stdout=subprocess.DEVNULL) as sender:
        try:
            wait_until(lambda: there("venue"), "orders")
            yield "venue"
        finally:
            sender.terminate()


def there(name: str) -> bool:
    with suppress(ImageError):  # its keeper has not begun it yet
        return any("largest asks" in one for one in shown(name))
    return False


def shown(name: str) -> list[str]:
    return list(books_lines(present_books(name)))


def test_orders_are_shown_by_level_queue_and_size(venue: str) -> None:
    lines = shown(venue)
    assert max(map(len, lines)) <= COLUMNS
    text = "\n".join(lines)
    for words in ("orders, sound", "queue at the best bid: ", "largest bids: ", "before it"):
        assert words in text
    books = present_books(venue)
    one = max(books.instruments(), key=lambda kept: kept.orders)
    best = books.orders(one.exchange, one.symbol).bid_levels(1)[0]
    queue = books.orders(one.exchange, one.symbol).bids()
    at_best = queue[queue["price"] == best["price"]]
    assert (len(at_best), at_best["quantity"].sum()) == (best["orders"], best["quantity"])


def test_top_shows_the_orders_of_a_feed(venue: str) -> None:
    pytest.importorskip("textual")
    from udpfast.cli.top_app import TopApp

    async def look() -> str:
        app = TopApp(interval_s=60)
        async with app.run_test(size=(COLUMNS, ROWS)) as pilot:
            await pilot.pause()
            await pilot.press("enter")
            await pilot.press("b")
            await pilot.pause()
            return str(app.screen.query_one("#page").render())

    assert "queue at the best" in asyncio.run(look())


@pytest.mark.nightly  # a browser; tests/monitor has what the page is given
def test_page_shows_the_orders_of_a_chosen_book(venue: str, browser: Any) -> None:
    process, address = start("--listen", f"127.0.0.1:{free_port()}", "--interval", "1")
    try:
        browser.set_window_size(1400, 1400)
        browser.get(address)

        def chosen() -> bool:
            words = str(browser.execute_script("return document.body.innerText"))
            if "queue at the best" in words:
                return True
            for where in (".charts .q-select .q-field__control", ".q-menu .q-item"):
                browser.execute_script("document.querySelector(arguments[0])?.click()", where)
            return False

        wait_until(chosen, "the orders of a book")
    finally:
        end(process)
