"""Which records a subscription asks for."""

from itertools import product
from urllib.parse import quote

import pytest

from udpfast.agents.zmq.topics import parse_topic
from udpfast.errors import ConfigError

BTC = ("BOOK", "deribit", "BTC-PERPETUAL")


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        (b"", True),
        (b"~", True),
        (b"BO", True),
        (b"BOOK", True),
        (b"BOOK/", True),
        (b"BOOK/deri", True),
        (b"BOOK/deribit/", True),
        (b"BOOK/deribit/BTC", True),
        (b"~BOOK/deribit/BTC-PERPETUAL/", True),
        (b"*/deribit/BTC", True),
        (b"BOOK/*/BTC", True),
        (b"*/*/BTC", True),
        (b"TRADES/|BOOK/", True),
        (b"BOOK/|", True),
        (b"TRADES/", False),
        (b"BOOK/deribit/BTC-PERP/", False),
        (b"BOOK/binance/", False),
        (b"BOOK/d/", False),
        (b"*/*/ETH", False),
        (b"TRADES/|STATISTICS/", False),
    ],
)
def test_matches_is_a_prefix_of_kind_exchange_symbol(text: bytes, matches: bool) -> None:
    assert parse_topic(text).matches(*BTC) is matches


def test_matches_symbol_with_slashes_is_one_symbol() -> None:
    topic = parse_topic(b"BOOK/kraken/BTC%2FUSDT/")
    assert topic.matches("BOOK", "kraken", "BTC/USDT")
    assert not topic.matches("BOOK", "kraken", "BTC")
    assert not topic.matches("BOOK", "kraken", "BTC/USDT/X")
    whole = parse_topic(b"BOOK/fx/EUR/")
    assert whole.matches("BOOK", "fx", "EUR")
    assert not whole.matches("BOOK", "fx", "EUR/USD")
    assert parse_topic(b"BOOK/fx/EUR%2f").matches("BOOK", "fx", "EUR/USD")


NAMES = ["", "a", "a/", "a/b", "/", "*", "%", "%2F", "a|b", "~", "\u00e4", "a%", "a/b/"]


def test_matches_a_whole_name_is_that_name_alone() -> None:
    for exchange in NAMES:
        for symbol in NAMES:
            text = f"BOOK/{quote(exchange, safe='')}/{quote(symbol, safe='')}/"
            topic = parse_topic(text.replace("*", "%2A").encode())
            found = [names for names in product(NAMES, NAMES) if topic.matches("BOOK", *names)]
            assert found == [(exchange, symbol)]
            begun = parse_topic(text.replace("*", "%2A").removesuffix("/").encode())
            assert {
                names[1] for names in product(NAMES, NAMES) if begun.matches("BOOK", *names)
            } == {name for name in NAMES if name.startswith(symbol)}


def test_parse_topic_tilde_asks_for_no_last_values() -> None:
    assert parse_topic(b"BOOK/").last_values
    assert not parse_topic(b"~BOOK/").last_values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"book/", "begin with a kind"),
        (b"BOO/", "begin with a kind"),
        (b"BOOK/|rubbish", "begin with a kind"),
        (b"BOOK/\x00", "printable"),
        (b"BOOK/kraken/BTC/USDT/", "with / in a name written as %2F"),
        (b"BOOK/kraken/BTC/USDT", "with / in a name written as %2F"),
        (b"BOOK/kraken/BTC//", "with / in a name written as %2F"),
        (b"BOOK/fx/100%", "% must be written as %25"),
        (b"BOOK/fx/EUR%2", "% must be written as %25"),
        (b"BOOK/fx/%ff", "% must be written as %25"),
        (b"BOOK/\xff", "UTF-8"),
        (b"BOOK/" + 1000 * b"x", "at most 1000"),
    ],
)
def test_parse_topic_what_would_be_silence_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_topic(text)


def test_parse_topic_refuses_with_the_words_that_a_reader_was_given() -> None:
    with pytest.raises(ConfigError, match="was 'BOK/fx/'; did you mean 'BOOK'") as caught:
        parse_topic(b"~BOK/fx/")
    assert "~" not in str(caught.value)
