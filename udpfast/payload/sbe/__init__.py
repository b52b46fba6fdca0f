"""Simple Binary Encoding 1.0: a schema's messages to values, numpy and Arrow, and back."""

__all__: list[str] = []
