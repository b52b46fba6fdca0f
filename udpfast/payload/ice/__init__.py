"""ICE iMpact: orders and trades to changes."""

__all__: list[str] = []
