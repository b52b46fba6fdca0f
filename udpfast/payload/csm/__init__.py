"""Cboe Streaming Markets (CSM), level 2: levels by place and refreshes to changes."""

__all__: list[str] = []
