"""A feed over ZeroMQ."""

__all__: list[str] = []
