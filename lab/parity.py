"""Measure what parity rebuilds of what lines lose in bursts.

    udpfast lab parity

Datagrams of a relay leave by one or two lines that lose 1 % each by itself, in bursts of 1, 3 or 10
on average, without parity and with one for 8 or 16. What is still missing behind arbitration and
repair is counted, and what was rebuilt is compared with what left.
"""

from __future__ import annotations

import random
import struct
from typing import Any

import click

from udpfast.feed.repair import ParityReceiver, ParitySender
from udpfast.net.bad_network import BadNetwork, LineFaults

__all__ = ["main", "measure"]

DEPTH = 8
LOSS = 0.01
SESSION = 7
BATCH = 64
#: The other line is behind by so many datagrams.
SKEW = 200


def datagram(number: int, rng: random.Random) -> bytes:
    """Return a datagram as a relay sends it: mostly a book's update, sometimes a full fragment."""
    size = 512 if rng.random() < 0.1 else rng.randrange(60, 300)
    return struct.pack("<BBBBHHII", 2, 0, 0, 1, 1, SESSION, number, 0) + rng.randbytes(size)


def line(
    datagrams: list[bytes], members: int, depth: int, burst: float, seed: int
) -> list[tuple[int, bytes]]:
    """Return what arrives by a line, by the datagrams that had left before it."""
    network = BadNetwork(LineFaults(loss=LOSS, burst_mean=burst), seed)
    sender = ParitySender(members, depth) if members else None
    leaving: list[tuple[int, bytes]] = []
    for at, each in enumerate(datagrams):
        leaving.append((at, each))
        parity = None if sender is None else sender.add(each)
        if parity is not None:
            leaving.append((at, parity))
    if sender is not None:
        leaving += [(len(datagrams), each) for each in sender.rest()]
    arrived = []
    for first in range(0, len(leaving), BATCH):
        batch = [each for _, each in leaving[first : first + BATCH]]
        times = {id(each): at for at, each in leaving[first : first + BATCH]}
        for _, each in network.pass_through(0, 0, batch, 0):
            arrived.append((times[id(each)], each))
    return arrived


def measure(
    count: int, members: int, burst: float, lines: int, seed: int, depth: int = DEPTH
) -> dict[str, Any]:
    """Send so many datagrams and return what became of them.

    Returns
    -------
    dict
        `missing`: datagrams that nobody brought and nothing rebuilt; `rebuilt`; `wrong`: rebuilt
        ones that never left; `refused`; `added`: parity datagrams as a part of the others.
    """
    rng = random.Random(f"{seed} datagrams")
    datagrams = [datagram(number, rng) for number in range(count)]
    arriving = []
    for at in range(lines):
        arrived = line(datagrams, members, depth, burst, 10 * seed + at)
        arriving += [(when + at * SKEW, each) for when, each in arrived]
    arriving.sort(key=lambda each: each[0])
    there = set(datagrams)
    have: set[bytes] = set()
    receiver = ParityReceiver()
    rebuilt = wrong = parities = 0
    for _, each in arriving:
        parities += each not in there
        have.add(each)
        for made in receiver.take(each):
            rebuilt += 1
            wrong += made not in there
            have.add(made)
    return {
        "missing": len(there - have),
        "rebuilt": rebuilt,
        "wrong": wrong,
        "refused": receiver.refused,
        "added": parities / lines / count,
    }


@click.command()
@click.option("--count", default=200_000, help="Datagrams of each measurement.")
@click.option("--depth", default=DEPTH, help="Setting parity_depth of the lines.")
@click.option("--seed", default=1, help="Decides what is lost.")
def main(count: int, depth: int, seed: int) -> None:
    """Measure what parity rebuilds of what lines lose in bursts.

    \b
        udpfast lab parity --count 20000
    """
    click.echo(f"{count:,} datagrams, {100 * LOSS:g} % lost on each line, depth {depth}; missing:")
    head = "".join(f"{f'bursts of {burst}':>16}" for burst in (1, 3, 10))
    click.echo(f"{'lines':<8}{'parity':<12}{head}")
    failed = False
    for lines in (1, 2):
        for members in (0, 16, 8):
            cells = ""
            for burst in (1, 3, 10):
                found = measure(count, members, 0 if burst == 1 else burst, lines, seed, depth)
                failed |= found["wrong"] > 0 or found["refused"] > 0
                cells += f"{100 * found['missing'] / count:>14.4f} %"
            name = f"1 in {members}" if members else "none"
            click.echo(f"{lines:<8}{name:<12}{cells}")
    if failed:
        raise click.ClickException("what was rebuilt is not what had left")
