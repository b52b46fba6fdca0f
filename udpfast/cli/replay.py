"""`udpfast replay`: replay a journal or a capture: to the engine, a ring, UDP or a file."""

from __future__ import annotations

import json
import re
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from udpfast.agents.feed.replay_lines import Flow, flow_at
from udpfast.agents.feed.replay_source import Place
from udpfast.archive.bus_files import stored_journal
from udpfast.archive.feed_settings import has_datagrams_only
from udpfast.archive.replay_note import Replay
from udpfast.cli.options import (
    FiniteRange,
    GroupedCommand,
    IntRange,
    OutputFile,
    Port,
    write_output,
)
from udpfast.cli.replay_datagrams import (
    CAPTURE,
    Description,
    Destination,
    replay_datagrams,
)
from udpfast.cli.replay_progress import Progress
from udpfast.cli.replay_records import replay_records
from udpfast.cli.replay_target import Pacer
from udpfast.cli.replay_text import print_result
from udpfast.config import PAYLOADS, load_feed
from udpfast.core.endpoint import parse_endpoint
from udpfast.core.moment import unix_ns
from udpfast.core.stop import raise_once
from udpfast.errors import ConfigError
from udpfast.log.journal_span import check_part, journal_span
from udpfast.log.journal_state import is_raw
from udpfast.wire.framing import FRAMINGS

__all__ = ["replay"]

#: The options, by the headings of the help.
GROUPS = {
    "What to replay": ("raw", "start", "end", "from_position", "until_position"),
    "Where to": ("target", "speed", "host", "interface"),
    "How to read it": (
        "config_path",
        "framing",
        "payload",
        "incremental_lines",
        "snapshot_lines",
        "batch",
    ),
    "What is said": ("expect", "books_path", "as_json"),
}


class LineOf(click.ParamType):  # type: ignore[type-arg]  # click before 8.2 has no argument
    """Where a line's datagrams were sent to: a port, or `IP:PORT`."""

    name = "[IP:]PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Flow:
        """Take the port alone where no address is given: captures of other hosts have others."""
        if isinstance(value, Flow):
            return value
        host, _, port = str(value).rpartition(":")
        if not host:
            return Flow(b"", Port().convert(port, param, ctx))
        try:
            return flow_at(*parse_endpoint(value))
        except (ConfigError, ValueError):
            self.fail(f"expected a port, or IP:PORT, found {value!r}", param, ctx)


@click.command(
    cls=GroupedCommand,
    groups=GROUPS,
    epilog="""\b
Examples:
  udpfast replay capture.pcap.gz
  udpfast replay data_feeds_20180127_IEXTP1_DEEP1.0.pcap.gz --payload iex_deep --to journal:iex
  udpfast replay tutorial --raw --from 2026-08-21T09:30Z --until 2026-08-21T09:31Z --json
  udpfast replay tutorial --speed 1 --to ring:rehearsal
  udpfast replay store:orders --json
  udpfast replay tutorial --raw --speed 10 --to udp --host 127.0.0.1
  udpfast replay tutorial --raw --to incident.pcapng
""",
)
@click.argument("source", metavar="NAME|store:NAME|DIRECTORY|CAPTURE")
@click.option("--raw", is_flag=True, help="Replay the raw capture of journal NAME: its datagrams.")
@click.option(
    "--to",
    "target",
    default="",
    metavar="TARGET",
    help="Where to replay: ring:NAME, a ring that readers attach to; journal:NAME, a new "
    "journal of all that comes out; udp, the addresses of the lines; engine, a second feed "
    "that reads the messages in a journal's records; or a .pcap or .pcapng file, also with "
    ".gz. By default only the result is reported.",
)
@click.option(
    "--speed",
    type=FiniteRange(min=0),
    default=0.0,
    show_default=True,
    help="Multiple of the recorded pace; 0: as fast as possible.",
)
@click.option(
    "--from", "start", metavar="TIME", help="First moment: ISO 8601 with its zone, or UNIX ns."
)
@click.option("--until", "end", metavar="TIME", help="First moment to leave out.")
@click.option(
    "--from-position",
    type=IntRange(min=0),
    help="First record: its position in the journal, or the number of a frame in the file.",
)
@click.option(
    "--until-position", type=IntRange(min=0), help="First position or frame to leave out."
)
@click.option(
    "--batch",
    type=IntRange(1, 64),
    default=64,
    show_default=True,
    help="Datagrams that the engine takes at once; does not change the result.",
)
@click.option(
    "--expect", metavar="sha256:HEX", help="Exit with code 1 unless the records have this SHA-256."
)
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    help="The feed's TOML file. A raw capture carries the settings it was made with. The lines "
    "of a capture file are recognised by their addresses unless ports are given.",
)
@click.option(
    "--framing",
    type=click.Choice(FRAMINGS),
    help="Framing of a capture file's datagrams; by default from --config, or detected.",
)
@click.option(
    "--payload",
    type=click.Choice(["auto", *PAYLOADS]),
    help="Whose messages of a capture file become updates; by default from --config, or auto.",
)
@click.option(
    "--incremental",
    "incremental_lines",
    multiple=True,
    type=LineOf(),
    help="UDP port of an incremental line in a capture (or of a line of its streams), with its "
    "address if several have that port; repeat for each.",
)
@click.option(
    "--snapshot",
    "snapshot_lines",
    multiple=True,
    type=LineOf(),
    help="The same for a snapshot line in a capture.",
)
@click.option(
    "--host", default="", help="With --to udp: send here instead of to the lines' own addresses."
)
@click.option(
    "--interface", default="", help="With --to udp and multicast: the interface's name or address."
)
@click.option(
    "--books",
    "books_path",
    type=OutputFile(),
    help="Write the final books to this file as JSON.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on the last line.")
def replay(source: str, as_json: bool, books_path: Path | None, **options: Any) -> None:
    """Replay the records or the raw capture of a journal or store, or a pcap, pcapng or .gz file.

    Datagrams pass through the same engine as in a feed. Its clock is the one that the feed's loop
    recorded; for a file from another program, the time stamps of the capture. The same datagrams
    always make the same records. Their SHA-256 shows it: it leaves out position, index, session and
    checksum, which depend on the log, and RESTART.
    Without --config or ports, the framing of a file is detected from its content, its lines from
    the destinations, and Roq's snapshot channel from its snapshot bit. Progress goes to stderr,
    except with --json. Exit code 1 if the counters do not add up, something was missed, or --expect
    was not met.
    """
    raise_once()
    expected = _expected(options.pop("expect"))
    start = _place(options, "start", "from_position", "--from")
    end = _place(options, "end", "until_position", "--until")
    path, is_journal = _found(source, options["raw"])
    config_path = options["config_path"]
    target = options["target"]
    if is_journal:
        _check_journal(options)
        check_part(path, start, end)
    with closing(_progress(path, options["speed"], start, end, quiet=as_json)) as progress:
        if is_journal and not is_raw(path) and target[:5] in ("", "ring:"):
            pacer = Pacer(options["speed"], progress)
            result = replay_records(path, target, pacer, start, end, progress)
            if not result["records"] and (start or end):
                raise ConfigError(
                    f"{path} covers {journal_span(path) or 'nothing'}: "
                    "the part asked for has no records"
                )
        else:
            described = Description(
                None if config_path is None else load_feed(config_path),
                *(options[name] for name in Description._fields[1:]),
            )
            destination = Destination(*(options[name] for name in Destination._fields))
            result = replay_datagrams(path, described, destination, start, end, progress)
    if expected:
        result["as_expected"] = result.get("sha256") == expected
    if as_json:
        click.echo(json.dumps(result, default=to_builtins))
    else:
        print_result(result)
    if books_path is not None:
        write_output(books_path, json.dumps(result.get("books", {})))
    adds_up = result["ledger"].adds_up if "ledger" in result else True
    fine = adds_up and not result.get("missed")
    sys.exit(0 if fine and result.get("as_expected", True) else 1)


def _found(source: str, raw: bool) -> tuple[Path, bool]:
    # What is replayed, and whether it is a journal.
    path = Path(source)
    if path.is_file():
        if raw:
            raise click.UsageError(
                "--raw works only with a journal: a capture file has nothing but datagrams"
            )
        return path, False
    if CAPTURE.fullmatch(source):
        raise click.UsageError(f"{source}: no such file")
    journal = stored_journal(source)
    if raw:
        if not (journal / "raw").is_dir():
            raise ConfigError(
                f"{journal} has no raw capture: its feed kept records only; "
                'record.what = "both" keeps the datagrams, too, from the next run on'
            )
        journal = journal / "raw"
    elif has_datagrams_only(journal):
        raise ConfigError(
            f"{journal} has no records: its feed keeps datagrams only: replay --raw "
            '(record.what = "both" keeps records, too)'
        )
    return journal, True


def _progress(
    path: Path, speed: float, start: Place | None, end: Place | None, *, quiet: bool
) -> Progress:
    # A file's span is known only to who has read it all.
    span = journal_span(path) if path.is_dir() else None
    first_ns, last_ns = (0, 0) if span is None else (span.first_ns, span.last_ns)
    if span is not None:
        first_ns = max(first_ns, start[1]) if start and start[0] == "time" else first_ns
        last_ns = min(last_ns, end[1]) if end and end[0] == "time" else last_ns
    replay = Replay(str(path), "", 0, False, speed, first_ns, last_ns)
    return Progress(replay, quiet=quiet)


def _check_journal(options: dict[str, Any]) -> None:
    # A journal knows its lines and its framing: other ones would be dropped in silence.
    named = {
        "--incremental": options["incremental_lines"],
        "--snapshot": options["snapshot_lines"],
        "--framing": options["framing"],
        "--payload": options["payload"],
    }
    for name, given in named.items():
        if given:
            raise click.UsageError(f"{name} needs a capture file: a journal already has it")


def _expected(text: str | None) -> str:
    if text is None:
        return ""
    match = re.fullmatch(r"sha256:([0-9a-fA-F]{64})", text)
    if not match:
        raise click.UsageError(f"--expect must be sha256: and 64 hex digits, was {text!r}")
    return match[1].lower()


def _place(options: dict[str, Any], time: str, position: str, name: str) -> Place | None:
    when, where = options.pop(time), options.pop(position)
    if when is not None and where is not None:
        raise click.UsageError(f"choose one of {name} and {name}-position")
    if when is not None:
        return "time", unix_ns(when, name)
    return None if where is None else ("position", where)
