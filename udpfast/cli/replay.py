"""`udpfast replay`: a capture through the production engine, without sockets."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from udpfast.agents.replayer import Replayer
from udpfast.cli.ledger import ledger_sums, print_ledger
from udpfast.client.books import Books
from udpfast.client.reader import Reader
from udpfast.config import FeedConfig, load_feed, parse_feed
from udpfast.core.layout import GAP, SESSION, Channel, GapReason, Kind, SessionReason
from udpfast.errors import ConfigError, FormatError, RingClosedError
from udpfast.net.pcap import CaptureBatch, CaptureReader

__all__ = ["replay"]

# Datagrams between two readings of the ring: what they can set free must fit into it. 16 KiB for
# each are enough for a message that its last fragment completes once per eight datagrams.
STEP_MIN, STEP_MAX = 64, 1024
STEP_BYTES = 1 << 14
SNAPSHOT_BIT = 0x10
FRAME_SIZE = 16
ENDPOINT = np.dtype([("destination", "u1", 16), ("destination_port", "<u2")])


class Flow(NamedTuple):
    """Where datagrams of a capture were sent to: 16 address bytes (empty: any) and a port."""

    address: bytes
    port: int

    def __str__(self) -> str:
        """Return "ip:port", or the port alone."""
        if not self.address:
            return str(self.port)
        address = ipaddress.IPv6Address(self.address)
        return f"{address.ipv4_mapped or f'[{address}]'}:{self.port}"


class Output:
    """Everything that came out of a replay."""

    def __init__(self, reader: Reader) -> None:
        """Begin with nothing; names are the reader's."""
        self.reader = reader
        self.books = Books(reader)
        self.hash = hashlib.sha256()
        self._counts = np.zeros(max(Kind) + 1, np.int64)
        self.gaps: list[dict[str, Any]] = []
        self.sessions: list[dict[str, Any]] = []

    def read(self) -> None:
        """Take everything that is in the ring now."""
        while True:
            try:
                batch = self.reader.poll(timeout=0)
            except RingClosedError:
                return
            if len(batch) == 0:
                return
            if batch.lapped:
                raise FormatError(
                    f"the ring is too small for this capture: {batch.lapped} records "
                    "were overwritten; raise ring.capacity_bytes"
                )
            self.books.apply_batch(batch)
            self.hash.update(bytes(batch))
            kinds = batch.headers["kind"]
            self._counts += np.bincount(kinds, minlength=len(self._counts))
            for i in np.flatnonzero((kinds == Kind.GAP) | (kinds == Kind.SESSION)).tolist():
                self._note(Kind(kinds[i]), batch.headers[i], batch.payload(i))

    @property
    def kinds(self) -> dict[str, int]:
        """How many records of each kind, by its name."""
        return {
            Kind(kind).name: int(self._counts[kind])
            for kind in np.flatnonzero(self._counts).tolist()
        }

    def _note(self, kind: Kind, header: Any, payload: memoryview) -> None:
        channel = Channel(header["channel"]).name.lower()
        if kind is Kind.GAP:
            gap = np.frombuffer(payload, GAP, count=1)[0]
            self.gaps.append(
                {
                    "channel": channel,
                    "session_id": int(header["session_id"]),
                    "first": int(gap["first"]),
                    "last": int(gap["last"]),
                    "count": int(gap["count"]),
                    "reason": GapReason(gap["reason"]).name.lower(),
                    "waited_ns": int(gap["waited_ns"]),
                }
            )
        elif kind is Kind.SESSION:
            session = np.frombuffer(payload, SESSION, count=1)[0]
            self.sessions.append(
                {
                    "old": int(session["old_id"]),
                    "new": int(session["new_id"]),
                    "reason": SessionReason(session["reason"]).name.lower(),
                    "discarded": int(session["discarded"]),
                }
            )

    def final_books(self) -> dict[str, Any]:
        """Return the books by "venue:symbol": levels as [price, quantity], best first."""
        return {
            f"{exchange}:{symbol}": {
                "bids": book.bids().tolist(),
                "asks": book.asks().tolist(),
                "stale": book.stale,
            }
            for (exchange, symbol), book in sorted(self.books.items())
        }


@click.command(
    epilog="""\b
Examples:
  udpfast replay capture.pcap.gz
  udpfast replay capture.pcap.gz --incremental 9001 --incremental 9101 --snapshot 9002 --json
"""
)
@click.argument("capture", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    help="The feed's TOML file; its lines' addresses say which datagrams are whose.",
)
@click.option(
    "--incremental",
    "incremental_ports",
    multiple=True,
    type=click.IntRange(1, 65535),
    help="UDP port of an incremental line; one for each line.",
)
@click.option(
    "--snapshot",
    "snapshot_ports",
    multiple=True,
    type=click.IntRange(1, 65535),
    help="UDP port of a snapshot line.",
)
@click.option(
    "--books",
    "books_path",
    type=click.Path(path_type=Path),
    help="Write the final books to this file as JSON.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on the last line.")
def replay(
    capture: Path,
    config_path: Path | None,
    incremental_ports: tuple[int, ...],
    snapshot_ports: tuple[int, ...],
    books_path: Path | None,
    as_json: bool,
) -> None:
    """Run the pcap, pcapng or .gz file CAPTURE through windows, objects, decoding and ring.

    The capture's time stamps are the only clock: the same capture gives the same records, shown by
    their SHA-256. Without --config or ports, lines are told by destination, and the snapshot
    channel by its snapshot bit; what was found is printed. Exit code 1 if the ledger does not add
    up.
    """
    if config_path is not None and (incremental_ports or snapshot_ports):
        raise click.UsageError("--config and ports exclude each other: the file names the lines")
    if incremental_ports or snapshot_ports:
        channels = {
            "incremental": [Flow(b"", port) for port in incremental_ports],
            "snapshot": [Flow(b"", port) for port in snapshot_ports],
        }
        config = _config_of(channels)
    elif config_path is not None:
        config = load_feed(config_path)
        channels = _flows_of(config)
    else:
        channels = guess_channels(capture)
        config = _config_of(channels)
    if not as_json:
        for channel, flows in channels.items():
            click.echo(
                f"{channel}: "
                + ", ".join(f"{chr(65 + i)} = {flow}" for i, flow in enumerate(flows))
            )
    result = run_replay(capture, config, channels)
    if books_path is not None:
        books_path.write_text(json.dumps(result["books"]))
    if as_json:
        click.echo(json.dumps(result))
    else:
        _print_result(result)
    sys.exit(0 if result["ledger"]["adds_up"] else 1)


def run_replay(
    capture: Path,
    config: FeedConfig,
    channels: dict[str, list[Flow]],
) -> dict[str, Any]:
    """Replay a capture; return ledger, gaps, sessions, counters, books and the records' hash."""
    others = 0
    step = max(STEP_MIN, min(STEP_MAX, config.ring.capacity_bytes // STEP_BYTES))
    root = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="udpfast-replay-", dir=root) as directory:
        replayer = Replayer(config, Path(directory))
        try:
            with (
                Reader(f"ring:{directory}", start="begin") as reader,
                CaptureReader(capture) as source,
            ):
                output = Output(reader)
                while (batch := source.read_batch()) is not None:
                    others += _replay_batch(replayer, output, batch, channels, step)
                replayer.finish()
                output.read()
                frames, damage = source.counts, source.damage
            counters = replayer.counters()
        finally:
            replayer.close()
    kinds = output.kinds
    return {
        "capture": {"frames": frames, "other_datagrams": others, "damage": damage},
        "ledger": ledger_sums(counters),
        "records": sum(kinds.values()),
        "kinds": dict(sorted(kinds.items())),
        "gaps": [gap for gap in output.gaps if gap["channel"] == "incremental"],
        "snapshot_gaps": [gap for gap in output.gaps if gap["channel"] == "snapshot"],
        "sessions": output.sessions,
        "resets": sum(session["reason"] != "first" for session in output.sessions),
        "counters": counters,
        "books": output.final_books(),
        "sha256": output.hash.hexdigest(),
    }


def guess_channels(capture: Path) -> dict[str, list[Flow]]:
    """Tell the lines of a capture by destination, and the snapshot channel by its snapshot bit."""
    seen: dict[Flow, list[int]] = {}
    with CaptureReader(capture) as source:
        while (batch := source.read_batch()) is not None:
            headers = batch.headers[batch.headers["size"] > FRAME_SIZE]
            bits = np.frombuffer(batch.buffer, "u1")[headers["offset"]] & SNAPSHOT_BIT != 0
            keys = np.zeros(len(headers), ENDPOINT)
            for name in ("destination", "destination_port"):
                keys[name] = headers[name]
            _, firsts, which = np.unique(
                keys.view(f"V{ENDPOINT.itemsize}"), return_index=True, return_inverse=True
            )
            for number in np.argsort(firsts).tolist():  # in order of appearance
                first = headers[firsts[number]]
                flow = Flow(first["destination"].tobytes(), int(first["destination_port"]))
                counts = seen.setdefault(flow, [0, 0])
                counts[0] += int(np.count_nonzero(which == number))
                counts[1] += int(np.count_nonzero(bits[which == number]))
    channels: dict[str, list[Flow]] = {"incremental": [], "snapshot": []}
    for flow, (messages, snapshots) in seen.items():
        channels["snapshot" if 2 * snapshots > messages else "incremental"].append(flow)
    if not channels["incremental"]:
        raise ConfigError(
            f"{capture}: expected UDP datagrams of an incremental channel, found "
            f"{len(channels['snapshot'])} flows that are none"
        )
    return channels


def _replay_batch(
    replayer: Replayer,
    output: Output,
    batch: CaptureBatch,
    channels: dict[str, list[Flow]],
    step: int,
) -> int:
    # Returns how many datagrams belong to no line; they are left out.
    headers = batch.headers
    channel = np.full(len(headers), 255, dtype=np.uint8)
    line = np.zeros(len(headers), dtype=np.uint8)
    for number, flows in enumerate((channels["incremental"], channels["snapshot"])):
        for index, flow in enumerate(flows):
            match = headers["destination_port"] == flow.port
            if flow.address:
                match &= (headers["destination"] == np.frombuffer(flow.address, "u1")).all(axis=1)
            channel[match], line[match] = number, index
    known = channel != 255
    kept = CaptureBatch(np.ascontiguousarray(headers[known]), batch.buffer)
    channel, line = channel[known], line[known]
    for start in range(0, len(channel), step):
        replayer.replay(kept, channel, line, start, min(start + step, len(channel)))
        output.read()
    return int(np.count_nonzero(~known))


def _flows_of(config: FeedConfig) -> dict[str, list[Flow]]:
    lines = [*config.incremental.lines, *config.snapshot.lines]
    ports = Counter(line.address.rpartition(":")[2] for line in lines)
    return {
        channel: [_flow_of(line.address, ports) for line in getattr(config, channel).lines]
        for channel in ("incremental", "snapshot")
    }


def _flow_of(text: str, ports: Counter[str]) -> Flow:
    # The port alone where it is enough: a capture from another host has other addresses.
    host, _, port = text.rpartition(":")
    if ports[port] == 1:
        return Flow(b"", int(port))
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        raise ConfigError(f"expected an IP address and a port, found {text!r}") from None
    mapped = address if address.version == 6 else ipaddress.IPv6Address(f"::ffff:{address}")
    return Flow(mapped.packed, int(port))


def _config_of(channels: dict[str, list[Flow]]) -> FeedConfig:
    return parse_feed(
        {
            "name": "replay",
            **{
                channel: {
                    "lines": [
                        {
                            "name": chr(65 + i),
                            "address": str(flow) if flow.address else f"0.0.0.0:{flow.port}",
                        }
                        for i, flow in enumerate(flows)
                    ]
                }
                for channel, flows in channels.items()
            },
        },
        where="ports",
    )


def _print_result(result: dict[str, Any]) -> None:
    print_ledger(result["counters"], result["ledger"])
    if result["capture"]["other_datagrams"]:
        click.echo(f"{result['capture']['other_datagrams']:,} datagrams went elsewhere: left out")
    for session in result["sessions"]:
        click.echo(
            f"session {session['old']} -> {session['new']} ({session['reason']}), "
            f"{session['discarded']} pending messages dropped"
        )
    for gap in result["gaps"] + result["snapshot_gaps"]:
        click.echo(
            f"gap {gap['channel']} [{gap['first']}, {gap['last']}] {gap['count']} lost "
            f"({gap['reason']}, waited {gap['waited_ns'] / 1e6:.2f} ms)"
        )
    for name, book in result["books"].items():
        click.echo(
            f"book {name}: {len(book['bids'])} bids, {len(book['asks'])} asks"
            + (", STALE" if book["stale"] else "")
        )
    click.echo(f"records {result['records']}, sha256 {result['sha256']}")
