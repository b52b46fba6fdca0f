"""`udpfast demo --venue VENUE`: a simulated exchange's orders over two lossy lines, to queues.

    send --venue .. ----- line A (loss) ----------> +------------+      +------+
                      --- line B (loss, skew) ----> | subscriber | ---> | ring | --> Books
                      --- its loops (loss) -------> |            |      |      |
                                                    +------------+      +------+

In the end every order that rests at the exchange must stand in its place of the queue. Where the
feed reports a gap, a book that was hit must say that it is in doubt; no other one may. An exchange
whose loops repeat all of it loses far more, and no book may be in doubt in the end.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
from pathlib import Path
from typing import Any

import click

from udpfast.agents.market.exchanges import VENUE_MARKETS
from udpfast.agents.market.venue_market import RestingOrder
from udpfast.cli.demo import NAME, Demonstration
from udpfast.client.books import Books
from udpfast.client.counters import counters
from udpfast.client.reader import Reader
from udpfast.monitor.ledger import ledger_of
from udpfast.net.ports import free_ports

__all__ = ["VenueDemonstration", "print_venue"]

RATE_PER_S = 1_000
# So seldom on both lines at once that most runs lose nothing, and those that do show it.
LOSS, SKEW_US = 0.005, 300
# Both at once every 25th datagram.
LOSS_HEALED = 0.2
_SHOWN = 3  # levels of each side

_Side = list[RestingOrder]


class VenueDemonstration(Demonstration):
    """A venue's feed, from start to proof."""

    def __init__(self, directory: Path, seconds: float, seed: int, venue: str) -> None:
        super().__init__(directory, None, seconds, seed)
        self.exchange = VENUE_MARKETS[venue](seed, rate_per_s=RATE_PER_S, seconds=seconds)
        self.loss = LOSS_HEALED if self.exchange.loops else LOSS
        self.ports = free_ports(2 + len(self.exchange.loops))

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
        a, b, *loops = self.ports
        path = self.directory / "feed.toml"
        looped = "".join(
            f'[[{role}.lines]]\nname = "L{port}"\naddress = "127.0.0.1:{port}"\n'
            for role, port in zip(self.exchange.loops, loops, strict=True)
        )
        path.write_text(f"""name = "{NAME}"
[wire]
framing = "{self.exchange.framing}"
payload = "{self.exchange.payload}"
streams_max = 8
[[streams.lines]]
name = "A"
address = "127.0.0.1:{a}"
[[streams.lines]]
name = "B"
address = "127.0.0.1:{b}"
{looped}[window]
lost_packet_wait_us = 50_000
[ring]
capacity_bytes = {1 << 28}
[books]
orders = true
orders_max = 10_000
""")
        return str(path)

    def _send_options(self) -> list[str]:
        a, b, *loops = self.ports
        addresses: dict[str, list[str]] = {}
        for role, port in zip(self.exchange.loops, loops, strict=True):
            addresses.setdefault(role, []).append(f"127.0.0.1:{port}")
        looped = ((f"--{role}", ",".join(where)) for role, where in addresses.items())
        return [
            *("--venue", self.exchange.payload, "--simulate", "--json", "--seed", str(self.seed)),
            *("--seconds", str(self.seconds), "--rate", str(RATE_PER_S)),
            *("--incremental", f"127.0.0.1:{a},127.0.0.1:{b}"),
            *itertools.chain.from_iterable(looped),
            *("--loss", str(self.loss), "--skew-us", str(SKEW_US)),
        ]

    def _compare(self, published: dict[str, Any]) -> dict[str, Any]:
        self.exchange.end_ns = published["end_ns"]  # earlier on a host that is far too slow
        for _ in self.exchange:
            pass
        with Reader(f"ring:{NAME}", start="begin") as reader:
            books = Books(reader)
            while len(books.poll(timeout=0)):
                pass
            found = {
                symbol: self._symbol(books, symbol, sides)
                for symbol, sides in self.exchange.books().items()
            }
        values = counters(NAME)
        doubted = [symbol for symbol, one in found.items() if one["stale"]]
        excused = values["incremental"]["gaps"] > 0 and not self.exchange.loops
        wrong = [symbol for symbol, one in found.items() if not (one["equal"] or one["stale"])]
        why = []
        if not ledger_of(values).adds_up:
            why.append("the counters do not add up")
        if wrong:
            why.append(f"books not equal to the exchange's: {', '.join(wrong)}")
        if doubted and not excused:
            reason = (
                "the loops should have healed them"
                if self.exchange.loops
                else "the feed reported no gap"
            )
            why.append(f"books in doubt: {', '.join(doubted)}, although {reason}")
        return {
            "ok": not why,
            "why": why,
            "seed": self.seed,
            "published": published,
            "counters": values,
            "lost_on_all_lines": published["lost_on_all_lines"]["incremental"],
            "symbols": found,
        }

    def _symbol(self, books: Books, symbol: str, sides: tuple[_Side, _Side]) -> dict[str, Any]:
        # What is kept of a symbol, beside what rests at the exchange.
        name = (self.exchange.exchange, symbol)
        queues = books.orders(*name)
        book = books.get(name)
        levels = [[], []] if book is None else [book.bids().tolist(), book.asks().tolist()]
        kept = [queues.bids(), queues.asks()]
        equal = all(
            [(int(row["order_id"]), round(row["price"] * 10_000), row["quantity"]) for row in rows]
            == [(one.number, one.price, one.shares) for one in side]
            for rows, side in zip(kept, sides, strict=True)
        ) and levels == [_levels(side, self.exchange.depth) for side in sides]
        return {
            "orders": len(queues),
            "stale": queues.stale or book is None or book.stale,
            "equal": equal,
            "bids": queues.bid_levels(_SHOWN).tolist(),
            "asks": queues.ask_levels(_SHOWN).tolist(),
        }


def _levels(side: _Side, depth: int) -> list[list[float]]:
    # Price and quantity of the best ones; 0: of all.
    prices: dict[int, int] = {}
    for one in side:
        prices[one.price] = prices.get(one.price, 0) + one.shares
    return [[price / 10_000, float(shares)] for price, shares in prices.items()][: depth or None]


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
    lost = {"incremental": 0, "recovery": 0, "definitions": 0}
    for line in published["lines"]:
        lost[line["channel"]] += line["lost_on_purpose"]
    click.echo(
        f"{published['messages']:,} datagrams over two lines, "
        f"{lost['incremental']:,} lost on one of them, {result['lost_on_all_lines']:,} on both"
    )
    if looped := lost["recovery"] + lost["definitions"]:
        feed = result["counters"]["feed"]
        click.echo(
            f"{looped:,} lost of the loops; books recovered {feed['recovered_snapshot']:,} times "
            f"by a snapshot, {feed['recovered_chain']:,} times by their own numbers"
        )
    if result["ok"] and any(one["stale"] for one in result["symbols"].values()):
        click.echo(
            "in doubt: a message that both lines lost may have been of these books, and this venue "
            "repeats nothing that would heal them. That they say so is what is proven here"
        )
    click.echo("\nok" if result["ok"] else f"\nNOT OK: {'; '.join(result['why'])}")
