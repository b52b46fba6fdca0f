"""The colours of lines and bars, legible on white and on black."""

__all__ = ["OWN", "PEERS"]

#: For udpfast's own values, and for those of its peers.
OWN = ("#2f7de1", "#12a594", "#8e63d6", "#d6409f", "#3e9b4f", "#0894b3", "#b8860b", "#5b6ee1")
PEERS = ("#e5793b", "#c9518f", "#a58a2c", "#cf4f4f", "#7a8b99", "#59a14f", "#9c755f", "#b07aa1")
