"""Numbers and tables for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from udpfast.page.words import literal

__all__ = ["plain", "section", "short", "size", "soon", "tail"]

_UNITS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_TIMES = ((86_400, "d"), (3600, "h"), (60, "min"))


def short(count: float, width: int = 9) -> str:
    """Return a count in few characters: 1,234, then 12.3k, 1.23M."""
    text = f"{count:,.0f}"
    if len(text) <= width:
        return text
    for unit, letter in _UNITS:
        if abs(count) >= unit:
            return f"{count / unit:#.3g}".rstrip(".") + letter
    return text


def size(count_bytes: float) -> str:
    """Return bytes with a unit, in at most 7 characters: 999 B, 12.3 kB, 1.23 GB."""
    for unit, letter in _UNITS:
        if abs(count_bytes) >= 0.9995 * unit:
            return f"{count_bytes / unit:#.3g}".rstrip(".") + f" {letter}B"
    return f"{count_bytes:,.0f} B"


def soon(seconds: float | None) -> str:
    """Return in what time something comes, in at most 8 characters; None: not at all."""
    if seconds is None:
        return "-"
    if seconds > 365 * 86_400:
        return "> 1 y"
    for unit, name in _TIMES:
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.0f} s"


def tail(path: str, width: int) -> str:
    """Return the end of a path, which tells it from others."""
    return path if len(path) <= width else f"..{path[2 - width :]}"


def section(title: str, rows: Sequence[str]) -> Iterator[str]:
    """Yield a table below its title; without rows it says none."""
    yield ""
    yield title
    yield from rows
    if not rows:
        yield "none"


def plain(lines: Iterator[str]) -> str:
    """Return lines as a text that changes nothing around it, whatever names are in them.

    Readers, senders and exchanges choose their names: no escape sequence of theirs gets into a
    terminal.
    """
    return "\n".join(map(literal, lines))
