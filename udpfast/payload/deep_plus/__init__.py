"""IEX DEEP+: orders to changes."""

__all__: list[str] = []
