"""Topics of the ZeroMQ fan-out: which records a subscription selects.

    topic        = ["~"] [pattern *("|" pattern)]
    pattern      = a prefix of "KIND/exchange/symbol/"; "*" matches any KIND or exchange

In names, `/`, `|` and `%` are written as %2F, %7C and %25, as in a URL: "BOOK/fx/EUR/" selects only
the symbol EUR, "BOOK/fx/EUR%2FUSD/" selects EUR/USD. "" selects everything, "BOOK/" all books,
"*/deribit/BTC" all records of Deribit's symbols that begin with BTC, and
"BOOK/deribit/BTC-PERPETUAL/|TRADES/deribit/BTC-PERPETUAL/" books and trades of one symbol. With "~"
no last values are sent first. Records of the feed itself (GAP, SESSION, STALE, RECOVERED,
CONNECTION, DISAGREEMENT, RESTART) belong to every topic: without them a subscriber would trust data
that is in doubt.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

from udpfast.core.layout import Kind
from udpfast.errors import ConfigError, did_you_mean
from udpfast.net.envelope import TOPIC_SIZE_MAX

__all__ = ["NAMES_REQUEST", "Pattern", "Topic", "parse_topic"]

#: Prefix of a subscription that requests names only; the first wanted id follows in decimal.
NAMES_REQUEST = b"@names/"

_NO_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")
_KINDS = frozenset(kind.name for kind in Kind)


class Part(NamedTuple):
    """The kind, exchange or symbol of a pattern: a whole name, or a prefix."""

    text: str
    whole: bool

    def matches(self, name: str) -> bool:
        """Return whether a name equals it (`whole`), or begins with it."""
        return name == self.text if self.whole else name.startswith(self.text)


#: The part of a pattern that any kind, exchange or symbol matches.
ANY = Part("", whole=False)


class Pattern(NamedTuple):
    """One pattern of a topic."""

    kind: Part
    exchange: Part
    symbol: Part


class Topic(NamedTuple):
    """A parsed subscription.

    Attributes
    ----------
    text : bytes
        The subscription as it was sent.
    last_values : bool
        Whether to send last values first.
    patterns : tuple of Pattern
        Records that match any pattern belong to the topic; empty: all records do.
    """

    text: bytes
    last_values: bool
    patterns: tuple[Pattern, ...]

    def matches(self, kind: str, exchange: str, symbol: str) -> bool:
        """Return whether records of this kind, exchange and symbol ("": none) belong to it."""
        return not self.patterns or any(
            pattern.kind.matches(kind)
            and pattern.exchange.matches(exchange)
            and pattern.symbol.matches(symbol)
            for pattern in self.patterns
        )


def parse_topic(text: bytes) -> Topic:
    """Parse a subscription.

    Raises
    ------
    ConfigError
        It is invalid; the message says what was expected.
    """
    if len(text) > TOPIC_SIZE_MAX:
        raise ConfigError(f"a topic must have at most {TOPIC_SIZE_MAX} bytes, has {len(text)}")
    try:
        words = text.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"a topic must be UTF-8, was {text!r}") from None
    if not words.isprintable():
        raise ConfigError(f"a topic must have only printable characters, was {words!r}")
    patterns = words.removeprefix("~")
    texts = patterns.split("|")
    everything = "" in texts
    parsed = () if everything else tuple(_pattern(text, patterns) for text in texts)
    return Topic(text, not words.startswith("~"), parsed)


def _pattern(text: str, words: str) -> Pattern:
    kind, *names = text.split("/")
    # Refuse unknown kinds and a fourth part: they would silently match nothing.
    if kind != "*" and not (
        kind in _KINDS if names else any(name.startswith(kind) for name in _KINDS)
    ):
        raise ConfigError(
            "each pattern of a topic must begin with a kind (BOOK, TRADES, ...) or *, was "
            f"{words!r}{did_you_mean(kind, _KINDS)}"
        )
    if len(names) > 3 or names[2:] not in ([], [""]):
        raise ConfigError(
            "each pattern of a topic must be KIND/exchange/symbol/, with / in a name written as "
            f"%2F, was {words!r}"
        )
    parts = [ANY if kind == "*" else Part(kind, whole=bool(names))]
    for index, name in enumerate(names[:2]):
        whole = index + 1 < len(names)
        any_exchange = index == 0 and name == "*"
        parts.append(ANY if any_exchange else Part(_unescaped(name, words), whole))
    return Pattern(*parts, *[ANY] * (3 - len(parts)))


def _unescaped(name: str, words: str) -> str:
    try:
        if _NO_ESCAPE.search(name):
            raise ValueError
        return unquote(name, errors="strict")
    except ValueError:
        raise ConfigError(
            "in the names of a topic, % must be written as %25, / as %2F and | as %7C, was "
            f"{words!r}"
        ) from None
