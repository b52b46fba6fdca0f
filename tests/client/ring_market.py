"""A feed's ring with random contents: all that a subscriber may write, and invalid records."""

import random
from pathlib import Path
from typing import Any

import numpy as np

from tests.client.instance import Instance
from udpfast import Kind, RecordFlag
from udpfast.core.layout import CONNECTION, GAP, OBJECT_STATE, SESSION, GapReason, ObjectStatus
from udpfast.market.updates import BOOK, LEVEL

CAPACITIES = (1 << 15, 1 << 16)
SYMBOLS = ("BTC", "ETH", "SOL", "XRP", "a name of more than twenty-four bytes, as options have")
OBJECTS = 6


class Market:
    """Writes a few hundred records at a time; the writer may be killed in between."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        # Roq's streams, or those of another venue.
        self.streams = (
            ((0, 80), (1, 18), (2, 2)) if seed % 3 != 1 else ((2, 40), (3, 40), (300, 20))
        )
        self.instance = Instance(directory, self.rng.choice(CAPACITIES))
        self.session = 0
        self.sessions: dict[int, int] = {}  # of a venue's streams
        self.symbols = [self.rng.randrange(len(SYMBOLS)) for _ in range(OBJECTS)]

    @property
    def address(self) -> str:
        return self.instance.address

    def go_on(self, restarts: bool = True) -> None:
        """Write as much as a reader can follow, or (seldom) so much that it is lapped."""
        rng = self.rng
        if restarts and rng.random() < 0.1:
            self._restart()
        if rng.random() < 0.3:
            self._append_session()
        for _ in range(rng.choice((1, 5, 20, 60, 500))):
            rng.choices(
                (self._append_book, self._append_state, self._append_other, self._append_gap,
                 self._append_connection, self._append_session),
                (60, 16, 10, 4, 1, 1),
            )[0]()  # fmt: skip
        self.instance.ring.flush()

    def close(self) -> None:
        self.instance.close()

    def abandon(self) -> None:
        """Leave ring and names as a killed process leaves them."""
        self.instance.names_region.close()
        self.instance.ring.region.close()

    def _restart(self) -> None:
        directory = self.instance.directory
        self.abandon()
        self.instance = Instance(directory, self.rng.choice(CAPACITIES))
        if self.instance.ring.restarted or self.rng.random() < 0.8:
            self.instance.ring.announce_restart(now_ns=1)
        self.session = 0 if self.rng.random() < 0.5 else self.session

    def _append(self, kind: Kind, payload: bytes, flags: int = 0, **fields: Any) -> None:
        self.instance.ring.append(
            kind, payload, flags, number=self.rng.randrange(1000), flight_ns=5, **fields
        )

    def _append_session(self) -> None:
        self.session += 1
        stream = 0 if self.streams[0][0] == 0 else self._stream()
        if stream:
            self.sessions[stream] = self.session
        self._append(
            Kind.SESSION, np.zeros((), SESSION).tobytes(), session=self.session, stream=stream
        )
        for number in range(OBJECTS):
            if self.rng.random() < 0.7:
                self._append_state(number)

    def _stream(self) -> int:
        streams, weights = zip(*self.streams, strict=True)
        return self.rng.choices(streams, weights)[0]

    def _where(self, number: int) -> dict[str, Any]:
        rng = self.rng
        stream = self._stream()
        session = self.sessions.get(stream, self.session) + (rng.random() >= 0.995)
        return {"object": 3 << 16 | number, "session": session, "stream": stream}

    def _append_state(self, number: int | None = None) -> None:
        rng = self.rng
        kind = Kind.STALE if number is None and rng.random() < 0.3 else Kind.RECOVERED
        number = rng.randrange(OBJECTS) if number is None else number
        state = np.zeros((), OBJECT_STATE)
        state["continues"] = rng.random() < 0.6
        state["status"] = rng.choice(list(ObjectStatus))
        flags = RecordFlag.SNAPSHOT if rng.random() < 0.05 else 0
        payload = state.tobytes()[: 10 if rng.random() < 0.02 else None]
        self._append(kind, payload, flags, **self._where(number))

    def _append_gap(self) -> None:
        gap = np.zeros((), GAP)
        gap["reason"] = self.rng.choice(list(GapReason))
        payload = gap.tobytes()[: 10 if self.rng.random() < 0.1 else None]
        stream = self.rng.choice((0, 0, 1)) if self.streams[0][0] == 0 else self._stream()
        self._append(Kind.GAP, payload, session=self.session, stream=stream)

    def _append_connection(self) -> None:
        said = np.zeros((), CONNECTION)
        said["status"], said["scope"] = self.rng.choice((1, 5)), self.rng.randrange(4)
        self._append(Kind.CONNECTION, said.tobytes())

    def _append_other(self) -> None:
        where = self._where(self.rng.randrange(OBJECTS))
        flags = self.rng.choice((0, 0, RecordFlag.RELEASED, RecordFlag.UNGATED))
        self._append(Kind.MESSAGE, bytes(self.rng.randrange(200)), flags, **where)

    def _append_book(self) -> None:
        rng = self.rng
        number = rng.randrange(OBJECTS)
        if rng.random() < 0.03:  # the object becomes another instrument
            self.symbols[number] = rng.randrange(len(SYMBOLS))
        snapshot = rng.random() < 0.15
        bids, asks = (self._rows(sign, snapshot) for sign in (-1, 1))
        update = self.instance.update(
            BOOK, "exchange", SYMBOLS[self.symbols[number]],
            bid_count=len(bids), ask_count=len(asks), row_count=len(bids) + len(asks),
            present=16 * (len(bids) == 5),  # its event goes on in the next update
            update_type=3 if rng.random() < 0.02 else 1 if snapshot else 2,
        )  # fmt: skip
        if rng.random() < 0.02:
            update[rng.choice(("exchange_id", "symbol_id"))] = rng.choice((0, 40))
        payload = update.tobytes() + bids.tobytes() + asks.tobytes()
        if rng.random() < 0.01:
            payload = payload[: rng.randrange(len(payload))]
        flags = snapshot * RecordFlag.SNAPSHOT
        for flag, share in (
            (RecordFlag.FIRST, 0.1), (RecordFlag.RELEASED, 0.1), (RecordFlag.UNGATED, 0.05),
        ):  # fmt: skip
            flags |= flag if rng.random() < share else 0
        self._append(Kind.BOOK, payload, flags, **self._where(number))

    def _rows(self, sign: int, snapshot: bool) -> Any:
        rng = self.rng
        rows = np.zeros(rng.choice((0, 1, 2, 5)), LEVEL)
        for row in rows:
            row["price"] = sign * rng.randrange(1, 30) / 4
            row["quantity"] = rng.choice((0, 1, 2, 2.5)) if not snapshot else rng.randrange(1, 9)
        if snapshot and rng.random() < 0.8:
            rows = np.sort(rows, order="price")[::sign]
        if len(rows) and rng.random() < 0.02:
            what = rng.choice(("price", "quantity"))
            rows[0][what] = -1 if what == "quantity" and rng.random() < 0.5 else np.nan
        return rows
