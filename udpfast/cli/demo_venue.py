"""`udpfast demo --venue VENUE`: a simulated exchange's orders over two lossy lines, to queues.

    send --venue .. ----- line A (loss) ----------> +------------+      +------+
                      --- line B (loss, skew) ----> | subscriber | ---> | ring | --> Books
                                                    +------------+      +------+

In the end every order that rests at the exchange must stand in its place of the queue. Where the
feed reports a gap, a book that was hit must say that it is in doubt; no other one may.
"""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path
from typing import Any

import click

from udpfast.agents.market.venue_market import VENUE_MARKETS, RestingOrder
from udpfast.cli.demo import NAME, Demonstration
from udpfast.client.books import Books
from udpfast.client.counters import counters
from udpfast.client.reader import Reader
from udpfast.market.order_queues import OrderQueues
from udpfast.monitor.ledger import ledger_of

__all__ = ["VenueDemonstration", "print_venue"]

RATE_PER_S = 1_000
# So seldom on both lines at once that most runs lose nothing, and those that do show it.
LOSS, SKEW_US = 0.005, 300
_SHOWN = 3  # levels of each side


class VenueDemonstration(Demonstration):
    """A venue's feed, from start to proof."""

    def __init__(self, directory: Path, seconds: float, seed: int, venue: str) -> None:
        super().__init__(directory, None, seconds, seed)
        self.exchange = VENUE_MARKETS[venue](seed, rate_per_s=RATE_PER_S, seconds=seconds)

    def run(self) -> dict[str, Any]:
        """Run everything; return what was found."""
        with contextlib.ExitStack() as stack:
            subscriber = stack.enter_context(self._process("run", self._feed_file(), "--quiet"))
            self._await_loop(subscriber)
            publisher = stack.enter_context(self._process("send", *self._send_options()))
            self._watch(publisher)
            published = self._last_line(publisher, "publisher")
            self._settle()
            result = self._compare(published)
            subscriber.send_signal(signal.SIGTERM)
            self._expect_end(subscriber, "subscriber")
        return result

    def _feed_file(self) -> str:
        a, b, _ = self.ports
        path = self.directory / "feed.toml"
        path.write_text(f"""name = "{NAME}"
[wire]
framing = "{self.exchange.framing}"
payload = "{self.exchange.payload}"
[[streams.lines]]
name = "A"
address = "127.0.0.1:{a}"
[[streams.lines]]
name = "B"
address = "127.0.0.1:{b}"
[window]
lost_packet_wait_us = 50_000
[ring]
capacity_bytes = {1 << 28}
[books]
orders = true
orders_max = 10_000
""")
        return str(path)

    def _send_options(self) -> list[str]:
        a, b, _ = self.ports
        return [
            *("--venue", self.exchange.payload, "--simulate", "--json", "--seed", str(self.seed)),
            *("--seconds", str(self.seconds), "--rate", str(RATE_PER_S)),
            *("--incremental", f"127.0.0.1:{a},127.0.0.1:{b}"),
            *("--loss", str(LOSS), "--skew-us", str(SKEW_US)),
        ]

    def _compare(self, published: dict[str, Any]) -> dict[str, Any]:
        for _ in self.exchange:
            pass
        with Reader(f"ring:{NAME}", start="begin") as reader:
            books = Books(reader)
            while len(books.poll(timeout=0)):
                pass
            found = {
                symbol: _symbol(books.orders(self.exchange.exchange, symbol), sides)
                for symbol, sides in self.exchange.books().items()
            }
        values = counters(NAME)
        doubted = any(one["stale"] for one in found.values())
        return {
            "ok": ledger_of(values).adds_up
            and all(one["equal"] or one["stale"] for one in found.values())
            and (not doubted or values["incremental"]["gaps"] > 0),
            "seed": self.seed,
            "published": published,
            "counters": values,
            "lost_on_all_lines": published["lost_on_all_lines"]["incremental"],
            "symbols": found,
        }


def _symbol(
    queues: OrderQueues, sides: tuple[list[RestingOrder], list[RestingOrder]]
) -> dict[str, Any]:
    # What is kept of a symbol, beside what rests at the exchange.
    kept = [queues.bids(), queues.asks()]
    equal = all(
        [(int(row["order_id"]), round(row["price"] * 10_000), row["quantity"]) for row in rows]
        == [(one.number, one.price, one.shares) for one in side]
        for rows, side in zip(kept, sides, strict=True)
    )
    return {
        "orders": len(queues),
        "stale": queues.stale,
        "equal": equal,
        "bids": queues.bid_levels(_SHOWN).tolist(),
        "asks": queues.ask_levels(_SHOWN).tolist(),
    }


def print_venue(result: dict[str, Any]) -> None:
    """Print the books, and whether they are what rests at the exchange."""
    for symbol, one in result["symbols"].items():
        state = "in doubt" if one["stale"] else "equal" if one["equal"] else "NOT EQUAL"
        click.echo(f"{symbol}: {one['orders']} orders in their queues, {state}")
        for bid, ask in zip(one["bids"], one["asks"], strict=False):
            click.echo(
                f"  {bid[2]:3} orders {bid[1]:7,.0f} x {bid[0]:9.2f} | "
                f"{ask[0]:9.2f} x {ask[1]:7,.0f} {ask[2]:3} orders"
            )
    published = result["published"]
    click.echo(
        f"{published['messages']:,} datagrams over two lines, "
        f"{sum(line['lost_on_purpose'] for line in published['lines']):,} lost on one of them, "
        f"{result['lost_on_all_lines']:,} on both"
    )
