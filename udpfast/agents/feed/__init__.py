"""A feed: its loop, the processes beside it, and what replays it."""

__all__: list[str] = []
