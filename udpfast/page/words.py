"""Numbers as people read them."""

from __future__ import annotations

import datetime

__all__ = [
    "NO_STREAM",
    "channel",
    "count_text",
    "counted",
    "duration",
    "figure",
    "literal",
    "moment",
    "shortened",
]

#: For records that are of no stream of a feed.
NO_STREAM = 65_535


def channel(stream: int) -> str:
    """Return a stream's name: Roq's two are channels, others have numbers from 2 on."""
    if stream == NO_STREAM:
        return "all streams"
    return ("incremental", "snapshot")[stream] if stream < 2 else f"stream {stream}"


def count_text(count: int | None) -> str:
    """Return a count, or a dash if it is not known."""
    return "-" if count is None else f"{count:,}"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, given in the singular."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def figure(value: float) -> str:
    """Return a number with at least three significant digits; tens of millions in M."""
    if abs(value) >= 1e7:
        return f"{value / 1e6:,.1f} M"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:#.3g}"


def literal(text: str) -> str:
    """Return a text from the network as one line that cannot affect the text around it.

    Control characters, line ends and marks that turn the direction of writing are escaped as Python
    writes them.
    """
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def shortened(text: str, letters: int) -> str:
    """Return a text of at most so many letters: of a longer one, both ends."""
    if len(text) <= letters:
        return text
    end = letters // 2
    return f"{text[: letters - end - 1]}…{text[-end:]}"


def moment(unix_ns: int) -> str:
    """Return a time with its second, UTC."""
    when = datetime.datetime.fromtimestamp(unix_ns // 1_000_000_000, datetime.UTC)
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"


def duration(value: float) -> str:
    """Return a time in ns with its unit: three digits, or all before the point."""
    size, unit = next((size, unit) for limit, size, unit in _UNITS if abs(value) < limit)
    scaled = value / size
    return f"{scaled:,.0f} {unit}" if abs(scaled) >= 999.5 else f"{scaled:.3g} {unit}"


#: Upper limit in ns, size of the unit in ns, and the unit.
_UNITS = (
    (1e3, 1.0, "ns"),
    (1e6, 1e3, "us"),
    (1e9, 1e6, "ms"),
    (120e9, 1e9, "s"),
    (7200e9, 60e9, "min"),
    (float("inf"), 3600e9, "h"),
)
