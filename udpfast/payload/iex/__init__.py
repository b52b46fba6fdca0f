"""IEX: messages of TOPS, DEEP and DEEP+ to changes, and to columns."""

__all__: list[str] = []
