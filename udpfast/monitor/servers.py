"""What a feed's agents count of the servers that they ask, and which of these do not answer."""

from __future__ import annotations

from pathlib import Path

from udpfast.errors import UdpfastError
from udpfast.shm.answers import TALLIES, read_tallies

__all__ = ["describe_servers", "is_served", "read_servers"]

_SILENT = {
    "retransmission": "the retransmission server does not answer: what no line brings is a gap",
    "snapshot_server": "the snapshot server brings no snapshot: books in doubt stay so",
}


def is_served(scope: str) -> bool:
    """Whether a line brings only what a server is asked for: it owes nothing."""
    return scope.partition(".")[2].startswith("@")


def read_servers(directory: Path) -> dict[str, dict[str, int]]:
    """Return the tallies of an instance's agents that ask servers, by the table of their settings.

    They are those of `shm.answers.TALLIES`; an instance without such agents has none.
    """
    found = {}
    for name in TALLIES:
        try:
            tallies = read_tallies(directory, name)
        except (OSError, UdpfastError):  # it was removed just now, or is of another version
            continue
        if tallies:
            found[name] = tallies
    return found


def describe_servers(servers: dict[str, dict[str, int]]) -> list[str]:
    """Return a sentence for each server that does not help."""
    return [_SILENT[name] for name, tallies in servers.items() if tallies["silent"]]
