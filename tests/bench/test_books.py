"""The benchmark of books at a tiny size: that it runs, verifies, and tells all ways apart."""

import numpy as np
import pytest

from bench import bench_books
from bench.loops.book_cost import OrderFlow
from bench.trials import Settings, Unavailable


def test_books_benchmark_runs_and_verifies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_books, "SHAPES", ((3, 50),))
    monkeypatch.setattr(bench_books, "MESSAGES", 20_000)
    rows = list(bench_books.run(Settings(quick=True, rounds=1, cores=(0, 0))))
    told = {row.variant for row in rows if "stocks" in row.parameters}
    assert told - {bench_books.PEER} == {"C tables", "decode", "books", "levels", "orders"}
    assert {row.variant for row in rows} - told == {"snapshot", "clear"}
    assert all(row.verified.endswith(("as they should", "then none")) for row in rows)


class KeepsCount:
    """A peer that counts orders, and forgets one of them."""

    def __init__(self, forgets: int = 0) -> None:
        self.live, self.shares = -forgets, dict[int, int]()

    def feed(self, messages: np.ndarray) -> None:
        data = messages.tobytes()
        while data:
            size = int.from_bytes(data[:2], "big")
            self._take(data[2 : 2 + size])
            data = data[2 + size :]

    def _take(self, message: bytes) -> None:
        kind, reference = message[:1], int.from_bytes(message[11:19], "big")
        if kind == b"A":
            self.shares[reference] = int.from_bytes(message[20:24], "big")
        elif kind == b"U":
            self.shares[int.from_bytes(message[19:27], "big")] = self.shares.pop(reference)
        else:
            less = int.from_bytes(message[19:23], "big") if kind in b"EX" else 1 << 32
            self.shares[reference] -= less
            if self.shares[reference] <= 0:
                del self.shares[reference]

    def counted(self) -> dict[str, int]:
        found = dict.fromkeys(("missing_ref", "dup_ref", "rejected"), 0)
        return {"live_orders": len(self.shares) + self.live} | found


def test_peer_is_given_the_whole_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_books.peer, "Books", KeepsCount)
    assert bench_books.by_peer(OrderFlow(3, 50, 4_500)) > 0


def test_peer_whose_orders_are_not_those_of_the_flow_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench_books.peer, "Books", lambda: KeepsCount(forgets=1))
    with pytest.raises(ValueError, match="orders to rest"):
        bench_books.by_peer(OrderFlow(3, 50, 1_000))


def test_peer_that_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ImportError

    monkeypatch.setattr(bench_books.peer, "Books", missing)
    with pytest.raises(Unavailable, match="pip install itch-book"):
        bench_books.by_peer(OrderFlow(3, 50, 1_000))
