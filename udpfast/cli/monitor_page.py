"""The page of `udpfast monitor`, by NiceGUI: a table of feeds, charts of one, a book, the host."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import uvicorn.server
from nicegui import app, ui

from udpfast.cli.door import Door
from udpfast.cli.monitor_charts import Charts, add_script
from udpfast.cli.options import say_stop
from udpfast.cli.order_text import order_lines
from udpfast.cli.top_host import host_lines
from udpfast.cli.top_text import feed_lines, replay_lines
from udpfast.cli.top_words import plain, short
from udpfast.client.books import Books
from udpfast.core.endpoint import endpoint_text
from udpfast.core.stop import Stop
from udpfast.errors import UdpfastError
from udpfast.monitor.change import FeedChange
from udpfast.monitor.history import History
from udpfast.monitor.present import present_books
from udpfast.monitor.troubles import describe_troubles

__all__ = ["serve"]

#: Shown of each side of a book, and how long a shown book, and what is said of the host, may be
#: behind.
DEPTH = 10
BOOK_S = 3.0
HOST_S = 3.0

COLUMNS = (
    ("feed", "feed"),
    ("state", "state"),
    ("lines", "lines heard"),
    ("datagrams", "datagrams/s"),
    ("records", "records/s"),
    ("lost", "messages lost"),
    ("drops", "kernel drops"),
    ("missed", "readers missed"),
    ("p99", "p99, us"),
)

STYLE = """
.charts { display: grid; gap: 1rem; width: 100%;
          grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
.charts > * { min-width: 0; }
.charts > .nicegui-echart { height: 17rem; }
.texts { display: grid; gap: 1rem 2rem; width: 100%;
         grid-template-columns: repeat(auto-fit, minmax(min(100%, 42rem), 1fr)); }
.texts > * { min-width: 0; }
.words { font-family: monospace; white-space: pre-wrap; overflow-wrap: anywhere; overflow-x: auto;
         max-width: 100%; }
.beside { white-space: pre-wrap; overflow-wrap: anywhere; }
.troubles { white-space: pre-wrap; overflow-wrap: anywhere; font-weight: 600; }
.nicegui-content { padding: .75rem; }
/* 80 columns of a monospaced font are 48 em wide: on a phone they fit, rather than being cut. */
@media (max-width: 40rem) {
  .words { font-size: calc((100vw - 1.75rem) / 49.5); }
  .q-table th, .q-table td { padding: .1rem .1rem !important; font-size: .58rem !important;
                             white-space: normal !important; }
}
"""


def serve(names: Sequence[str], host: str, port: int, token: str, interval_s: float) -> None:
    """Serve the page until SIGINT, SIGTERM or SIGHUP.

    Parameters
    ----------
    names : sequence of str
        Of the feeds; empty: all of this user.
    host, port : str, int
        Where; nobody else serves there.
    token : str
        Empty: no token is asked for, only that the page is not asked for by a foreign name.
    interval_s : float
        Between two looks, which are made only while a browser shows the page.
    """
    looks = _Looks(History(names), interval_s)
    add_script()

    @ui.page("/")
    def page() -> None:
        _Page(looks)

    app.add_middleware(Door, token=token)
    address = f"http://{endpoint_text(host, port)}/"
    if token:
        address += f"?token={quote(token, safe='')}"
    stopping = Stop()
    stopping.listen()
    # The server's own handlers know no SIGHUP, and a second SIGINT breaks its shutdown off.
    vars(uvicorn.server)["HANDLED_SIGNALS"] = ()
    app.on_startup(lambda: stopping.call(app.shutdown))

    async def say() -> None:
        # Not before a browser would be answered.
        while True:
            try:
                _, writer = await asyncio.open_connection(host, port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                break
        print(f"udpfast: {address}", flush=True)

    told: list[asyncio.Task[None]] = []  # a task without a reference may be collected
    app.on_startup(lambda: told.append(asyncio.create_task(say())))
    ui.run(
        host=host, port=port, title="udpfast monitor", dark=None, show=False, reload=False,
        show_welcome_message=False, uvicorn_logging_level="error",
        ws_per_message_deflate=False,  # a kilobyte a second, and a tenth of what the page costs
    )  # fmt: skip
    say_stop(stopping, "monitor")


class _Looks:
    """One history for all browsers: looked at again when the first of them asks."""

    def __init__(self, history: History, interval_s: float) -> None:
        self.history = history
        self.interval_s = interval_s
        self._at_s = 0.0

    def refresh(self) -> History:
        now_s = time.monotonic()
        if now_s - self._at_s >= self.interval_s * 0.9:
            self._at_s = now_s
            self.history.advance()
        return self.history


class _Page:
    """What one browser shows."""

    def __init__(self, looks: _Looks) -> None:
        self._looks = looks
        self._chosen = ""
        self._shown_s = self._host_s = 0.0
        ui.add_css(STYLE)
        with ui.row(align_items="center").classes("w-full"):
            ui.label("udpfast").classes("text-xl font-bold")
            self._when = ui.label()
            ui.space()
            self._dark = ui.dark_mode(None)  # as the browser likes it, until it is said
            ui.button("light / dark", on_click=self._turn).props("flat dense no-caps")
        self._table = ui.table(
            columns=[
                {"name": key, "label": label, "field": key, "align": "left" if at < 2 else "right"}
                for at, (key, label) in enumerate(COLUMNS)
            ],
            rows=[],
            row_key="feed",
        )
        self._table.classes("w-full").props("dense flat bordered")
        self._table.on("rowClick", lambda event: self._click(event.args[1]["feed"]))
        self._unreadable = ui.label().classes("beside")
        self._troubles = ui.label().classes("troubles")
        self._title = ui.label().classes("text-lg")
        with ui.element("div").classes("charts"):
            self._charts = Charts(looks.history.length)
            with ui.column():
                # The image is read whole: only when a book of it is looked at.
                self._symbol = ui.select({}, label="book of", clearable=True)
                self._symbol.classes("w-64").props("dense use-input")
                self._symbol.on_value_change(self._show_book)
                self._symbol.on("popup-show", self._list_books)
                self._book = ui.table(
                    columns=[
                        {"name": name, "label": name, "field": name, "align": "right"}
                        for name in ("bid quantity", "bid", "ask", "ask quantity")
                    ],
                    rows=[],
                ).props("dense flat hide-bottom")
                self._book_state = ui.label()
        with ui.element("div").classes("texts"):
            self._words = ui.label().classes("words")
            with ui.element("div"):
                ui.label("this host").classes("text-lg")
                self._host = ui.label().classes("words")
            self._orders = ui.label().classes("words")
        ui.timer(looks.interval_s, self._show)

    def _turn(self) -> None:
        self._dark.value = not self._dark.value

    def _click(self, name: str) -> None:
        self._choose(name)
        self._show()

    def _choose(self, name: str) -> None:
        self._chosen = name
        self._symbol.set_options({}, value=None)
        self._list_books()

    def _show(self) -> None:
        history = self._looks.refresh()
        look = history.look
        self._when.set_text(f"{datetime.fromtimestamp(look.unix_ns / 1e9, UTC):%H:%M:%S} UTC")
        self._table.rows = [_row(feed) for feed in history.feeds.values()]
        beside = [f"{name}: {reason}" for name, reason in look.unreadable.items()]
        self._unreadable.set_text(
            plain(iter([*replay_lines(look), *beside]))
            or ("" if history.feeds else "no feed of this user: udpfast run FEED.TOML starts one")
        )
        if time.monotonic() - self._host_s >= HOST_S:
            self._host_s = time.monotonic()
            troubles = describe_troubles(look.host, look.feeds, look.unreadable)
            self._troubles.set_text(plain(iter(troubles)))
            self._host.set_text(plain(host_lines(look.host, look.feeds, look.unreadable)))
        if self._chosen not in history.feeds:
            self._choose(history.first())
        feed = history.feeds.get(self._chosen)
        if feed is None:
            self._title.set_text("")
            self._words.set_text("")
            return
        self._title.set_text(f"{feed.name}: {feed.status.life_told}")
        self._words.set_text(plain(feed_lines(feed, look.unix_ns)))
        self._charts.show(self._chosen, history.points.get(self._chosen, ()))
        if self._symbol.value is not None and time.monotonic() - self._shown_s >= BOOK_S:
            self._show_book()

    def _books(self, *key: str | None) -> Books:
        try:
            books = present_books(self._chosen, *key)
        except (UdpfastError, OSError) as error:
            self._book_state.set_text(str(error))
            return Books()
        self._book_state.set_text("" if books else "no book yet")
        return books

    def _list_books(self) -> None:
        self._symbol.set_options({key: f"{key[1]} @ {key[0]}" for key in self._books()})

    def _show_book(self) -> None:
        self._shown_s = time.monotonic()
        key = self._symbol.value
        books = Books() if key is None else self._books(*key)
        book = None if key is None else books.get(key)
        self._orders.set_text("" if key is None else plain(order_lines(books, *key)))
        if book is None:
            self._book.rows = []
            return
        bids, asks = book.bids(DEPTH), book.asks(DEPTH)
        self._book.rows = [
            {
                **({"bid": f"{bids[at][0]:,}", "bid quantity": f"{bids[at][1]:,}"}
                   if at < len(bids) else {}),
                **({"ask": f"{asks[at][0]:,}", "ask quantity": f"{asks[at][1]:,}"}
                   if at < len(asks) else {}),
            }
            for at in range(max(len(bids), len(asks)))
        ]  # fmt: skip
        levels = book.levels
        state = "STALE: it may have missed an update" if book.stale else "sound"
        self._book_state.set_text(f"{state}; {levels[0]:,} bids, {levels[1]:,} asks")


def _row(feed: FeedChange) -> dict[str, Any]:
    hop = feed.hops.get("kernel_to_loop")
    p99 = "-"
    if hop is not None and hop.count:
        p99 = f"{hop.percentiles({'p99': 99.0})['p99'] / 1e3:,.1f}"
    # Nobody counts what came while no process ran.
    unknown = " + ?" if feed.status.counters["feed"]["took_over"] else ""
    return {
        "feed": feed.name,
        "state": feed.status.life_shown,
        "lines": f"{sum(not line.silent for line in feed.lines)}/{len(feed.lines)}",
        "datagrams": short(feed.datagrams_per_s),
        "records": short(feed.records_per_s),
        "lost": short(feed.lost_total) + unknown,
        "drops": short(feed.kernel_drops_total),
        "missed": short(feed.lapped_total),
        "p99": p99,
    }
