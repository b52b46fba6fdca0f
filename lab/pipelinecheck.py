"""The pipeline, from the socket to gold, against what is known of the market that was sent.

    publisher --- line A (loss, reorder) -----> +-----+    +------+    +---------+    +------+
    recorded  --- line B (loss, late, other) -> | run | -> | ring | -> | journal | -> | gold |
    market    --- snapshots ------------------> +-----+    +------+    +---------+    +------+
                                                  every datagram ---------> raw -------^

    udpfast lab pipelinecheck --market PREFIX --expected expected.json --seed 7

`expected.json` says for each instrument what any correct reader must find: count, sums and VWAP of
its trades, its quotes, its final best levels. Both lines lose datagrams, each others; what both
lost makes gaps, and the table of losses must say as many as the feed did, the table of races what
its counters say. Exit code 1 if anything differs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from udpfast.cli.options import FiniteRange
from udpfast.client.counters import counters
from udpfast.errors import NotReadyError, UdpfastError
from udpfast.net.ports import free_ports
from udpfast.spark.gold import Gold
from udpfast.spark.reasons import IN_GAPS, lost_by

from .program import program

__all__ = ["compare_books", "compare_feed", "compare_quotes", "compare_trades", "main"]

NAME = "pipeline"
RECORDING_S = 650
CHANNELS = ("incremental", "snapshot")

#: Sums of floats in another order: their last digits differ.
TOLERANCE = 1e-9


class Finding(dict[str, Any]):
    """What was compared: `what`, `expected`, `found`, `equal`."""


def finding(what: str, expected: Any, found: Any, tolerance: float = 0.0) -> Finding:
    """Compare two values, floats within a tolerance."""
    equal = expected == found
    if tolerance and isinstance(expected, float | int) and isinstance(found, float | int):
        equal = abs(expected - found) <= tolerance * max(abs(expected), 1)
    return Finding(what=what, expected=expected, found=found, equal=equal)


@program
@click.option("--market", required=True, help="PREFIX of the recorded market.")
@click.option("--expected", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--set", "name", help="Of expected.json; by default the prefix's last word.")
@click.option("--out", type=click.Path(path_type=Path), help="Keep everything there.")
@click.option("--seconds", type=FiniteRange(0), default=65.0, show_default=True)
@click.option("--loss", type=FiniteRange(0, 1), default=0.002, help="Of each line.")
@click.option("--seed", default=7, show_default=True, help="Of the losses.")
@click.option("--master", default="local[*]", show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(
    market: str,
    expected: Path,
    name: str | None,
    out: Path | None,
    seconds: float,
    loss: float,
    seed: int,
    master: str,
    as_json: bool,
) -> int:
    """Publish, receive, record, analyse, compare; return how many values differ."""
    known = json.loads(expected.read_text())[name or Path(market).name]
    with tempfile.TemporaryDirectory(prefix="udpfast-pipeline-") as temporary:
        directory = (out or Path(temporary)).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        published, values = receive(directory, market, seconds, loss, seed)
        analyse(directory, master)
        gold = Gold(str(directory / "gold"))
        findings = [
            *compare_trades(gold, known),
            *compare_quotes(gold, known, values["incremental"]["lost"]),
            *compare_books(gold, known),
            *compare_feed(gold, values),
        ]
    differ = [one for one in findings if not one["equal"]]
    lost = published["lost_on_all_lines"]
    if as_json:
        click.echo(json.dumps({"ok": not differ, "findings": findings, "published": published}))
    for one in [] if as_json else findings:
        sign = "=" if one["equal"] else "IS NOT"
        click.echo(f"{one['what']}: {one['found']} {sign} {one['expected']}")
    click.echo(
        f"{len(findings)} values compared, {len(differ)} differ; "
        f"{published['messages']:,} messages published, lost on both lines: {lost}",
        err=as_json,
    )
    return len(differ)


def receive(
    directory: Path, market: str, seconds: float, loss: float, seed: int
) -> tuple[dict[str, Any], dict[str, dict[str, int]]]:
    """Publish the market over two bad lines; return the publisher's and the feed's own numbers."""
    a, b, snapshot = free_ports(3)
    feed = directory / "feed.toml"
    lines = "".join(
        f'[[{channel}.lines]]\nname = "{name}"\naddress = "127.0.0.1:{port}"\n'
        for channel, name, port in (
            ("incremental", "A", a),
            ("incremental", "B", b),
            ("snapshot", "A", snapshot),
        )
    )
    feed.write_text(
        f'name = "{NAME}"\n{lines}[window]\nlost_packet_wait_us = 200_000\n'
        f"[ring]\ncapacity_bytes = {1 << 28}\n"
        f'[record]\nenabled = true\nwhat = "both"\ndirectory = "{directory}/journal"\n'
        f'sync = "none"\ncapture_bytes = {1 << 28}\n'
    )
    environment = {**os.environ, "UDPFAST_SHM": str(directory / "shm")}
    os.environ["UDPFAST_SHM"] = environment["UDPFAST_SHM"]
    run = [sys.executable, "-m", "udpfast"]
    subscriber = subprocess.Popen([*run, "run", str(feed), "--quiet"], env=environment)
    try:
        await_loop(subscriber)
        command = [
            *(*run, "send", "--market", market, "--speed", str(RECORDING_S / seconds)),
            *("--incremental", f"127.0.0.1:{a},127.0.0.1:{b}"),
            *("--snapshot", f"127.0.0.1:{snapshot}", "--seed", str(seed)),
            *("--loss", str(loss), "--reorder", "0.005", "--duplicate", "0.002"),
            *("--skew-us", "300", "--linger", "3", "--json"),
        ]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        settle()
        values = counters(NAME)
    finally:
        subscriber.send_signal(signal.SIGTERM)
        subscriber.wait(timeout=60)
    return json.loads(done.stdout.splitlines()[-1]), values


def await_loop(subscriber: subprocess.Popen[bytes]) -> None:
    """Wait until the subscriber reads its sockets."""
    deadline = time.monotonic() + 30
    while True:
        try:
            if counters(NAME)["feed"]["cycles"]:
                return
        except (FileNotFoundError, NotReadyError):
            pass
        if subscriber.poll() is not None or time.monotonic() > deadline:
            raise UdpfastError("the subscriber did not begin to receive within 30 s")
        time.sleep(0.05)


def settle() -> None:
    """Wait until nothing moves but heartbeats."""
    before, unchanged = -1, 0
    while unchanged < 5:
        now = counters(NAME)["incremental"]["messages"]
        unchanged = unchanged + 1 if now == before else 0
        before = now
        time.sleep(0.05)


def analyse(directory: Path, master: str) -> None:
    """Run the pipeline over what was recorded."""
    command = [
        *(sys.executable, "-m", "udpfast", "spark", "run", str(directory / "journal")),
        *(str(directory / "gold"), "--master", master, "--json"),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def rows_of(gold: Gold, name: str) -> dict[str, list[dict[str, Any]]]:
    """Return a gold table's rows by instrument."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in gold.table(name, 1_000_000).to_pylist():
        found.setdefault(f"{row['exchange']}:{row['symbol']}", []).append(row)
    return found


def compare_trades(gold: Gold, known: dict[str, Any]) -> Iterator[Finding]:
    """Compare counts, sums and prices of all trades."""
    names = {
        "trades": "count",
        "volume": "qty_sum",
        "notional": "notional_sum",
        "vwap": "vwap",
        "low": "min",
        "high": "max",
        "open": "first",
        "close": "last",
        "taker_buys": "taker_buys",
    }
    own = rows_of(gold, "instruments")
    for instrument, values in instruments(known):
        row = own.get(instrument, [{}])[0]
        for name, expected in names.items():
            what = f"{instrument} trades {expected}"
            yield finding(what, values["trades"][expected], row.get(name), TOLERANCE)


def compare_quotes(gold: Gold, known: dict[str, Any], lost: int) -> Iterator[Finding]:
    """Compare quotes: all but `lost` of all instruments are there; where all are, their mean."""
    own = rows_of(gold, "spreads")
    missing = 0
    for instrument, values in instruments(known):
        rows = own.get(instrument, [])
        count = sum(row["quotes"] for row in rows)
        total = sum(row["quotes"] * row["spread_mean"] for row in rows)
        last = max(rows, key=lambda row: row["time"], default={})
        quotes = values["quotes"]
        missing += quotes["count"] - count
        if count == quotes["count"]:
            # The file's own precision: eight digits behind the point.
            mean = round(total / count, 8)
            yield finding(f"{instrument} mean spread", quotes["mean_spread"], mean, 2e-8)
        best = [last.get("bid_price"), last.get("ask_price")]
        yield finding(f"{instrument} last quote", [quotes["last"][0], quotes["last"][2]], best)
    yield finding(f"quotes missing beyond the {lost} messages lost", 0, max(missing - lost, 0))


def compare_books(gold: Gold, known: dict[str, Any]) -> Iterator[Finding]:
    """Compare the best levels of the final books."""
    own = rows_of(gold, "depth")
    for instrument, values in instruments(known):
        row = own.get(instrument, [{}])[0]
        for side in ("bid", "ask"):
            best = [row.get(f"{side}_price"), row.get(f"{side}_quantity")]
            yield finding(f"{instrument} final {side}", values["l2"]["final_book"][side], best)


def instruments(known: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what is known of each instrument."""
    for name, values in known.items():
        if not name.startswith("_"):
            yield name, values


def compare_feed(gold: Gold, values: dict[str, dict[str, int]]) -> Iterator[Finding]:
    """Compare gaps and races with what the feed counted itself."""
    losses = gold.table("losses", 10_000).to_pylist()
    races = gold.table("races", 100).to_pylist()
    lines = gold.table("lines", 10_000).to_pylist()
    for number, channel in enumerate(CHANNELS):
        own = [row for row in losses if row["stream"] == number]
        found = {
            "gaps": sum(row["gaps"] for row in own),
            "lost": sum(row[lost_by(reason)] for row in own for reason in IN_GAPS),
        }
        for name, count in found.items():
            yield finding(f"{channel} {name}", values[channel][name], count)
        for scope, line in values.items():
            if not scope.startswith(f"{channel}."):
                continue
            index = [one for one in values if one.startswith(f"{channel}.")].index(scope)
            won = [row for row in races if (row["stream"], row["line"]) == (number, index)]
            # The feed counts which copy its loop took first.
            taken = sum(row["taken_first"] for row in won)
            yield finding(f"{scope} wins", line["wins"], taken)
            contested = sum(row["taken_first"] - row["taken_alone"] for row in won)
            yield finding(f"{scope} leads", line["leads"], contested)
            saved = sum(row["taken_ns"] for row in won)
            yield finding(f"{scope} lead_ns", line["lead_ns"], saved)
            came = [row for row in lines if (row["stream"], row["line"]) == (number, index)]
            behind = sum(row["brought"] - row["first"] for row in came)
            yield finding(f"{scope} ties_lost", line["ties_lost"], behind)
