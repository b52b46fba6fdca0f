"""`udpfast VERB`: runs the verb's file; errors become one line and an exit code."""

from __future__ import annotations

import difflib
import importlib
import sys

import click

from udpfast.errors import ConfigError, UdpfastError

__all__ = ["main"]

#: Each verb, the one file that has it, and its line in `udpfast --help`.
VERBS = {
    "demo": "the whole feed on loopback, proven: publisher, subscriber, two strategies",
    "check": "a feed's resolved settings with reasons, and what this host lacks",
    "run": "receive a feed and publish it to local strategies",
    "stat": "the counters of a running or dead instance, its readers and its latency",
    "tail": "print the records of a running instance",
    "send": "publish market data over UDP: recorded, simulated or raw load",
    "record": "keep what an instance publishes, and what it received, in a journal",
    "verify": "check a journal record by record, and cut what is not valid",
    "export": "turn a journal into Parquet tables, for Spark and others",
    "replay": "what was kept, once more: through the engine, to a ring, over UDP, to a file",
    "spark": "tables and a report of what was kept, on Spark",
    "bench": "measure udpfast and its peers on this host, compare, report",
}


class Verbs(click.Group):
    """A group whose commands are imported only when they are used: start-up stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs, in the order in which a newcomer meets them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the verb's file and return its command."""
        if cmd_name not in VERBS:
            return None
        command = getattr(importlib.import_module(f"udpfast.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is asked for; of one that is not there say which is like it."""
        if args[0] not in VERBS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], VERBS)
            hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of verbs without importing any."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
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
        click.echo(f"udpfast: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
