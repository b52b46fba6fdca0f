"""Topics of the ZeroMQ fan-out: which records a subscription asks for.

    topic        = ["~"] [pattern *("|" pattern)]
    pattern      = what "KIND/exchange/symbol/" begins with; "*" for KIND or exchange: any

"" asks for everything, "BOOK/" for all books, "*/deribit/BTC" for all that Deribit says of symbols
that begin with BTC, "BOOK/deribit/BTC-PERPETUAL/|TRADES/deribit/BTC-PERPETUAL/" for books and
trades of one symbol. With "~" no last values come first. Records of the feed itself (GAP, SESSION,
STALE, RECOVERED, CONNECTION, DISAGREEMENT, RESTART) belong to every topic: a subscriber that does
not see them would believe what is in doubt.
"""

from __future__ import annotations

from typing import NamedTuple

from udpfast.core.layout import Kind
from udpfast.errors import ConfigError
from udpfast.net.envelope import TOPIC_SIZE_MAX

__all__ = ["NAMES_REQUEST", "Topic", "parse_topic"]

#: A subscription that asks for names only: followed by the first id wanted, in decimal.
NAMES_REQUEST = b"@names/"

_KINDS = frozenset(kind.name for kind in Kind)


class Topic(NamedTuple):
    """A subscription, understood.

    Attributes
    ----------
    text : bytes
        As its subscriber sent it.
    last_values : bool
        Whether they are wanted first.
    patterns : tuple of str
        Empty: everything.
    """

    text: bytes
    last_values: bool
    patterns: tuple[str, ...]

    def matches(self, kind: str, exchange: str, symbol: str) -> bool:
        """Return whether records of this kind, exchange and symbol ("": none) belong to it."""
        return not self.patterns or any(
            _matches(pattern, kind, exchange, symbol) for pattern in self.patterns
        )


def parse_topic(text: bytes) -> Topic:
    """Understand a subscription.

    Raises
    ------
    ConfigError
        It is none; the message says what was expected.
    """
    if len(text) > TOPIC_SIZE_MAX:
        raise ConfigError(f"a topic has at most {TOPIC_SIZE_MAX} bytes, was {len(text)}")
    try:
        words = text.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"a topic is UTF-8, was {text!r}") from None
    if not words.isprintable():
        raise ConfigError(f"a topic has printable characters only, was {words!r}")
    patterns = words.removeprefix("~")
    parsed = tuple(patterns.split("|")) if patterns else ()
    for pattern in parsed:
        _check(pattern, words)
    everything = "" in parsed
    return Topic(text, not words.startswith("~"), () if everything else parsed)


def _check(pattern: str, words: str) -> None:
    # A kind that does not exist would be silence for ever.
    kind, slash, _ = pattern.partition("/")
    known = kind == "*" or (
        kind in _KINDS if slash else any(name.startswith(kind) for name in _KINDS)
    )
    if not known:
        raise ConfigError(
            f"a topic's patterns begin with a kind (BOOK, TRADES, ..) or *, was {words!r}"
        )


def _matches(pattern: str, kind: str, exchange: str, symbol: str) -> bool:
    wanted_kind, slash, rest = pattern.partition("/")
    if not slash:
        return wanted_kind == "*" or kind.startswith(wanted_kind)
    if wanted_kind not in ("*", kind):
        return False
    wanted_exchange, slash, rest = rest.partition("/")
    if not slash:
        return wanted_exchange == "*" or exchange.startswith(wanted_exchange)
    return wanted_exchange in ("*", exchange) and f"{symbol}/".startswith(rest)
