"""How a notebook shows each object: as a small escaped table, in every state of the object."""

import re
from html.parser import HTMLParser

import udpfast
from tests.client.instance import Instance
from udpfast import Books, Kind, OrderBook, Reader
from udpfast.client.counters import Counters
from udpfast.client.latency import Latency
from udpfast.client.notebook import BOOKS_SHOWN


class Cells(HTMLParser):
    """The texts of a table's cells; refuses tags that are not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.texts += [""] if tag in ("td", "th", "caption") else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts[-1] += data


def cells(thing: object) -> list[str]:
    return Cells(thing._repr_html_()).texts  # type: ignore[attr-defined]


def test_books_show_the_top_of_each_and_its_state(instance: Instance) -> None:
    instance.book([(1.0, 2.5)], [(3.0, 4.0)], "A<B", snapshot=True)
    books = Books()
    with Reader(instance.address, start="begin") as reader:
        books.apply(next(reader))
    assert cells(books)[10:] == ["binance-usdm", "A<B", "2.5", "1", "3", "4", "1", "1", "sound"]
    assert cells(books)[0] == "1 books, 0 stale"
    assert cells(books["binance-usdm", "A<B"])[0] == "sound, 1 + 1 levels"


def test_books_beyond_what_is_shown_are_counted(instance: Instance) -> None:
    books = Books()
    for number in range(30):
        instance.book([(1.0, 1.0)], [], f"S{number}", snapshot=True, object_id=number)
    with Reader(instance.address, start="begin") as reader:
        books.apply_batch(reader.poll())
    assert BOOKS_SHOWN >= 30
    assert cells(books)[0] == "30 books, 0 stale"
    assert books._repr_html_().count("<tr>") == 31


def test_order_book_says_its_top_and_state() -> None:
    book = OrderBook()
    assert repr(book) == "<OrderBook no bids | no asks, 0 + 0 levels, sound>"
    book.mark_stale()
    assert repr(book).endswith("STALE>")
    assert cells(book)[0] == "STALE, 0 + 0 levels"


def test_batch_shows_its_kinds_and_says_when_it_is_gone(instance: Instance) -> None:
    instance.top(1.0, 2.0)
    instance.append(Kind.GAP, bytes(24))
    with Reader(instance.address, start="begin") as reader:
        batch = reader.poll()
        assert cells(batch)[5:] == ["GAP", "1", "1", "1", "TOP_OF_BOOK", "1", "0", "0"]
        reader.poll(timeout=0)
        assert "no longer valid" in cells(batch)[0]


def test_reader_shows_where_it_is_open_and_closed(instance: Instance) -> None:
    instance.top(1.0, 2.0)
    with Reader(instance.address, start="begin") as reader:
        next(reader)
        shown = cells(reader)
        assert shown[0] == f"Reader {instance.address}"
        assert shown[shown.index("next index") + 1] == "1"
    assert "closed" in cells(reader)


def test_record_shows_its_fields(instance: Instance) -> None:
    instance.book([(1.0, 2.0)], [], snapshot=True)
    with Reader(instance.address, start="begin") as reader:
        shown = cells(next(reader))
    assert shown[0] == "BOOK"
    assert "price=1.0 quantity=2.0" in shown[shown.index("bids") + 1]


def test_counters_and_latency_show_tables_and_stay_dicts() -> None:
    counters = Counters({"feed": {"records": 1234, "updates": 0}})
    assert cells(counters)[4:] == ["feed", "records", "1,234"]
    hop = dict.fromkeys(("count", "p50", "p90", "p99", "p99_9", "max", "below", "above"), 1500)
    shown = cells(Latency({"loop_to_ring": hop}))
    assert shown[-8:] == ["loop_to_ring", "1,500", *5 * ["1.50"], "1,500"]
    assert isinstance(counters, dict)
    assert re.search("Counters", str(udpfast.counters.__annotations__["return"]))
