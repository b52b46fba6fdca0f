"""Numbers as people read them."""

from __future__ import annotations

__all__ = ["channel", "figure", "literal"]


def channel(stream: int) -> str:
    """Return what a stream is called: Roq's two are channels, others have numbers from 2 on."""
    return ("incremental", "snapshot")[stream] if stream < 2 else f"stream {stream}"


def figure(value: float) -> str:
    """Return a number with as many digits as mean something: at least three; millions as M."""
    if abs(value) >= 1e7:
        return f"{value / 1e6:,.1f} M"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:#.3g}"


def literal(text: str) -> str:
    """Return a text from the network in one line that changes nothing around it.

    Control characters, line ends and marks that turn the direction of writing are escaped as Python
    writes them.
    """
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
