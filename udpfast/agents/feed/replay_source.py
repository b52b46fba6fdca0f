"""What a replay is fed from: a capture file, or the raw capture that a recorder kept.

Both yield batches of datagrams whose lines are told; from raw capture, and from the pcapng files
made of it, come also the clocks that the feed's loop went by.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from udpfast.agents.feed.lines import received_addresses
from udpfast.agents.feed.replay_lines import Flow, tell_lines
from udpfast.config import FeedConfig
from udpfast.core.endpoint import parse_endpoint
from udpfast.core.layout import CAPTURE, FRAME, RECORD, ClockReason, Kind, Stream
from udpfast.core.layouts import CONTROL_LAYOUTS, Layouts
from udpfast.errors import ConfigError, FormatError
from udpfast.log.journal_cursor import JournalCursor
from udpfast.log.journal_span import Place
from udpfast.log.journal_state import journal_state
from udpfast.market.updates import LAYOUTS
from udpfast.net.pcap import CAPTURED, CaptureBatch, CaptureEvent, CaptureReader

__all__ = [
    "STEP_NS",
    "CaptureSource",
    "ClockSteps",
    "MessageSource",
    "Place",
    "RawSource",
    "end_now",
    "said_missed",
]

BATCH = 16_384
ADDRESSES_MAX = 128  # of core/layout.pxd, a power of two
FRAGMENT_SIZE = 512  # of every fragment but the last
#: Cards' clocks differ by less than this: a stamp that is further back is of a clock that was set.
STEP_NS = 1_000_000_000
SOURCE_NETWORK = 0xC0000200  # 192.0.2.0, for documentation: nobody's address


def end_now(directory: Path) -> Place | None:
    """Return where a journal that is written ends now; None: nobody writes it.

    A replay that followed its journal would never end if what it sends is received and recorded.
    """
    try:
        state = journal_state(directory)
    except (FileNotFoundError, FormatError):
        return None
    return ("position", state.position) if state.alive else None


def said_missed(cursor: JournalCursor, count: int) -> int:
    """Return how many records a journal's recorder missed, by what the last poll's LAPPED say."""
    lapped = np.flatnonzero(cursor.headers["kind"][:count] == Kind.LAPPED).tolist()
    return sum(int.from_bytes(cursor.payload(i)[:8], "little") for i in lapped)


#: What a CLOCK was written for, other than the end.
_EVENTS = {ClockReason.EXPIRE: CaptureEvent.EXPIRE, ClockReason.DOUBT: CaptureEvent.DOUBT}


class ClockSteps:
    """How often a clock that stamped entries was set back, beyond what cards differ by.

    Attributes
    ----------
    count : int
        Steps back by more than `STEP_NS`.
    longest_ns : int
        By how much it was set back at most.
    """

    def __init__(self) -> None:
        self.count = self.longest_ns = 0
        self._latest_ns: int | None = None

    def note(self, stamps: npt.NDArray[np.int64]) -> None:
        """Look at the stamps that follow those of before."""
        at = 0
        while at < len(stamps):
            if self._latest_ns is None:
                self._latest_ns = int(stamps[at])
            rest = stamps[at:]
            latest = np.maximum.accumulate(np.maximum(rest, self._latest_ns))
            back = np.flatnonzero(latest - rest > STEP_NS)
            if not len(back):
                self._latest_ns = int(latest[-1])
                return
            self.count += 1
            self.longest_ns = max(self.longest_ns, int(latest[back[0]] - rest[back[0]]))
            at += int(back[0])
            self._latest_ns = int(stamps[at])

    def result(self) -> dict[str, Any]:
        """Return what there is to say; nothing if it never was."""
        if not self.count:
            return {}
        return {"set_back": {"count": self.count, "longest_ns": self.longest_ns}}


class CaptureSource:
    """The datagrams of a capture file.

    Parameters
    ----------
    path : Path
    channels : dict
        The flows of each line, one for each of its addresses.
    start, end : Place, optional
        The first frame, and the first that is not read.

    Attributes
    ----------
    others : int
        Datagrams of no line.
    missed : int
        0: a file says nothing about what it lacks.
    frames : dict
        What became of the file's frames.
    damage : str or None
        Why it could not be read to its end.
    """

    def __init__(
        self,
        path: Path,
        channels: dict[str, list[list[Flow]]],
        start: Place | None = None,
        end: Place | None = None,
    ) -> None:
        self.others = self.missed = 0
        self.frames: dict[str, int] = {}
        self.damage: str | None = None
        self._path = path
        self._channels = channels
        self._start = start
        self._end = end

    def __iter__(self) -> Iterator[CaptureBatch]:
        """Yield batches until the end."""
        with CaptureReader(self._path, events=True) as reader:
            while (batch := reader.read_batch(BATCH)) is not None:
                headers = batch.headers
                ended = False
                if self._start is not None:
                    headers = headers[_not_before(headers, self._start)]
                if self._end is not None:
                    behind = _not_before(headers, self._end)
                    # A clock may have been set back: only numbers of frames are an order.
                    ended = self._end[0] == "position" and bool(behind.any())
                    headers = headers[~behind]
                self.others += tell_lines(headers, self._channels)
                yield CaptureBatch(np.ascontiguousarray(headers), batch.buffer)
                if ended:
                    break
            self.frames, self.damage = reader.counts, reader.damage


def _not_before(headers: npt.NDArray[Any], place: Place) -> npt.NDArray[np.bool_]:
    column = "timestamp_ns" if place[0] == "time" else "frame"
    found: npt.NDArray[np.bool_] = headers[column] >= place[1]
    return found


class _JournalSource:
    # What the two kinds of journal have in common: how they are read, and whose lines these were.
    LAYOUTS: Layouts
    FRAMES: tuple[str, ...]

    def __init__(
        self,
        directory: Path,
        config: FeedConfig,
        start: Place | None = None,
        end: Place | None = None,
    ) -> None:
        self.others = self.missed = 0
        self.frames = dict.fromkeys(self.FRAMES, 0)
        self.damage: str | None = None
        self._cursor = JournalCursor.attach(
            directory,
            start or "begin",
            end or end_now(directory),
            follow=False,
            limit=BATCH,
            layouts=self.LAYOUTS,
        )
        self._endpoints = _endpoints_of(config)
        self._frame = FRAME.newbyteorder(">" if config.wire.byteorder == "big" else "<")

    def _tell_lines(self, headers: npt.NDArray[Any], records: npt.NDArray[Any]) -> None:
        stream = np.where(records["stream"] == Stream.NONE, 0, records["stream"])
        headers["channel"], headers["line"] = stream, records["line"]
        places = headers["address"] & (ADDRESSES_MAX - 1)
        ends = self._endpoints[stream & 1, records["line"] & 31, places]
        for name in ENDPOINTS.names or ():
            headers[name] = ends[name]


class RawSource(_JournalSource):
    """The datagrams that a recorder kept as the feed's loop received them.

    Parameters
    ----------
    directory : Path
        Of the journal.
    config : FeedConfig
        Whose lines they came from: captures that are made of them carry their addresses.
    start, end : Place, optional
        The first record, and the first that is not read.

    Attributes
    ----------
    others : int
        0: raw capture has no others.
    missed : int
        Datagrams that the recorder missed, or that are damaged.
    frames : dict
        Records read, by what they are.
    damage : None
    """

    LAYOUTS = CONTROL_LAYOUTS
    FRAMES = ("datagrams", "clocks")

    def __iter__(self) -> Iterator[CaptureBatch]:
        """Yield batches until the end. Each is valid until the next."""
        cursor = self._cursor
        with cursor:
            while not cursor.ended:
                count = cursor.poll()
                self.missed += cursor.missed + said_missed(cursor, count)
                if count:
                    yield self._batch(count)

    def _batch(self, count: int) -> CaptureBatch:
        cursor = self._cursor
        records, offsets = cursor.headers[:count], cursor.offsets[:count].astype(np.int64)
        kinds = records["kind"]
        words = cursor.payloads[: len(cursor.payloads) // 8 * 8].view("<i8")
        what = cursor.payloads[: len(cursor.payloads) // 4 * 4].view("<u4")[offsets // 4 + 2]
        datagram = kinds == Kind.DATAGRAM
        headers = np.zeros(count, CAPTURED)
        headers["timestamp_ns"] = records["received_ns"]
        headers["now_ns"] = words[offsets // 8]
        headers["unix_ns"] = records["published_ns"]
        headers["flags"] = np.where(datagram, what, 0)
        words_4 = cursor.payloads[: len(cursor.payloads) // 4 * 4].view("<u4")
        headers["address"] = np.where(datagram, words_4[offsets // 4 + 3], 0)
        self._tell_lines(headers, records)
        headers["offset"] = offsets + CAPTURE.itemsize
        before = RECORD.itemsize + CAPTURE.itemsize
        headers["size"] = np.where(datagram, records["length"] - before, 0)
        headers["event"] = np.select(
            [datagram, kinds == Kind.RESTART, *(what == reason for reason in _EVENTS)],
            [CaptureEvent.OWN, CaptureEvent.RESTART, *_EVENTS.values()],
            CaptureEvent.FINISH,
        )
        found = datagram | np.isin(kinds, (Kind.CLOCK, Kind.RESTART))
        self.frames["datagrams"] += int(np.count_nonzero(datagram))
        self.frames["clocks"] += int(np.count_nonzero(kinds == Kind.CLOCK))
        return CaptureBatch(np.ascontiguousarray(headers[found]), cursor.payloads.data.toreadonly())


class MessageSource(_JournalSource):
    """The whole messages among a journal's records, as the datagrams that brought them.

    What the feed decoded is no message any more: `ring.carry` says what its ring has.

    Parameters
    ----------
    directory : Path
        Of the journal.
    config : FeedConfig
        Whose lines they came from.
    start, end : Place, optional
        The first record, and the first that is not read.

    Attributes
    ----------
    others : int
        Updates, which the feed had decoded.
    missed : int
        Records that the recorder missed, or that are damaged.
    frames : dict
        Messages read, and the datagrams that they make.
    damage : None
    """

    LAYOUTS = LAYOUTS
    FRAMES = ("messages", "datagrams")

    def __init__(
        self,
        directory: Path,
        config: FeedConfig,
        start: Place | None = None,
        end: Place | None = None,
    ) -> None:
        """Begin at `start`."""
        if config.wire.framing != "roq":
            raise ConfigError(
                f"{directory}: expected roq messages, found records of framing "
                f"{config.wire.framing}: replay its datagrams from the raw capture (--raw)"
            )
        super().__init__(directory, config, start, end)

    def __iter__(self) -> Iterator[CaptureBatch]:
        """Yield batches until the end.

        Raises
        ------
        FormatError
            There was none, but what a feed had decoded.
        """
        cursor = self._cursor
        with cursor:
            while not cursor.ended:
                count = cursor.poll()
                self.missed += cursor.missed + said_missed(cursor, count)
                kinds = cursor.headers["kind"][:count]
                self.others += int(np.count_nonzero(kinds >= Kind.BOOK))
                found = np.flatnonzero(kinds == Kind.MESSAGE)
                if len(found):
                    yield self._batch(found)
        if self.others and not self.frames["messages"]:
            raise FormatError(
                f"{cursor.directory}: expected messages, found only decoded updates: record with "
                'ring.carry = "both", or replay the raw capture (--raw)'
            )

    def _batch(self, found: npt.NDArray[np.intp]) -> CaptureBatch:
        cursor, buffer = self._cursor, bytearray()
        which, offsets, sizes = [], [], []
        for i in found.tolist():
            content = cursor.payload(i)
            frame = np.frombuffer(content, FRAME, 1).astype(self._frame)[0]
            payload = content[FRAME.itemsize :]
            for fragment in range(int(frame["fragment_max"]) + 1):
                piece = payload[fragment * FRAGMENT_SIZE : (fragment + 1) * FRAGMENT_SIZE]
                frame["fragment"] = fragment
                which.append(i)
                offsets.append(len(buffer))
                sizes.append(FRAME.itemsize + len(piece))
                buffer += frame.tobytes()
                buffer += piece
        records = cursor.headers[which]
        headers = np.zeros(len(which), CAPTURED)
        headers["timestamp_ns"] = records["received_ns"]
        headers["offset"], headers["size"] = offsets, sizes
        self._tell_lines(headers, records)
        self.frames["messages"] += len(found)
        self.frames["datagrams"] += len(which)
        return CaptureBatch(headers, bytes(buffer))


ENDPOINTS = np.dtype(
    [
        ("source", "u1", 16),
        ("destination", "u1", 16),
        ("source_port", "<u2"),
        ("destination_port", "<u2"),
    ]
)


def _endpoints_of(config: FeedConfig) -> npt.NDArray[Any]:
    # By channel, line and address. Who sent a datagram is not kept: 192.0.2.(i + 1) sends line i.
    found = np.zeros((2, 32, ADDRESSES_MAX), ENDPOINTS)
    for each in received_addresses(config):
        host, port = parse_endpoint(each.where.address)
        address = ipaddress.ip_address(host)
        sender: ipaddress.IPv4Address | ipaddress.IPv6Address
        if address.version == 4:
            sender = ipaddress.IPv4Address(SOURCE_NETWORK + each.line + 1)
        else:
            sender = ipaddress.IPv6Address(f"2001:db8::{each.line + 1:x}")
        place = found[each.channel, each.line, each.address]
        place["source"] = np.frombuffer(_mapped(sender), "u1")
        place["destination"] = np.frombuffer(_mapped(address), "u1")
        place["source_port"] = place["destination_port"] = port
    return found


def _mapped(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bytes:
    if address.version == 4:
        return ipaddress.IPv6Address(f"::ffff:{address}").packed
    return address.packed
