"""Single orders in `udpfast.h`: every queue, place and level is the same as in Python."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.client.test_image_orders import STEPS, Strategy, feed
from tests.client.test_ring_header import Read, program, read

__all__ = ["program", "read"]  # fixtures


def said(strategy: Strategy) -> set[str]:
    """Return what the program prints about the same orders."""
    lines = set()
    for exchange, symbol in strategy.names:
        queues = strategy.books.orders(exchange, symbol)
        line = f"orders name {exchange} name {symbol} {queues.stale:d} :"
        for rows, levels in (
            (queues.bids(), queues.bid_levels()),
            (queues.asks(), queues.ask_levels()),
        ):
            for row in rows:
                place = queues.place(row["order_id"].decode())
                line += (
                    f" {row['order_id'].decode()} {row['price']:.17g} {row['quantity']:.17g} "
                    f"{place.orders_before} {place.quantity_before:.17g}"
                )
            line += "".join(f" ({p:.17g} {q:.17g} {n})" for p, q, n in levels.tolist())
            line += " :"
        lines.add(line.removesuffix(" :"))
    return lines


def begun(tmp_path: Path, name: str) -> tuple[Path, Iterator[None]]:
    """Return a venue's feed that has begun: its directory, and the steps that are left."""
    directory = tmp_path / "feed"
    directory.mkdir(mode=0o700)
    steps = feed(directory, name, "feed")
    next(steps)
    return directory, steps


@pytest.mark.parametrize("name", STEPS)
def test_orders_of_a_venue_are_what_python_has(tmp_path: Path, read: Read, name: str) -> None:
    directory, steps = begun(tmp_path, name)
    strategy = Strategy(directory)
    theirs = read(f"ring:{directory}", "tail", 4096)
    assert theirs.opened == "0 open"
    seen: set[str] = set()
    for step, _ in enumerate(steps):
        strategy.follow()
        assert "orders failed" not in theirs.read()
        if step % 100 == 0 or step < 5:
            found = theirs.read("orders")
            assert len(found) == len(strategy.names) + 1
            assert set(found[:-1]) == said(strategy), f"step {step}"
            seen |= {line.split(" :")[0].split()[-1] for line in found[:-1]}
    found = theirs.read("orders")
    assert set(found[:-1]) == said(strategy)
    assert sum(len(line.split()) for line in found) > 100, "expected orders, found hardly any"
    assert np.sum([line.count("(") for line in found]) > 10
    assert "0" in seen, "none was ever without doubt"
