"""Nasdaq TotalView-ITCH 5.0: orders to changes."""

__all__: list[str] = []
