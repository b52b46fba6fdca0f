"""`udpfast top`, live: a list of feeds, a page about one of them, and one about the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from udpfast.cli.order_text import books_lines
from udpfast.cli.top_host import host_lines
from udpfast.cli.top_text import HOST_TITLE, feed_lines, host_caption, host_row, replay_lines
from udpfast.cli.top_words import plain
from udpfast.errors import UdpfastError
from udpfast.monitor.change import FeedChange, HostLook, changes, look_at_host
from udpfast.monitor.paced import Paced
from udpfast.monitor.present import present_books
from udpfast.monitor.troubles import describe_troubles
from udpfast.page.words import literal

__all__ = ["TopApp"]

#: The host's troubles that are shown below the list.
TROUBLES = 3

HELP = """\
udpfast top: the feeds of this user on this host, live and dead

  Up, Down, j, k      choose a feed, or scroll its page
  Enter               the page of the feed; there b: its single orders
  o                   the page of the host: stores, journals and disks, faults
  Escape, Backspace   back to the list
  p, Space            stand still, and go on
  r                   look again now
  q                   quit        ?, h   this page

datagr/s   datagrams per second, of all lines together
lost       messages that no line brought; +?: and what came while none ran
drops      datagrams that the kernel dropped
missed     records that readers missed, because they were too slow
p99 us     from the kernel's stamp to the loop, since the last look
first      part of the fragments that this line brought first
lead us    mean lead where it was first; below 0: the kernel had another first
in doubt   objects that nobody should trade on now, as the feed's image has them
unsynced   bytes that a power cut may cost: the disk does not have them yet

Any key goes back."""


class _Help(ModalScreen[None]):
    def compose(self) -> ComposeResult:
        yield Static(HELP, markup=False, id="help")

    def on_key(self) -> None:
        self.dismiss()


class _Page(Screen[None]):
    """Lines that are longer than a terminal, and go on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,backspace", "app.pop_screen", "Back"),
        ("j", "scroll_page(1)", ""),
        ("k", "scroll_page(-1)", ""),
    ]

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static("", markup=False, id="page")
        yield Footer()

    def on_mount(self) -> None:
        self.show()

    def show(self) -> None:
        """Show how it is now."""
        assert isinstance(self.app, TopApp)
        self.query_one("#page", Static).update(plain(self.lines(self.app)))

    def lines(self, app: TopApp) -> Iterator[str]:
        raise NotImplementedError

    def action_scroll_page(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)


class _FeedPage(_Page):
    BINDINGS: ClassVar[list[BindingType]] = [("b", "orders", "Orders")]

    def __init__(self, name: str) -> None:
        super().__init__()
        self.feed_name = name

    def lines(self, app: TopApp) -> Iterator[str]:
        feed = app.feeds.get(self.feed_name)
        if feed is None:
            yield f"{self.feed_name}: its directory was removed"
        else:
            yield from feed_lines(feed, app.look.unix_ns)

    def action_orders(self) -> None:
        self.app.push_screen(_OrdersPage(self.feed_name))


class _OrdersPage(_Page):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.feed_name = name

    def lines(self, app: TopApp) -> Iterator[str]:
        yield f"orders of {self.feed_name}"
        try:
            books = present_books(self.feed_name)
        except (UdpfastError, OSError) as error:
            yield str(error)
        else:
            yield from books_lines(books)


class _HostPage(_Page):
    def lines(self, app: TopApp) -> Iterator[str]:
        yield "this host"
        yield from host_lines(app.look.host, app.look.feeds, app.look.unreadable)


class TopApp(App[None]):
    """The feeds of a host, looked at again and again.

    Parameters
    ----------
    interval_s : float
        Between two looks.
    names : sequence of str
        Of the instances; empty: all of this user.
    """

    TITLE = "udpfast top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Static, OptionList { height: auto; padding: 0; border: none; }
    OptionList { height: 1fr; scrollbar-size-vertical: 1; }
    OptionList > .option-list--option { padding: 0; }
    #title { text-style: bold; }
    #help { height: auto; padding: 1; }
    VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("question_mark,h", "help", "Help"),
        ("p,space", "pause", "Pause"),
        ("r", "look", "Look"),
        ("o", "host", "Host"),
        ("q", "quit", "Quit"),
        ("j", "move(1)", ""),
        ("k", "move(-1)", ""),
    ]

    def __init__(self, interval_s: float = 1.0, names: Sequence[str] = ()) -> None:
        super().__init__()
        self._interval_s = interval_s
        self._names = tuple(names)
        self._paused = False
        self._shown: list[str] = []
        self._paced = Paced()
        self.look: HostLook = look_at_host(self._names, self._paced)
        self.feeds: dict[str, FeedChange] = {
            feed.name: feed for feed in changes(self.look, self.look)
        }

    def compose(self) -> ComposeResult:
        """Make the list of feeds."""
        yield Static("", markup=False, id="caption")
        yield Static(HOST_TITLE, markup=False, id="title")
        yield OptionList(id="feeds", markup=False)
        yield Static("", markup=False, id="notes")
        yield Footer()

    def on_mount(self) -> None:
        """Show what there is, and look again from now on."""
        self._show()
        self.set_interval(self._interval_s, self._tick)
        self.query_one("#feeds", OptionList).focus()

    def action_look(self) -> None:
        """Look at all feeds, and show what changed."""
        now = look_at_host(self._names, self._paced)
        self.feeds = {feed.name: feed for feed in changes(self.look, now)}
        self.look = now
        self._show()
        for screen in self.screen_stack:
            if isinstance(screen, _Page):
                screen.show()

    def action_pause(self) -> None:
        """Stand still, or go on."""
        self._paused = not self._paused
        self._show()

    def action_help(self) -> None:
        """Show the keys and the words."""
        self.push_screen(_Help())

    def action_host(self) -> None:
        """Show the host, unless it is shown."""
        if not isinstance(self.screen, _HostPage):
            self.push_screen(_HostPage())

    def action_move(self, rows: int) -> None:
        """Choose the next feed, or the one before."""
        options = self.query_one("#feeds", OptionList)
        if rows > 0:
            options.action_cursor_down()
        else:
            options.action_cursor_up()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open the page of a feed."""
        if event.option_id is not None:
            self.push_screen(_FeedPage(self._shown[int(event.option_id)]))

    def _tick(self) -> None:
        if not self._paused:
            self.action_look()

    def _show(self) -> None:
        base = self.screen_stack[0]
        paused = "  PAUSED" if self._paused else ""
        base.query_one("#caption", Static).update(host_caption(self.look) + paused)
        options = base.query_one("#feeds", OptionList)
        rows = [literal(host_row(feed)) for feed in self.feeds.values()]
        if list(self.feeds) == self._shown:
            for place, row in enumerate(rows):
                options.replace_option_prompt_at_index(place, row)
        else:
            chosen = options.highlighted
            self._shown = list(self.feeds)
            options.clear_options()
            # Ids by place: names of directories may have what ids may not.
            options.add_options([Option(row, id=str(place)) for place, row in enumerate(rows)])
            options.highlighted = min(chosen or 0, len(rows) - 1) if rows else None
        base.query_one("#notes", Static).update(plain(self._notes()))

    def _notes(self) -> Iterator[str]:
        # Below the list: what cannot be read, and what on the host needs attention.
        gone = [*replay_lines(self.look)]
        gone += [f"{name}: {reason}" for name, reason in self.look.unreadable.items()]
        if not self.feeds and not gone:
            gone = ["no feed of this user on this host: udpfast run FEED.TOML starts one"]
        yield from gone
        troubles = describe_troubles(self.look.host, self.look.feeds)
        yield from troubles[:TROUBLES]
        if len(troubles) > TROUBLES:
            yield f"and {len(troubles) - TROUBLES} more: o shows them"
