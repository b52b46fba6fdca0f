"""`udpfast VERB`: runs the verb's file; errors become one line and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress

import click

from udpfast.cli.output import flush_output, is_of_output, say_unwritten
from udpfast.cli.verbs import Verbs
from udpfast.core.fault import explain_bus_errors
from udpfast.core.log import in_journal, is_log, say_error
from udpfast.core.stop import Interrupt, ignore_stop_signals
from udpfast.errors import ConfigError, UdpfastError, sentence

__all__ = ["cli", "main"]

#: Each verb, the one file that has it, and its line in `udpfast --help`.
VERBS = {
    "demo": "run a whole feed for half a minute and prove that nothing is lost unexplained",
    "check": "show a feed's settings with reasons, and what this host lacks for it",
    "tune": "tune this host for low latency, and undo it",
    "venues": "make a feed's settings from what a venue publishes of its lines",
    "run": "receive a feed and publish it to local strategies",
    "stat": "show the counters, readers and latency of a running or dead instance",
    "metrics": "serve counters and latency of all feeds to Prometheus",
    "top": "watch all feeds of this host in the terminal, or one in detail",
    "monitor": "watch them in a browser: charts of rates, latency and losses, and books",
    "tail": "print the records of a running instance",
    "send": "publish market data over UDP: recorded, simulated, a capture or raw load",
    "relay": "publish a feed's books to other hosts, over several lines",
    "record": "keep what an instance publishes and receives in a journal",
    "verify": "check every record of a journal, and repair its end",
    "export": "turn a journal into Parquet tables for Spark, pandas and others",
    "replay": "replay a journal or a capture through the engine, to a ring, over UDP or to a file",
    "wire": "measure the lines between two hosts: delays, loss, order, and which is first",
    "bus": "run a message bus: one durable order of messages on several hosts",
    "spark": "analyse journals and exports with Spark, and draw a report",
    "lab": "test udpfast itself: with captures, faults, damage and kills",
    "bench": "measure udpfast and its peers on this host, and compare results",
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

    Exit codes: 0 fine, 1 found something or failed, 2 wrong usage or settings, 3 another process
    does that (run, relay, bus run) or the promotion goes on (bus promote), 4 SIGUSR1 stopped it
    (run), 130 and 143 SIGINT and SIGTERM ended it before it was done, 141 the output was closed.
    """


def main(command: click.Command = cli) -> None:
    """Run the command line; errors become one line on stderr and the exit code."""
    # numpy's linear algebra, which no verb needs, would start a thread for each core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    Interrupt().install()
    explain_bus_errors(in_journal(sys.stderr))
    code: int | str | None = None
    try:
        _run(command)
    except SystemExit as ended:
        code = ended.code
    finally:
        ignore_stop_signals()
        unwritten = flush_output()
    if code is not None or unwritten:
        sys.exit(code or unwritten)


def _run(command: click.Command) -> None:
    try:
        command.main(prog_name="udpfast", standalone_mode=False)
    except click.exceptions.Abort:  # SIGINT where a verb has no quiet end of its own
        with suppress(OSError):
            click.echo("udpfast: stopped", err=True)
        sys.exit(130)
    except click.ClickException as error:
        if is_log():
            say_error(f"udpfast: {error.format_message()}")
        else:
            with suppress(OSError):
                error.show()
        sys.exit(error.exit_code)
    except ConfigError as error:
        _say_last(f"udpfast: {error}")
        sys.exit(2)
    except (UdpfastError, OSError) as error:
        if isinstance(error, OSError) and is_of_output(error):
            say_unwritten(error)
        else:
            _say_last(f"udpfast: {sentence(error)}")
        sys.exit(1)
    except Exception:
        if not is_log():
            raise
        say_error(f"udpfast: {traceback.format_exc()}")
        sys.exit(1)


def _say_last(text: str) -> None:
    if is_log():
        say_error(text)
    else:
        with suppress(OSError):  # the exit code says it, too
            click.echo(text, err=True)


if __name__ == "__main__":
    main()
