"""Books of a complete recorded feed: never silently wrong, and correct at the end.

The capture without loss gives the state of each book after each seqno. The one with loss, late
copies and rubbish must show exactly that state whenever it calls a book sound.
"""

import contextlib
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.shared import shared
from udpfast import Books, Kind, OrderBook, Reader, ReadRecord
from udpfast.agents.feed.replayer import Replayer
from udpfast.config import parse_feed
from udpfast.core.layout import FRAME, Stream
from udpfast.errors import RingClosedError
from udpfast.net.pcap import CaptureReader

#: UDP port -> (channel, line), from the capture's description.
LINES = {9001: (0, 0), 9101: (0, 1), 9002: (1, 0)}

State = tuple[int, int, int]  # session_id, object, seqno


def replay(capture: Path, directory: Path) -> Reader:
    """Replay a capture into a ring that holds all of it; return a reader at its beginning."""
    directory.mkdir(mode=0o700)
    config = parse_feed(
        {
            "name": "capture",
            "incremental": {"lines": [_line("A"), _line("B")]},
            "snapshot": {"lines": [_line("S")]},
            "session": {"adopt_datagrams": 2},
            "ring": {"capacity_bytes": 1 << 26, "carry": "both"},
        }
    )
    replayer = Replayer(config, directory)
    reader = Reader(f"ring:{directory}", start="begin")
    with CaptureReader(capture) as captured:
        while (batch := captured.read_batch()) is not None:
            ports = batch.headers["destination_port"]
            known = np.isin(ports, list(LINES))
            assert known.all()
            channels = np.array([LINES[port][0] for port in ports], np.uint8)
            lines = np.array([LINES[port][1] for port in ports], np.uint8)
            replayer.replay(batch, channels, lines, 0, len(ports))
    replayer.finish()
    replayer.close()
    return reader


def _line(name: str) -> dict[str, str]:
    return {"name": name, "address": "127.0.0.1:0"}


def content(book: OrderBook) -> int:
    return zlib.crc32(book.asks().tobytes(), zlib.crc32(book.bids().tobytes()))


def sound_states(reader: Reader) -> Iterator[tuple[State, int, ReadRecord]]:
    """Apply a ring to books, record by record; yield each sound book's contents when it changes."""
    books = Books()
    book = None
    for record in reader:
        if record.kind is not Kind.MESSAGE:
            book = books.apply(record)
            continue
        # The published message follows its decoded updates, and has their seqno.
        if book is not None and not book.stale:
            frame = np.frombuffer(record.payload, FRAME, 1)[0]
            seqno = frame["last_seqno"] if record.stream == Stream.SNAPSHOT else frame["seqno"]
            yield (int(frame["session_id"]), record.object, int(seqno)), content(book), record
        book = None


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> dict[State, int]:
    """Return the contents of every book after every seqno, from the capture without loss."""
    capture = shared("wire", "capture", "roq_udp_clean.pcap.gz")
    with replay(capture, tmp_path_factory.mktemp("clean") / "feed") as reader:
        return {state: found for state, found, _ in sound_states(reader)}


def test_sound_books_of_a_lossy_feed_hold_what_was_published(
    oracle: dict[State, int], tmp_path: Path
) -> None:
    with replay(shared("wire", "capture", "roq_udp_rough.pcap.gz"), tmp_path / "feed") as reader:
        compared = 0
        for state, found, record in sound_states(reader):
            assert found == oracle[state], f"{record} at {state}"
            compared += 1
    assert len(oracle) // 2 < compared < len(oracle)


@pytest.mark.parametrize("variant", ["clean", "rough"])
def test_books_at_the_end_of_a_feed_are_those_published(variant: str, tmp_path: Path) -> None:
    capture = shared("wire", "capture", f"roq_udp_{variant}.pcap.gz")
    expected = json.loads(shared("wire", "capture", "expected.json").read_text())["final_books"]
    books = Books()
    staled = 0
    with replay(capture, tmp_path / "feed") as reader, contextlib.suppress(RingClosedError):
        while True:
            batch = reader.poll(100)
            books.apply_batch(batch)
            staled += (batch.headers["kind"] == Kind.STALE).sum()
            doubted = [key for key, book in books.items() if book.stale]  # before the feed's end
    assert (staled > 0) == (variant == "rough")
    assert {
        key[1]: {"bids": book.bids().tolist(), "asks": book.asks().tolist()}
        for key, book in books.items()
    } == expected
    assert not doubted and all(book.stale for book in books.values())
