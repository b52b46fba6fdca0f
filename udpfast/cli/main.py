"""`udpfast VERB`: runs the verb's file; errors become one line and an exit code."""

from __future__ import annotations

import sys

import click

from udpfast.cli.verbs import Verbs
from udpfast.errors import ConfigError, UdpfastError, sentence

__all__ = ["main"]

#: Each verb, the one file that has it, and its line in `udpfast --help`.
VERBS = {
    "demo": "the whole feed on loopback, proven: publisher, subscriber, two strategies",
    "check": "a feed's resolved settings with reasons, and what this host lacks",
    "tune": "set what of this host can be set while it runs, and undo it",
    "run": "receive a feed and publish it to local strategies",
    "stat": "the counters of a running or dead instance, its readers and its latency",
    "metrics": "serve the facts of all feeds to Prometheus",
    "top": "all feeds of this host in the terminal, and one with lines, readers, latency",
    "monitor": "the same as a page for a browser: charts of rates, latency, losses; books",
    "tail": "print the records of a running instance",
    "send": "publish market data over UDP: recorded, simulated or raw load",
    "record": "keep what an instance publishes, and what it received, in a journal",
    "verify": "check a journal record by record, and cut what is not valid",
    "export": "turn a journal into Parquet tables, for Spark and others",
    "replay": "replay a journal or a capture: through the engine, to a ring, over UDP, to a file",
    "bus": "one order of messages, kept, on several hosts",
    "spark": "tables and a report of what was kept, on Spark",
    "lab": "try udpfast: captures of venues, faults from seeds, damage, kills",
    "bench": "measure udpfast and its peers on this host, compare, report",
}


@click.group(
    cls=Verbs,
    lines=VERBS,
    file="udpfast.cli.{0}:{0}",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="udpfast")
def cli() -> None:
    """Low-latency market data over UDP for people who write Python.

    \b
    Example:
      udpfast demo

    Exit codes: 0 fine, 1 found something or failed, 2 wrong usage or settings.
    """


def main() -> None:
    """Run the command line; errors become one line on stderr and the exit code."""
    try:
        cli.main(prog_name="udpfast", standalone_mode=False)
    except click.exceptions.Abort:  # SIGINT where a verb has no quiet end of its own
        click.echo("udpfast: stopped", err=True)
        sys.exit(130)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except ConfigError as error:
        click.echo(f"udpfast: {error}", err=True)
        sys.exit(2)
    except (UdpfastError, OSError) as error:
        click.echo(f"udpfast: {sentence(error)}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
