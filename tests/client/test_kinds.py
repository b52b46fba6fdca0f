"""Kinds by name, wherever a kind is expected; other names are refused with a similar kind."""

import warnings
from pathlib import Path

import pytest

from tests.client.instance import Instance
from udpfast import ConfigError, Kind, Latest, Reader
from udpfast.archive.names import names_path
from udpfast.client.kinds import kind_of, kinds_of
from udpfast.export.schema import TABLES
from udpfast.log.journal import Journal
from udpfast.market.names import NameTable, name_table_size
from udpfast.market.updates import LAYOUTS
from udpfast.shm.names import create_names, names_table


@pytest.mark.parametrize("value", [Kind.BOOK, int(Kind.BOOK), "book", "BOOK", "Book"])
def test_kind_of_member_number_or_name_is_the_kind(value: object) -> None:
    assert kind_of(value) is Kind.BOOK
    assert list(kinds_of(value)) == list(kinds_of([value])) == [Kind.BOOK]


@pytest.mark.parametrize("name", [name for name in TABLES if len(TABLES[name].kinds) == 1])
def test_name_of_an_exports_table_is_its_kind(name: str) -> None:
    own = Kind.__members__.get(name.upper())  # a kind's own name has priority
    assert kind_of(name) is (own or Kind[TABLES[name].kinds[0]])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("bok", "was 'bok'; did you mean 'BOOK'"),
        ("top-of-book", "did you mean 'TOP_OF_BOOK'"),
        ("tob", "did you mean 'TOP_OF_BOOK'"),
        ("bbo", "did you mean 'TOP_OF_BOOK'"),
        ("quotes", "did you mean 'TOP_OF_BOOK'"),
        ("mbo", "did you mean 'ORDERS'"),
        ("MBP", "did you mean 'BOOK'"),
        ("depth", "did you mean 'BOOK'"),
        ("l2", "did you mean 'BOOK'"),
        ("top_of_book,trades", r"kinds=\['top_of_book', 'trades'\]"),
        ("book trades", r"kinds=\['book', 'trades'\]"),
        ("events", r"DISAGREEMENT, RESTART, LAPPED\), which a reader of any kinds gets$"),
        ("Messages", "that table has the records of all kinds: name none$"),
        ("latency", "made by an export, from the times of all records$"),
        ("races", "made by an export, from captured datagrams$"),
        ("zzz", "was 'zzz'; there are MESSAGE, "),
        (99, "was 99$"),
        (None, "was None$"),
        (2.5, "was 2.5$"),
    ],
)
def test_kind_of_anything_else_is_refused(value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        kind_of(value)


def test_names_of_kinds_serve_reader_batch_and_latest(instance: Instance) -> None:
    instance.top(1.0, 2.0)
    instance.book([(1.0, 1.0)], [], snapshot=True)
    instance.ring.flush()
    with Reader(instance.address, start="begin", kinds="top_of_book") as reader:
        assert [record.kind for record in Latest(reader, keep=["trades"]).poll(0)] == [
            Kind.TOP_OF_BOOK
        ]
    with Reader(instance.address, start="begin") as reader:
        batch = reader.poll()
        assert batch.select("top_of_book")["bid_price"].tolist() == [1.0]
        assert len(batch.table("book")) == 1


def test_unknown_kind_says_which_there_are(instance: Instance) -> None:
    with pytest.raises(ConfigError, match=r"was 'xyzzy'; there are .*SESSION, .*TOP_OF_BOOK"):
        Reader(instance.address, kinds="xyzzy")


def test_unknown_names_are_noted_with_those_that_are_known(instance: Instance) -> None:
    instance.top(1.0, 2.0, "AMBR-PERP")
    with pytest.warns(UserWarning) as noted:
        Reader(instance.address, symbols={"AMBR-PRP"}).close()
    assert str(noted[0].message).endswith(
        "symbol not published so far: 'AMBR-PRP'; published are AMBR-PERP; "
        "did you mean 'AMBR-PERP'?"
    )
    with pytest.warns(UserWarning) as noted:
        Reader(instance.address, exchanges="cme", symbols="AMBR-PERP").close()
    assert str(noted[0].message).endswith(
        "exchange not published so far: 'cme'; published are binance-usdm"
    )


def test_symbol_given_as_an_exchange_is_called_one(instance: Instance) -> None:
    instance.top(1.0, 2.0, "AMBR-PERP")
    with pytest.warns(UserWarning) as noted:
        Reader(instance.address, exchanges="AMBR-PERP", symbols="binance-usdm").close()
    said = str(noted[0].message)
    assert "published are binance-usdm; 'AMBR-PERP' is a symbol. symbol not" in said
    assert said.endswith("published are AMBR-PERP; 'binance-usdm' is an exchange")


def test_unknown_name_is_noted_with_the_most_similar_ones_among_many(tmp_path: Path) -> None:
    table = Instance(tmp_path / "feed")
    for strike in range(40):
        table.names.intern(f"AAPL-2026-{strike:03}-C")
    table.top(1.0, 2.0, "XYZ")
    with pytest.warns(UserWarning) as noted:
        Reader(table.address, exchanges="BINANCE", symbols="xyz").close()
    exchanges, symbols = str(noted[0].message).split(". ")
    assert exchanges.endswith("published are binance-usdm; did you mean 'binance-usdm'?")
    assert "published are XYZ, " in symbols and "and 31 more; did you mean 'XYZ'?" in symbols
    table.close()


def test_unknown_names_of_a_journal_are_noted_with_all_that_it_has(tmp_path: Path) -> None:
    with Journal.open(tmp_path, LAYOUTS, segment_bytes=1 << 18) as journal:
        journal.append(Kind.MESSAGE, b"")
    for number, name in ((1, "AMBR-PERP"), (2, "BTC-PERP")):
        region = create_names(names_path(tmp_path, number), name_table_size(16))
        table = NameTable(names_table(region), capacity=16)
        table.intern("deribit", exchange=True)
        table.intern(name)
        region.mark_ready()
    with pytest.warns(UserWarning, match=r"'AMBR-PRP'; published are AMBR-PERP, BTC.*did you mean"):
        Reader(f"journal:{tmp_path}", symbols={"AMBR-PRP"}).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Reader(
            f"journal:{tmp_path}", exchanges="deribit", symbols={"AMBR-PERP", "BTC-PERP"}
        ).close()


def test_known_names_and_an_empty_table_are_no_note(instance: Instance) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Reader(instance.address, symbols={"AMBR"}).close()
        instance.top(1.0, 2.0, "AMBR")
        Reader(instance.address, symbols={"AMBR"}, exchanges="binance-usdm").close()
