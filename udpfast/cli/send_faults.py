"""What `udpfast send` does to datagrams on purpose, repeatable by its seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from udpfast.net.bad_network import BadNetwork, LineFaults

__all__ = ["Faults", "wants_faults"]

#: A datagram chosen by --reorder leaves so much later, behind those that were due meanwhile.
REORDER_DELAY_NS = 300_000


def wants_faults(options: dict[str, Any]) -> bool:
    """Return whether any was asked for."""
    return any(options[name] for name in ("loss", "duplicate", "reorder", "skew_us"))


def roq_parts(datagram: bytes) -> tuple[bytes, bytes]:
    """Return what tells a fragment from others, and what its message."""
    message = datagram[6:12]  # session_id and seqno
    return datagram[1:2] + message, message


class Faults:
    """A bad network, with one state per line, and datagrams put out of order.

    Parameters
    ----------
    options : dict
        Those of the verb.
    parts : callable
        What tells a datagram from others, and what the message that it is a part of.
    """

    def __init__(
        self,
        options: dict[str, Any],
        parts: Callable[[bytes], tuple[bytes, bytes]] = roq_parts,
    ) -> None:
        def make(channel: int, line: int) -> BadNetwork:
            return BadNetwork(
                LineFaults(
                    loss=options["loss"],
                    burst_mean=options["burst"],
                    duplicate=options["duplicate"],
                    delay_ns=int(line * options["skew_us"] * 1000),
                ),
                seed=self._seed,
            )

        self._make = make
        self._parts = parts
        self._seed: int = options["seed"]
        self._reorder: float = options["reorder"]
        self._networks: dict[tuple[int, int], tuple[BadNetwork, random.Random]] = {}
        self._line_count = (len(options["incremental"]), len(options["snapshot"]))
        # Fragments that some line lost, and the messages that so lost one on every line.
        self._losses: tuple[Counter[bytes], Counter[bytes]] = (Counter(), Counter())
        self._swallowed: tuple[set[bytes], set[bytes]] = (set(), set())

    def pass_through(
        self, channel: int, line: int, datagrams: list[bytes], now_ns: int
    ) -> Sequence[tuple[int, bytes]]:
        """Return what arrives, and when."""
        key = (channel, line)
        if key not in self._networks:
            self._networks[key] = (
                self._make(channel, line),
                random.Random(f"{self._seed} {channel} {line}"),
            )
        network, chance = self._networks[key]
        lost_before = network.lost
        arrivals: Sequence[tuple[int, bytes]] = network.pass_through(
            channel, line, datagrams, now_ns
        )
        if network.lost != lost_before:
            self._note_losses(channel, datagrams, {datagram for _, datagram in arrivals})
        if not self._reorder:
            return arrivals
        return [
            (due_ns + REORDER_DELAY_NS if chance.random() < self._reorder else due_ns, datagram)
            for due_ns, datagram in arrivals
        ]

    def _note_losses(self, channel: int, datagrams: list[bytes], arrived: set[bytes]) -> None:
        for datagram in datagrams:
            if datagram not in arrived:
                fragment, message = self._parts(datagram)
                self._losses[channel][fragment] += 1
                if self._losses[channel][fragment] == self._line_count[channel]:
                    self._swallowed[channel].add(message)

    def lost_on_all_lines(self, channel: int) -> int:
        """Return how many messages no receiver can have: some fragment was lost on every line."""
        return len(self._swallowed[channel])

    def lost(self, channel: int, line: int) -> int:
        """Return how many datagrams of a line were lost on purpose."""
        found = self._networks.get((channel, line))
        return 0 if found is None else found[0].lost
