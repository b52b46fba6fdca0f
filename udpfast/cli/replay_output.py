"""What comes out of a replay: records, counted and hashed, gaps, sessions, books."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from udpfast.agents.feed.replay_source import ClockSteps
from udpfast.cli.replay_progress import Progress
from udpfast.client.batch import Batch
from udpfast.client.books import Books
from udpfast.client.reader import Reader
from udpfast.core.clock import monotonic_ns
from udpfast.core.layout import GAP, LAPPED, SESSION, Channel, Kind
from udpfast.errors import FormatError, RingClosedError
from udpfast.log.record_hash import RecordHash
from udpfast.market.words import CONTROL_WORDS
from udpfast.wire.framing import Framing

__all__ = ["Output"]

#: Those of the protocol have 32 bits; a record counts on where they wrap.
NUMBERS = 1 << 32


class Output:
    """Everything that came out of a replay, over all runs of the feed that it holds."""

    def __init__(self, framing: str = "roq") -> None:
        """Begin with nothing, of a feed of this framing."""
        self._label = Framing(framing).facts.label
        self._streams: dict[int, str] = {}
        self.hash = RecordHash()
        self.books: Books | None = None
        self.gaps: list[dict[str, Any]] = []
        self.sessions: list[dict[str, Any]] = []
        self.missed = 0
        self.clock = ClockSteps()
        self._counts = np.zeros(256, np.int64)

    def begin(self, reader: Reader) -> None:
        """Go on with the records of another run; names and books are that one's."""
        self.reader = reader
        self.books = Books(reader)

    def read_ring(self) -> None:
        """Take everything that is in the ring now."""
        missed = self.missed
        self.read_journal()
        if self.missed > missed:
            raise FormatError(
                f"the ring is too small for this replay: {self.missed - missed} records were "
                "overwritten; raise ring.capacity_bytes"
            )

    def read_journal(self, progress: Progress | None = None) -> None:
        """Take everything that is there now; tell `progress` how far that is."""
        while True:
            try:
                batch = self.reader.poll(timeout=0)
            except RingClosedError:
                return
            if len(batch) == 0:
                return
            self.take(batch)
            if progress is not None:
                at_ns = int(batch.headers["published_ns"][-1])
                progress.take(at_ns, len(batch))
                progress.look(monotonic_ns(), at_ns)

    def take(self, batch: Batch) -> None:
        """Take a batch of the reader's."""
        assert self.books is not None
        self.missed += batch.lapped
        with warnings.catch_warnings():  # ORDERS: the result says how many
            warnings.simplefilter("ignore", RuntimeWarning)
            self.books.apply_batch(batch)
        kinds = batch.headers["kind"]
        # What is missing behind the last record is told by one of the reader's own: not recorded.
        if len(batch) == 1 and kinds[0] == Kind.LAPPED and batch.headers["checksum"][0] == 0:
            self.missed += _missed(batch.payload(0))
            return
        self.hash.add(batch.headers, batch.offsets, batch.payloads)
        self.clock.note(batch.headers["published_ns"])
        self._counts += np.bincount(kinds, minlength=len(self._counts))
        for i in np.flatnonzero(np.isin(kinds, (Kind.GAP, Kind.SESSION, Kind.LAPPED))).tolist():
            self._note(Kind(kinds[i]), batch.headers[i], batch.payload(i))

    @property
    def kinds(self) -> dict[str, int]:
        """How many records of each kind, by its name."""
        return {
            Kind(kind).name: int(self._counts[kind])
            for kind in np.flatnonzero(self._counts).tolist()
        }

    def _note(self, kind: Kind, header: Any, payload: memoryview) -> None:
        if kind is Kind.GAP:
            gap = np.frombuffer(payload, GAP, count=1)[0]
            self.gaps.append(
                {
                    "channel": self._stream(int(header["stream"])),
                    "session_id": self.sessions[-1]["new"] if self.sessions else 0,
                    "first": self._number(header, gap["first"]),
                    "last": self._number(header, gap["last"]),
                    "count": int(gap["count"]),
                    "reason": _word(kind, gap["reason"]),
                    "waited_ns": int(gap["waited_ns"]),
                }
            )
        elif kind is Kind.LAPPED:
            self.missed += _missed(payload)
        elif kind is Kind.SESSION:
            session = np.frombuffer(payload, SESSION, count=1)[0]
            stream = ""
            if header["stream"] >= len(Channel):
                stream = self._label(int(session["stream"]), int(session["new_id"])) or "all"
                self._streams[int(header["stream"])] = stream
            self.sessions.append(
                {
                    "old": int(session["old_id"]),
                    "new": int(session["new_id"]),
                    "reason": _word(kind, session["reason"]),
                    "discarded": int(session["discarded"]),
                    "stream": stream,
                }
            )

    def _stream(self, ordinal: int) -> str:
        # Roq's have the names of their channels; others have what their publisher calls them.
        if ordinal < len(Channel):
            return Channel(ordinal).name.lower()
        return self._streams.get(ordinal, str(ordinal))

    def _number(self, header: Any, number: Any) -> int:
        return int(number) % NUMBERS if header["stream"] < len(Channel) else int(number)

    def result(self) -> dict[str, Any]:
        """Return everything as `udpfast replay --json` prints it."""
        kinds = self.kinds
        return {
            "records": sum(kinds.values()),
            "kinds": dict(sorted(kinds.items())),
            "gaps": [gap for gap in self.gaps if gap["channel"] != "snapshot"],
            "snapshot_gaps": [gap for gap in self.gaps if gap["channel"] == "snapshot"],
            "sessions": self.sessions,
            "resets": sum(session["reason"] != "first" for session in self.sessions),
            "books": self._final_books(),
            "sha256": self.hash.hexdigest(),
        }

    def _final_books(self) -> dict[str, Any]:
        # By "venue:symbol": levels as [price, quantity], best first.
        if self.books is None:
            return {}
        return {
            f"{exchange}:{symbol}": {
                "bids": book.bids().tolist(),
                "asks": book.asks().tolist(),
                "stale": book.stale,
            }
            for (exchange, symbol), book in sorted(self.books.items())
        }


def _word(kind: Kind, reason: Any) -> str:
    # A number that this version knows no word for is shown as a number.
    return CONTROL_WORDS[kind, "reason"].get(int(reason), str(reason)).lower()


def _missed(payload: memoryview) -> int:
    return int(np.frombuffer(payload, LAPPED, count=1)[0]["missed"])
