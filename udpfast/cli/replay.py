"""`udpfast replay`: replay a journal or a capture: to the engine, a ring, UDP or a file."""

from __future__ import annotations

import json
import re
import sys
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import click
from msgspec import to_builtins
from msgspec.structs import replace

from udpfast.agents.feed.replay_lines import (
    Flow,
    config_of,
    flow_at,
    flows_of,
    guess_channels,
    guess_lines,
    recognise_capture,
    wire_of,
)
from udpfast.agents.feed.replay_source import (
    CaptureSource,
    ClockSteps,
    MessageSource,
    Place,
    RawSource,
)
from udpfast.archive.bus_files import stored_journal
from udpfast.archive.feed_settings import read_feed
from udpfast.archive.replay_note import Replay
from udpfast.cli.draw import print_ledger
from udpfast.cli.options import FiniteRange, GroupedCommand, IntRange, Port
from udpfast.cli.replay_progress import Progress
from udpfast.cli.replay_records import replay_records
from udpfast.cli.replay_target import EngineTarget, FileTarget, Pacer, Target, UdpTarget
from udpfast.client.journal_source import unix_ns
from udpfast.client.record_words import text_word
from udpfast.config import PAYLOADS, FeedConfig, framing_name, load_feed
from udpfast.core.endpoint import parse_endpoint
from udpfast.core.stop import raise_once
from udpfast.errors import ConfigError
from udpfast.log.journal_span import Span, check_part, journal_span
from udpfast.log.journal_state import is_raw
from udpfast.net.pcap import CaptureReader
from udpfast.shm.instance import instance_directory, journal_directory
from udpfast.wire.framing import FRAMINGS, Framing, MalformedError
from udpfast.wire.recognise import Recognition

__all__ = ["replay"]

#: Frames that may have held datagrams of the feed, which can no longer be read from the capture.
UNREADABLE = {
    "truncated": "cut short by the capture (snaplen)",
    "malformed": "with headers that contradict each other",
    "link_unknown": "of a link type that udpfast does not read",
}

#: IEX's protocols by the payload that decodes them, and how many datagrams are looked at.
IEX_PROTOCOLS = {"iex_tops": {0x8002, 0x8003}, "iex_deep": {0x8004}}
SAMPLE_MAX = 500

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

_CAPTURE = re.compile(r".*\.(pcap|pcapng|cap)(\.gz)?")


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
  udpfast replay deribit --raw --from 2026-08-21T09:30Z --until 2026-08-21T09:31Z --json
  udpfast replay deribit --speed 1 --to ring:rehearsal
  udpfast replay store:orders --json
  udpfast replay deribit --raw --speed 10 --to udp --host 127.0.0.1
  udpfast replay deribit --raw --to incident.pcapng
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
    type=click.Path(path_type=Path),
    help="Write the final books to this file as JSON.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on the last line.")
def replay(source: str, as_json: bool, books_path: Path | None, **options: Any) -> None:
    """Replay the records or the raw capture of a journal or store, or a pcap, pcapng or .gz file.

    Datagrams pass through the same engine as in a feed. Its clock is the one that the feed's loop
    recorded; for a file from another program, the time stamps of the capture. The same datagrams
    always make the same records; their SHA-256, which leaves out only position and index, shows it.
    Without --config or ports, the framing of a file is detected from its content, its lines from
    the destinations, and Roq's snapshot channel from its snapshot bit. Progress goes to stderr,
    except with --json. Exit code 1 if the counters do not add up, something was missed, or --expect
    was not met.
    """
    raise_once()
    expected = _expected(options.pop("expect"))
    start = _place(options, "start", "from_position", "--from")
    end = _place(options, "end", "until_position", "--until")
    path = Path(source)
    journal = None
    if not path.is_file():
        if _CAPTURE.fullmatch(source):
            raise click.UsageError(f"{source}: no such file")
        journal = stored_journal(source)
        if options["raw"]:
            if not (journal / "raw").is_dir():
                raise ConfigError(
                    f"{journal} has no raw capture: its feed kept records only; record.what must "
                    "be 'raw' or 'both' to keep the datagrams"
                )
            journal = journal / "raw"
    elif options["raw"]:
        raise click.UsageError(
            "--raw works only with a journal: a capture file has nothing but datagrams"
        )
    target = options["target"]
    if journal is not None:
        _check_journal(options)
        check_part(journal, start, end)
    if journal is not None and not is_raw(journal) and target[:5] in ("", "ring:"):
        progress = _progress(journal, options["speed"], start, end, quiet=as_json)
        pacer = Pacer(options["speed"], progress)
        with closing(progress):
            result = replay_records(journal, target, pacer, start, end, progress)
        if not result["records"] and (start or end):
            raise ConfigError(
                f"{journal} covers {_span(journal) or 'nothing'}: the part asked for has no records"
            )
    else:
        path = path if journal is None else journal
        progress = _progress(path, options["speed"], start, end, quiet=as_json)
        with closing(progress):
            result = replay_datagrams(path, start, end, progress=progress, **options)
    if expected:
        result["as_expected"] = result.get("sha256") == expected
    if books_path is not None:
        books_path.write_text(json.dumps(result.get("books", {})))
    if as_json:
        click.echo(json.dumps(result, default=to_builtins))
    else:
        _print_result(result)
    adds_up = result["ledger"].adds_up if "ledger" in result else True
    fine = adds_up and not result.get("missed")
    sys.exit(0 if fine and result.get("as_expected", True) else 1)


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


def replay_datagrams(
    path: Path,
    start: Place | None = None,
    end: Place | None = None,
    *,
    target: str = "",
    speed: float = 0.0,
    batch: int = 64,
    config_path: Path | None = None,
    config: FeedConfig | None = None,
    framing: str | None = None,
    payload: str | None = None,
    incremental_lines: tuple[Flow, ...] = (),
    snapshot_lines: tuple[Flow, ...] = (),
    host: str = "",
    interface: str = "",
    raw: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Replay a capture file or a directory of raw capture; return what came of it.

    The options are those of the verb; `config` goes before `config_path`, and `progress` is told
    how far the replay is.
    """
    if config is None and config_path is not None:
        config = load_feed(config_path)
    if path.is_dir():
        found = _open_recorded(path, config, start, end)
    else:
        flows = incremental_lines, snapshot_lines
        found = _open_capture(path, config, (framing, payload), flows, start, end)
    pacer = Pacer(speed, progress)
    goal = _open(target, found.config, (batch, host, interface), progress)
    taken, clock = 0, ClockSteps()
    try:
        for part in found.source:
            taken += len(part.headers)
            clock.note(part.headers["timestamp_ns"])
            goal.take(part, pacer)
        result = goal.finish()
    finally:
        goal.close()
    if not taken and (start or end):
        raise ConfigError(
            f"{path} covers {_span(path) or 'nothing'}: the part asked for has no datagrams"
        )
    return found.facts() | clock.result() | result


class _Opened(NamedTuple):
    """What is replayed: its feed's settings, its datagrams, and how its framing was told."""

    config: FeedConfig
    source: CaptureSource | MessageSource | RawSource
    recognised: dict[str, Any]

    def facts(self) -> dict[str, Any]:
        """Return what is said of the datagrams, once all were read."""
        source = self.source
        return {
            "capture": {
                "frames": source.frames,
                "other_datagrams": source.others,
                "damage": source.damage,
            },
            "missed": source.missed + sum(source.frames.get(kind, 0) for kind in UNREADABLE),
            "lines": {
                channel: [
                    address
                    for line in getattr(self.config, channel).lines
                    for address in line.every_address
                ]
                for channel in ("incremental", "snapshot")
            },
        } | self.recognised


def _open_recorded(
    path: Path, config: FeedConfig | None, start: Place | None, end: Place | None
) -> _Opened:
    config = config or read_feed(path)
    if config is None:
        raise ConfigError(
            f"{path}: expected --config FILE: the raw capture does not say which feed it belongs to"
        )
    kind = RawSource if is_raw(path) else MessageSource
    return _Opened(config, kind(path, config, start, end), {})


def _open_capture(
    path: Path,
    config: FeedConfig | None,
    wire: tuple[str | None, str | None],
    flows: tuple[tuple[Flow, ...], tuple[Flow, ...]],
    start: Place | None,
    end: Place | None,
) -> _Opened:
    # `wire`: framing and payload, if they were given.
    framing, payload = wire
    told = None
    if framing is None and config is None:
        told = recognise_capture(path)
        framing = _told(path, told, any(flows))
    elif config is None and not any(flows):
        _check_framing(path, framing or "roq", recognise_capture(path))
    channels = _channels(path, config, framing, *flows)
    if config is None:
        config = config_of(channels, framing or "roq", payload or "auto")
    elif framing is not None or payload is not None:
        config = replace(
            config,
            wire=wire_of(framing or framing_name(config.wire), payload or config.wire.payload),
        )
    _check_payload(path, config.wire.payload)
    recognised = _recognised(framing_name(config.wire), told)
    return _Opened(config, CaptureSource(path, channels, start, end), recognised)


def _span(path: Path) -> Span | None:
    # A capture file's positions are numbers of frames: all of it is looked at.
    if path.is_dir():
        return journal_span(path)
    times: list[int] = []
    frames: list[int] = []
    with CaptureReader(path) as reader:
        while (batch := reader.read_batch(1 << 14)) is not None:
            if len(batch.headers):
                at_ns = batch.headers["timestamp_ns"]
                times += int(at_ns.min()), int(at_ns.max())
                frames += batch.headers["frame"][[0, -1]].tolist()
    return Span(min(times), max(times), frames[0], frames[-1] + 1) if times else None


def _channels(
    path: Path,
    config: FeedConfig | None,
    framing: str | None,
    incremental_lines: tuple[Flow, ...],
    snapshot_lines: tuple[Flow, ...],
) -> dict[str, list[list[Flow]]]:
    if incremental_lines or snapshot_lines:
        found = {
            "incremental": list(incremental_lines),
            "snapshot": list(snapshot_lines),
        }
    elif config is not None:
        return flows_of(config)
    elif framing is not None and not framing.startswith("roq"):
        found = guess_lines(path, Framing(framing))
    else:
        found = guess_channels(path)
    return {channel: [[flow] for flow in flows] for channel, flows in found.items()}


def _told(path: Path, told: Recognition, ports: bool) -> str:
    # Roq's, which is told by its ports, or by what a snapshot bit says, fits nearly anything.
    if told.name is not None:
        return told.name
    if ports or not told.candidates or told.candidates[0].name.startswith("roq"):
        return "roq"
    raise ConfigError(f"{path}: {told.why}: choose it with --framing")


def _check_framing(path: Path, name: str, told: Recognition) -> None:
    # All of the capture has to be of this framing. (Roq's revisions cannot be told apart.)
    if told.name is None or name.startswith("roq") or told.name.startswith("roq"):
        return
    if name not in [candidate.name for candidate in told.candidates]:
        raise ConfigError(f"{path}: expected datagrams of {name}, found {told.name}: {told.why}")


def _check_payload(path: Path, name: str) -> None:
    # IEX's streams say which protocol they carry.
    if name not in IEX_PROTOCOLS:
        return
    framing, found = Framing("iex_tp"), set()
    with CaptureReader(path) as reader:
        for datagram in islice(reader, SAMPLE_MAX):
            with suppress(MalformedError):
                found |= {unit.stream >> 16 for unit in framing.units(datagram.payload)}
    if found and not found & IEX_PROTOCOLS[name]:
        protocols = " or ".join(f"{each:x}" for each in sorted(IEX_PROTOCOLS[name]))
        others = " and ".join(f"{each:x}" for each in sorted(found))
        raise ConfigError(
            f"{path}: expected streams of IEX's protocol {protocols} with payload {name}, "
            f"found {others}"
        )


def _recognised(name: str, told: Recognition | None) -> dict[str, Any]:
    return {"framing": {"name": name, "why": told.why if told is not None else "you chose it"}}


def _open(
    target: str, config: FeedConfig, options: tuple[int, str, str], progress: Progress | None
) -> Target:
    batch, host, interface = options
    if target.startswith("ring:"):
        directory = instance_directory(target[5:], create=True)
        return EngineTarget(config, directory, batch, progress=progress)
    if target.startswith("journal:"):
        return EngineTarget(config, None, batch, _new_journal(target[8:]))
    if target == "udp":
        return UdpTarget(config, host, interface)
    if _CAPTURE.fullmatch(target):
        return FileTarget(Path(target))
    if target not in ("", "engine"):
        raise click.UsageError(
            "--to must be engine, ring:NAME, journal:NAME, udp, or a file ending in .pcap or "
            f".pcapng, was {target!r}"
        )
    return EngineTarget(config, None, batch)


def _new_journal(name: str) -> Path:
    journal = journal_directory(name, create=True)
    if any(journal.iterdir()):
        raise ConfigError(
            f"{journal} is not empty: a replay needs a new journal; choose another name or "
            "directory"
        )
    return journal


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


def _print_result(result: dict[str, Any]) -> None:
    if "framing" in result:
        click.echo("framing {name}: {why}".format(**result["framing"]))
    for channel, addresses in result.get("lines", {}).items():
        if not addresses:
            continue
        click.echo(
            f"{channel}: "
            + ", ".join(f"{chr(65 + i)} = {address}" for i, address in enumerate(addresses))
        )
    if "ledger" in result:
        print_ledger(result["counters"], result["ledger"])
    _print_left_out(result)
    _print_losses(result)
    for name, book in result.get("books", {}).items():
        click.echo(
            f"book {text_word(name)}: {len(book['bids'])} bids, {len(book['asks'])} asks"
            + (", STALE" if book["stale"] else "")
        )
    for what in ("sent", "unreachable", "written"):
        if what in result:
            click.echo(f"{result[what]:,} datagrams {what}")
    if "sha256" in result:
        click.echo(f"records {result['records']}, sha256 {result['sha256']}")
    if not result.get("as_expected", True):
        click.echo("the SHA-256 is not the expected one")


def _print_left_out(result: dict[str, Any]) -> None:
    # What of the capture was not replayed as it is.
    capture = result.get("capture", {})
    if capture.get("other_datagrams"):
        click.echo(f"{capture['other_datagrams']:,} datagrams to other addresses: left out")
    frames = capture.get("frames", {})
    if frames.get("fragments"):
        click.echo(f"{frames['fragments']:,} IP fragments: left out")
    for kind, words in UNREADABLE.items():
        if frames.get(kind):
            click.echo(f"{frames[kind]:,} frames {words}: not read")
    if capture.get("damage"):
        click.echo(f"the capture breaks off early: {capture['damage']}")
    if "set_back" in result:
        steps, longest_ns = result["set_back"].values()
        click.echo(
            f"the clock was set back {steps} times, by up to {longest_ns / 1e9:.3f} s: what "
            "follows is replayed in the order of arrival"
        )
    if result.get("missed"):
        click.echo(
            f"{result['missed']:,} records or datagrams are missing: their recorder missed them, "
            "or they are damaged"
        )


def _print_losses(result: dict[str, Any]) -> None:
    for session in result.get("sessions", []):
        click.echo(
            f"session {session['old']} -> {session['new']} ({session['reason']}), "
            + (f"stream {session['stream']}, " if session["stream"] else "")
            + f"{session['discarded']} pending messages dropped"
        )
    for gap in result.get("gaps", []) + result.get("snapshot_gaps", []):
        click.echo(
            f"gap {gap['channel']} [{gap['first']}, {gap['last']}] {gap['count']} lost "
            f"({gap['reason']}, waited {gap['waited_ns'] / 1e6:.2f} ms)"
        )
