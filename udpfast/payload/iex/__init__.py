"""IEX: messages of TOPS and DEEP into columns."""

__all__: list[str] = []
