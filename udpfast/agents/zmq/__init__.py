"""The ZeroMQ fan-out of a feed."""

__all__: list[str] = []
