"""Requests to a venue for what did not arrive: retransmissions and snapshots."""

__all__: list[str] = []
