"""`udpfast lab PROGRAM`: programs that try udpfast, from seeds or known data."""

from __future__ import annotations

import click

from udpfast.cli.verbs import Verbs

__all__ = ["PROGRAMS", "lab"]

#: Each program, which is the file of that name, and its line in `udpfast lab --help`.
PROGRAMS = {
    "conformance": "golden files and captures of venues: is all in them found?",
    "live": "captures of venues over loopback multicast: what comes is what was sent",
    "simulate": "the feed under rows of network faults, against a publisher that is known",
    "fuzz": "damaged datagrams, payloads and frames: refused, and nothing read beyond them",
    "object-corners": "objects under all that the protocol lets a publisher do",
    "identity": "the same answer about an object on every way to read it",
    "dense-markets": "markets of any density through a hindered gateway",
    "settings-edges": "every key of every settings file at its edges",
    "ringcheck": "the ring between processes at full speed, and under kill -9",
    "hostile": "readers that try what they must not",
    "lives": "an instance that fails or is killed at any call",
    "latejoin": "readers that attach to a live feed at any moment",
    "zmq-stall": "a ZeroMQ subscriber that stands still",
    "bus": "a whole bus in one process: hosts, links, disks, clocks, and all that goes wrong",
    "bus-composite": "two stores and the log of their order, as one stream on every host",
    "bus-faults": "a bus of real daemons: links cut, daemons killed and stopped, disks full",
    "journalcheck": "journals under kill -9, damage and wrong clocks",
    "exportcheck": "every record of a journal in its export once, or said to be missing",
    "export-runs": "exports that are run again and killed",
    "streamcheck": "a Spark stream that is killed while its journal grows",
    "pipelinecheck": "from the socket to the report, against what was sent",
    "pipelinescale": "the report's jobs over an export many times",
    "sbecheck": "random SBE schemas and messages, against a naive encoder",
    "strategy": "follow an instance to its end and write down its books",
}


@click.group(cls=Verbs, lines=PROGRAMS, file="udpfast.lab.{}:main")
def lab() -> None:
    """Try udpfast: with golden files and captures, faults from seeds, damage, kills.

    \b
    Examples:
      udpfast lab simulate --row T-L1 --seeds 3
      udpfast lab fuzz wire --count 100000
      udpfast lab conformance DIR
      udpfast lab journalcheck --help

    A failure prints the command that repeats it. Exit codes: 0 all held, 1 something did not, 2
    wrong usage.
    """
