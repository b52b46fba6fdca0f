"""`udpfast lab PROGRAM`: programs that try udpfast, from seeds or known data."""

from __future__ import annotations

import click

from udpfast.cli.verbs import Verbs

__all__ = ["PROGRAMS", "lab"]

#: Each program, which is the file of that name, and its line in `udpfast lab --help`.
PROGRAMS = {
    "conformance": "compare what udpfast makes of golden files and venue captures with what it "
    "must make",
    "live": "send venue captures over loopback multicast and check that all of it comes out",
    "simulate": "run the feed under network faults against a publisher whose every state is known",
    "fuzz": "feed in damaged datagrams, payloads and frames; all must be refused safely",
    "object-corners": "exercise objects with everything that the protocol lets a publisher do",
    "identity": "check that every way to read an object gives the same answer",
    "dense-markets": "publish markets of any density through a gateway that meets failures",
    "settings-edges": "test every key of every settings file at its limits",
    "ringcheck": "test the ring between processes at full speed and under kill -9",
    "hostile": "test that hostile readers can harm neither the feed nor its tools",
    "lives": "make every step of an instance's start fail, or kill it there",
    "latejoin": "attach readers to a live feed at any moment",
    "group": "run many feeds of the options tape's shape as one group, and read all of them",
    "relaycheck": "relay venues' books over lossy lines and compare both ends",
    "relaychain": "relay a market between real processes and judge each far book by its position",
    "parity": "measure what parity rebuilds of what a relay's lines lose in bursts",
    "zmq-stall": "stop a ZeroMQ subscriber and check what it misses",
    "bus": "run a whole bus in one process, with faults of hosts, links, disks and clocks",
    "bus-composite": "read two stores in one order on every host, under faults",
    "bus-faults": "run a bus of real daemons: cut links, kill and stop daemons, fill disks",
    "seamcheck": "read journals and their rings as one stream, whatever becomes of either",
    "journalcheck": "test journals under kill -9, damage and wrong clocks",
    "exportcheck": "check that an export has every record once, or reports it missing",
    "export-runs": "repeat and kill exports",
    "streamcheck": "kill a Spark stream while its journal grows",
    "pipelinecheck": "check the whole pipeline, from the socket to the report",
    "pipelinescale": "measure how the report's jobs scale with the size of the export",
    "nightly": "run all of these, one behind the other, with seeds of the day",
    "sbecheck": "test random SBE schemas and messages against a naive encoder",
}


@click.group(cls=Verbs, lines=PROGRAMS, file=f"{__package__}.{{}}:main")
def lab() -> None:
    """Test udpfast itself: with golden files and captures, seeded faults, damage and kills.

    \b
    Examples:
      udpfast lab simulate --row T-L1 --seeds 3
      udpfast lab fuzz wire --count 100000
      udpfast lab conformance DIR
      udpfast lab journalcheck --help

    A failure prints the command that repeats it. Exit codes: 0 all passed, 1 something failed, 2
    wrong usage.
    """
