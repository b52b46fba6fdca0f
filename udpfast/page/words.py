"""Numbers as people read them."""

from __future__ import annotations

__all__ = ["figure"]


def figure(value: float) -> str:
    """Return a number with as many digits as mean something: at least three; millions as M."""
    if abs(value) >= 1e7:
        return f"{value / 1e6:,.1f} M"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:#.3g}"
