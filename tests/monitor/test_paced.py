"""What takes long is read rarely."""

import time

import pytest

from udpfast.monitor import paced
from udpfast.monitor.paced import Paced


def test_what_was_read_is_good_until_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns, took_ns = [0], [0]
    monkeypatch.setattr(paced, "monotonic_ns", lambda: now_ns[0])
    monkeypatch.setattr(time, "thread_time_ns", lambda: took_ns[0])
    seen: list[int | None] = []

    def read(before: int | None) -> int:
        seen.append(before)
        took_ns[0] += 1_000_000
        return len(seen)

    reads = Paced(share=100)
    assert reads.get("x", read) == 1
    now_ns[0] = 99_999_999
    assert reads.get("x", read) == 1
    now_ns[0] = 100_000_000
    assert reads.get("x", read) == 2
    assert seen == [None, 1]
    assert reads.get("y", read, least_s=3600) == 3  # another thing
    now_ns[0] = 3600 * 10**9
    assert reads.get("y", read, least_s=3600) == 3
    assert reads.get("x", read) == 4


def test_without_a_share_all_is_read_at_each_look() -> None:
    reads = Paced(share=0)
    assert [reads.get("x", lambda before: (before or 0) + 1) for _ in range(3)] == [1, 2, 3]


def test_what_is_remembered_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paced, "KEPT_MAX", 4)
    reads = Paced()
    for number in range(10):
        assert reads.get(number, lambda _, number=number: number, least_s=3600) == number
    assert len(reads._kept) <= 4
