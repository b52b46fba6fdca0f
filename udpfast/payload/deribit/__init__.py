"""Deribit multicast: levels by price, trades, snapshots and definitions to changes."""

__all__: list[str] = []
