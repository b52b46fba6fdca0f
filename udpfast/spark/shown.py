"""The columns of each table that a report shows, with readable titles, and values with units.

JSON and the tables themselves have all columns, in ns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from udpfast.page.words import channel, duration, literal, moment

__all__ = [
    "HOUR_NS",
    "TITLES",
    "Inputs",
    "Lines",
    "Shown",
    "input_name",
    "line_name",
    "shown_columns",
]

#: For each feed: the names of its lines, and those of its snapshot channel's lines.
Lines = dict[str, list[list[str]]]

#: For each composite: the names of its inputs.
Inputs = dict[str, list[str]]

#: Roq's stream of snapshots.
SNAPSHOT = 1

#: End of a hop's histogram, less the half slot by which a value may be off.
HOUR_NS = 3_600_000_000_000 * 0.999

#: Numbers from here on have more digits before the point than a double holds: show an exponent.
HUGE = 1e15

#: The heading of each job's section.
TITLES = {
    "losses": "Lost messages",
    "rates": "Messages and losses over time",
    "lines": "What each line missed",
    "races": "Which line is faster",
    "hops": "How long each hop takes",
    "instruments": "What was traded",
    "bars": "How prices moved",
    "spreads": "How wide the spreads were",
    "imbalance": "How much more was bid than asked",
    "depth": "Depth around the mid",
    "book": "Order books",
    "orders": "How orders live and end",
    "leadlag": "Whose price moves first",
    "bus": "What each sender sent",
    "seen": "How far a composite was behind its inputs",
}

#: Tables of books, whose `stale` is a flag; in other tables it is a count.
BOOKS = ("book", "depth")

HOPS = {
    "exchange_to_kernel": "exchange to this host",
    "origin_to_kernel": "publisher to this host",
    "kernel_to_published": "kernel to ring",
}

Form = Callable[[Any], str]


class Shown(Struct, frozen=True):
    """A column: its name in the table, its title, whether it is a number, and its cells."""

    name: str
    title: str
    number: bool
    form: Form


def line_name(lines: Lines, feed: str, stream: int, line: int) -> str:
    """Return a line's name in the feed's settings, or its number if they were not kept."""
    names = lines.get(feed, [[], []])[stream == SNAPSHOT]
    return literal(names[line]) if line < len(names) else f"line {line}"


def input_name(inputs: Inputs, feed: str, session: str) -> str:
    """Return a composite's name for an input, or its number; for a store, the store's name."""
    at = int(session[1:])
    names = inputs.get(feed, [])
    if not at:
        return literal(feed)
    return literal(names[at - 1]) if at <= len(names) else f"input {at}"


def count(value: int) -> str:
    """Return a count with separators."""
    return f"{value:,}"


def share(value: float) -> str:
    """Return a share in per cent."""
    return f"{value:.{3 if value < 0.01 else 2 if value < 0.1 else 1}%}"


def number(value: float) -> str:
    """Return a price or a quantity: eight digits, or all before the point."""
    return f"{value:,.0f}" if 1e7 <= abs(value) < HUGE else f"{value:,.8g}"


def short(value: float) -> str:
    """Return a mean: four digits, or all before the point."""
    return f"{value:,.0f}" if 1000 <= abs(value) < HUGE else f"{value:.4g}"


def when(value: str) -> str:
    """Return a time from JSON (ISO 8601) with a space and without the zone."""
    return literal(value.replace("T", " ").removesuffix("Z"))


def taken(value: float) -> str:
    """Return the latency of a hop; its histogram ends at an hour."""
    return "1 h or more" if value >= HOUR_NS else duration(value)


def doubt(value: bool) -> str:
    """Return a mark for a book in doubt, and "" for a sound one."""
    return "in doubt" if value else ""


def hop(value: str) -> str:
    """Return the two ends of a hop."""
    return HOPS.get(value, literal(value))


_FORMS: dict[str, Form] = {
    **dict.fromkeys(("messages", "lost", "gaps", "longest", "stale", "datagrams"), count),
    **dict.fromkeys(("missing", "wins", "only_copy", "late", "count", "trades", "quotes"), count),
    **dict.fromkeys(("bid_levels", "ask_levels", "level", "lag_ms", "pairs"), count),
    **dict.fromkeys(("bytes", "twice", "taken_back", "incarnation"), count),
    **dict.fromkeys(("orders", "ended"), count),
    **dict.fromkeys(("loss", "win_rate", "cancel_ratio", "fill_ratio", "at_front"), share),
    **dict.fromkeys(("imbalance_mean", "imbalance_min", "imbalance_max"), short),
    **dict.fromkeys(("imbalance_last", "place_mean"), short),
    **dict.fromkeys(("spread_mean", "spread_bps_mean", "correlation"), short),
    **dict.fromkeys(("bid_quantity_mean", "ask_quantity_mean"), short),
    **dict.fromkeys(("feed", "exchange", "symbol", "side", "a", "b", "name", "host"), literal),
    **dict.fromkeys(("hour", "time"), when),
    "stream": channel,
    "hop": hop,
    "stale_since_ns": moment,
}
_WORDS = {*("feed", "exchange", "symbol", "side", "a", "b", "hour", "time"), "stream", "hop"}
_WORDS |= {"session", "name", "host", "stale_since_ns"}

_COLUMNS: dict[str, dict[str, str]] = {
    "losses": {
        "stream": "channel", "hour": "hour (UTC)", "messages": "messages", "lost": "lost",
        "loss": "share", "gaps": "gaps", "longest": "longest gap", "waited_ns_max": "longest wait",
        "stale": "objects stale",
    },
    "rates": {
        "stream": "channel", "time": "time (UTC)", "messages": "messages", "lost": "lost",
        "loss": "share", "gaps": "gaps", "stale": "objects stale",
    },
    "lines": {
        "stream": "channel", "line": "line", "hour": "hour (UTC)", "datagrams": "datagrams",
        "missing": "missed", "loss": "share",
    },
    "races": {
        "stream": "channel", "line": "line", "wins": "first", "win_rate": "share",
        "only_copy": "only copy", "late": "too late", "lead_p50_ns": "lead, p50",
        "lead_p90_ns": "p90", "lead_p99_ns": "p99", "saved_ns": "time saved",
    },
    "hops": {
        "hop": "hop", "count": "count", "p50_ns": "p50", "p90_ns": "p90", "p99_ns": "p99",
        "p99_9_ns": "p99.9", "p99_99_ns": "p99.99", "max_ns": "max",
    },
    "instruments": {
        "exchange": "exchange", "symbol": "symbol", "trades": "trades", "volume": "volume",
        "open": "open", "high": "high", "low": "low", "close": "close", "vwap": "VWAP",
    },
    "bars": {
        "exchange": "exchange", "symbol": "symbol", "time": "time (UTC)", "open": "open",
        "high": "high", "low": "low", "close": "close", "trades": "trades", "volume": "volume",
        "vwap": "VWAP",
    },
    "spreads": {
        "exchange": "exchange", "symbol": "symbol", "time": "time (UTC)", "quotes": "quotes",
        "spread_mean": "mean spread", "spread_bps_mean": "bps",
        "bid_quantity_mean": "mean bid size", "ask_quantity_mean": "mean ask size",
    },
    "imbalance": {
        "exchange": "exchange", "symbol": "symbol", "time": "time (UTC)", "quotes": "quotes",
        "imbalance_mean": "mean", "imbalance_min": "least", "imbalance_max": "most",
        "imbalance_last": "last", "mid_moved": "mid moved",
    },
    "depth": {
        "exchange": "exchange", "symbol": "symbol", "bid_price": "bid", "ask_price": "ask",
        "bid_levels": "bid levels", "ask_levels": "ask levels",
        "bid_within_10_bps": "bids within 10 bps", "ask_within_10_bps": "asks within 10 bps",
        "stale": "in doubt", "stale_since_ns": "since (UTC)",
    },
    "book": {
        "exchange": "exchange", "symbol": "symbol", "side": "side", "level": "level",
        "price": "price", "quantity": "quantity", "cumulative": "cumulative", "stale": "in doubt",
    },
    "orders": {
        "exchange": "exchange", "symbol": "symbol", "orders": "orders", "ended": "ended",
        "cancel_ratio": "cancelled", "fill_ratio": "filled", "lifetime_p50_ns": "lifetime, p50",
        "lifetime_p99_ns": "p99", "place_mean": "mean place", "at_front": "at the front",
    },
    "leadlag": {
        "a": "first", "b": "second", "lag_ms": "lag, ms", "correlation": "correlation",
        "pairs": "pairs",
    },
    "bus": {
        "session": "input", "name": "sender", "host": "host", "incarnation": "outbox",
        "messages": "messages", "bytes": "bytes", "missing": "missing", "twice": "twice",
        "seen_p50_ns": "seen after, p50", "seen_p99_ns": "p99", "seen_p99_9_ns": "p99.9",
        "seen_max_ns": "max",
    },
    "seen": {
        "session": "input", "time": "time (UTC)", "count": "messages", "p50_ns": "p50",
        "p90_ns": "p90", "p99_ns": "p99", "p99_9_ns": "p99.9", "max_ns": "max",
    },
}  # fmt: skip


def shown_columns(job: str, feeds: int) -> list[Shown]:
    """Return the columns shown of a job's table, with the feed's name if there are several."""
    titles = ({"feed": "feed"} if feeds > 1 else {}) | _COLUMNS[job]
    shown = [
        Shown(name, title, name not in _WORDS and name != "line", _form(name))
        for name, title in titles.items()
    ]
    if job not in BOOKS:
        return shown
    mark = Shown("stale", titles["stale"], False, doubt)
    return [mark if one.name == "stale" else one for one in shown]


def _form(name: str) -> Form:
    if "_ns" in name and name not in _FORMS:
        return taken if name.startswith(("p", "max")) else duration
    return _FORMS.get(name, number)
