"""Cboe multicast PITCH 2.x: orders to changes."""

__all__: list[str] = []
