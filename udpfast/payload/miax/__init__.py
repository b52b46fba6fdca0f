"""MIAX MACH, top of market: quotes and trades to changes."""

__all__: list[str] = []
