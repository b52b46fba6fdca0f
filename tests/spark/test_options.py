"""Options of the data source: lists of words, as people and other programs write them."""

import pytest

from udpfast.errors import ConfigError
from udpfast.spark.options import list_of
from udpfast.spark.source import UdpfastSource


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A, B,,C ", ("A", "B", "C")),
        ('"A,B",C', ("A,B", "C")),
        ('"say ""A""", B', ('say "A"', "B")),
        ("col'umn", ("col'umn",)),
    ],
)
def test_word_with_a_comma_stands_in_quotes(text: str, words: tuple[str, ...]) -> None:
    assert list_of({"symbols": text}, "symbols") == words


def test_quotes_that_do_not_end_are_refused() -> None:
    with pytest.raises(ConfigError, match="symbols must be words separated by commas"):
        list_of({"symbols": '"A,B'}, "symbols")


def test_column_is_named_once() -> None:
    source = UdpfastSource({"path": "x", "table": "trades", "columns": "symbol,price,symbol"})
    with pytest.raises(ConfigError, match=r"columns .*'symbol' twice"):
        source.schema()
