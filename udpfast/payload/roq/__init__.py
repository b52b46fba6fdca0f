"""Roq: events in FlatBuffers into updates, and back."""

__all__: list[str] = []
