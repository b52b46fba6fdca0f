"""Replay of a capture's datagrams: through an engine, to the lines' addresses, or into a file."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import click
from msgspec.structs import replace

from udpfast.agents.feed.replay_lines import (
    Flow,
    config_of,
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
from udpfast.archive.feed_settings import read_feed
from udpfast.cli.replay_progress import Progress
from udpfast.cli.replay_target import EngineTarget, FileTarget, Pacer, Target, UdpTarget
from udpfast.config import FeedConfig, framing_name
from udpfast.errors import ConfigError
from udpfast.log.journal_span import Span, journal_span
from udpfast.log.journal_state import is_raw
from udpfast.net.pcap import CaptureReader
from udpfast.shm.instance import instance_directory, journal_directory
from udpfast.wire.framing import Framing, MalformedError
from udpfast.wire.recognise import Recognition

__all__ = [
    "CAPTURE",
    "UNREADABLE",
    "Description",
    "Destination",
    "replay_datagrams",
]

#: Frames that may have held datagrams of the feed, which can no longer be read from the capture.
UNREADABLE = {
    "truncated": "cut short by the capture (snaplen)",
    "malformed": "with headers that contradict each other",
    "link_unknown": "of a link type that udpfast does not read",
}

#: IEX's protocols by the payload that decodes them, and how many datagrams are looked at.
IEX_PROTOCOLS = {"iex_tops": {0x8002, 0x8003}, "iex_deep": {0x8004}}
SAMPLE_MAX = 500

#: The names of capture files.
CAPTURE = re.compile(r".*\.(pcap|pcapng|cap)(\.gz)?")


class Description(NamedTuple):
    """What is known of a capture. Without `config` or lines, the capture itself is looked at."""

    config: FeedConfig | None = None
    framing: str | None = None
    payload: str | None = None
    incremental_lines: tuple[Flow, ...] = ()
    snapshot_lines: tuple[Flow, ...] = ()


class Destination(NamedTuple):
    """Where datagrams are replayed to (`--to`), at which multiple of their pace (0: at once).

    `batch` is how many an engine takes at once; host and interface replace those of the lines.
    """

    target: str = ""
    speed: float = 0.0
    batch: int = 64
    host: str = ""
    interface: str = ""


def replay_datagrams(
    path: Path,
    described: Description | None = None,
    destination: Destination | None = None,
    start: Place | None = None,
    end: Place | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Replay a capture file or a directory of raw capture; return what came of it.

    By default an engine takes them all. `progress` is told how far the replay is.
    """
    described, destination = described or Description(), destination or Destination()
    if path.is_dir():
        found = _open_recorded(path, described.config, start, end)
    else:
        found = _open_capture(path, described, start, end)
    pacer = Pacer(destination.speed, progress)
    goal = _open(destination, found.config, progress)
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
    path: Path, described: Description, start: Place | None, end: Place | None
) -> _Opened:
    config, framing, payload, *flows = described
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
    """Return what a journal or a capture file covers; all of a file is read.

    The positions of a capture file are numbers of frames.
    """
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


def _open(destination: Destination, config: FeedConfig, progress: Progress | None) -> Target:
    target, _, batch, host, interface = destination
    if target.startswith("ring:"):
        directory = instance_directory(target[5:], create=True)
        return EngineTarget(config, directory, batch, progress=progress)
    if target.startswith("journal:"):
        return EngineTarget(config, None, batch, _new_journal(target[8:]))
    if target == "udp":
        return UdpTarget(config, host, interface)
    if CAPTURE.fullmatch(target):
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
