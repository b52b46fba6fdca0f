"""`udpfast demo`: the whole feed on loopback, and the proof that nothing was lost unexplained.

    publisher --- line A (loss, reorder) ----> +------------+      +------+ --> strategy 1 (records)
     real or  --- line B (loss, skew) -------> | subscriber | ---> | ring |
     simulated--- snapshots -----------------> +------------+      +------+ --> strategy 2 (batches)

Four processes. The publisher restarts once on the way. In the end both strategies' books must equal
what was published, and every message that is missing must be one that the bad network swallowed
on both lines. With --report, what the subscriber saw is kept, and becomes a page by Spark.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import click
from msgspec import to_builtins

from udpfast.agents.market.market_recording import recording_span_ns
from udpfast.cli.child import child_command
from udpfast.cli.demo_report import make_report, what_a_report_lacks
from udpfast.cli.draw import print_latency, print_ledger
from udpfast.cli.options import FiniteRange, IntRange, OutputFile, write_output
from udpfast.cli.scratch import scratch_directory
from udpfast.cli.send import describe_missing
from udpfast.cli.send_options import VENUES
from udpfast.client.counters import counters
from udpfast.client.latency import latency
from udpfast.core.stop import raise_once
from udpfast.errors import NotReadyError, UdpfastError
from udpfast.monitor.ledger import ledger_of
from udpfast.net.ports import free_ports

__all__ = ["demo"]

NAME = "demo"
STYLES = ("iterate", "poll")
PROCESSES = 2 + len(STYLES)  # publisher, subscriber, strategies
MARKET_SET = "binance_20240808"
# How the two lines are bad: A is the fast one and loses, B comes later and loses other datagrams.
LOSS, REORDER, DUPLICATE, SKEW_US = 0.01, 0.005, 0.002, 300
# Time after the last event: for a snapshot round, and for holes to be filled or given up.
SETTLE_S = 2.5
# A recording may be of several days: its silences are cut to this, by the market's time.
SILENCE_S = 1.0
# The simulated market's.
EVENTS_PER_S = 10_000
# When the publisher restarts, as a share of the run: early enough for a busy host to get there.
RESTART = 0.1
# A host that is too busy for the pace of a recording is given more time, then the rest is left out.
OVERTIME = 2.2
# What it takes to begin, to settle and to compare on a quiet host.
SPARE_S = 10.0
# A process that does not begin, end, or move anything for so long hangs: no host is so busy.
PATIENCE_S = 120.0


class DemonstrationError(UdpfastError):
    """A process of the demonstration failed."""


@click.command(epilog="Example: udpfast demo --json --books books.json")
@click.option(
    "--seconds",
    type=FiniteRange(3, 300),
    default=20.0,
    show_default=True,
    help="How long to publish; a recording is played as fast as needed to fit.",
)
@click.option(
    "--seed",
    type=int,
    default=7,
    show_default=True,
    help="Seed of the bad network and of the simulated market.",
)
@click.option(
    "--market",
    "market_path",
    metavar="PREFIX",
    type=click.Path(path_type=Path),
    help="Play this recording: PREFIX_l2.parquet, _trades and _quotes.",
)
@click.option(
    "--simulate", is_flag=True, help="Use the simulated market even if recorded data is available."
)
@click.option(
    "--venue",
    type=click.Choice(VENUES),
    help="Show single orders in their queues instead of the books of levels, published as this "
    "venue does.",
)
@click.option(
    "--levels",
    type=IntRange(min=2),
    default=200,
    show_default=True,
    help="Levels that each simulated book begins with.",
)
@click.option(
    "--books",
    "books_path",
    type=OutputFile(),
    help="Write the final books of the first strategy to this file as JSON.",
)
@click.option(
    "--report",
    "report_path",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep everything received in this directory and make a report of it (needs "
    "udpfast[spark]).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on the last line.")
def demo(
    seconds: float,
    seed: int,
    market_path: Path | None,
    simulate: bool,
    venue: str | None,
    levels: int,
    books_path: Path | None,
    report_path: Path | None,
    as_json: bool,
) -> None:
    """Publish a market over two lossy lines on loopback, and check everything that arrives.

    Takes half a minute: --seconds, and on a quiet host ten more to begin, settle and compare.

    Exit code 1 if a book differs, a sum does not add up, or a loss has no explanation.
    """
    if market_path and simulate:
        raise click.UsageError("choose one of --market and --simulate")
    if venue and (market_path or books_path or report_path):
        raise click.UsageError(
            "--venue has a market of its own: leave out --market, --books, --report"
        )
    raise_once()
    if venue:
        _venue(venue, seconds, seed, as_json)
    market = None if simulate else market_path or find_market()
    lacking = what_a_report_lacks() if report_path else None
    kept = None if lacking else report_path
    with scratch_directory("udpfast-demo-") as directory:
        result = Demonstration(directory, market, seconds, seed, kept, levels).run()
    books = result.pop("books")
    print_summary(result)
    if kept is not None:
        result["report"] = str(make_report(kept))
        click.echo(f"report: {result['report']}")
    elif lacking:
        click.echo(f"no report: {lacking}")
    if as_json:
        click.echo(json.dumps(result, default=to_builtins))
    if books_path is not None:
        write_output(books_path, json.dumps(books))
    sys.exit(0 if result["ok"] else 1)


def _venue(venue: str, seconds: float, seed: int, as_json: bool) -> NoReturn:
    from udpfast.cli.demo_venue import VenueDemonstration, print_venue

    with scratch_directory("udpfast-demo-") as directory:
        result = VenueDemonstration(directory, seconds, seed, venue).run()
    print_venue(result)
    if as_json:
        click.echo(json.dumps(result, default=to_builtins))
    sys.exit(0 if result["ok"] else 1)


def find_market() -> Path | None:
    """Return the prefix of the real data set, or None where it is not there."""
    shared = Path(os.environ.get("UDPFAST_SHARED", "../shared"))
    prefix = shared / "data" / "market" / MARKET_SET
    return prefix if prefix.with_name(f"{MARKET_SET}_l2.parquet").exists() else None


class Demonstration:
    """The four processes, from start to proof."""

    def __init__(
        self,
        directory: Path,
        market: Path | None,
        seconds: float,
        seed: int,
        kept: Path | None = None,
        levels: int = 200,
    ) -> None:
        """Prepare to play `market` (None: a simulated one) with everything below `directory`.

        What is received is recorded below `kept`, if that is asked for.
        """
        self.directory = directory
        self.market = market
        self.seconds = seconds
        self.seed = seed
        self.kept = kept
        self.levels = levels
        self.market_s = seconds
        if market is not None:
            self.market_s = max(recording_span_ns(market, int(SILENCE_S * 1e9)) / 1e9, 1e-3)
        self.ports = free_ports(3)
        self.environment = {**os.environ, "UDPFAST_SHM": str(directory / "shm")}
        os.environ["UDPFAST_SHM"] = self.environment["UDPFAST_SHM"]

    def run(self) -> dict[str, Any]:
        """Run everything; return what was found."""
        then_s = self.seconds + SPARE_S
        click.echo(
            f"publishing for {self.seconds:g} s: results in {then_s:g} s, later on a busy host"
        )
        with contextlib.ExitStack() as stack:
            subscriber = stack.enter_context(self._process("run", self._feed_file(), "--quiet"))
            strategies = [stack.enter_context(self._strategy(style)) for style in STYLES]
            self._await_readers(strategies)
            self._await_loop(subscriber)
            publisher = stack.enter_context(self._process("send", *self._send_options()))
            self._watch(publisher)
            published = self._last_line(publisher, "publisher")
            self._settle()
            subscriber.send_signal(signal.SIGTERM)
            self._expect_end(subscriber, "subscriber")
            for strategy in strategies:
                self._expect_end(strategy, "strategy")
        return self._judge(published)

    def _feed_file(self) -> str:
        # A wait beyond what a stopped process costs on a busy laptop: a copy that is late for that
        # reason alone shall not look like a loss.
        a, b, snapshot = self.ports
        path = self.directory / "feed.toml"
        record = ""
        if self.kept is not None:
            # What an earlier demonstration has left is of another market.
            for old in ("journal", "export"):
                shutil.rmtree(self.kept / old, ignore_errors=True)
            journal = (self.kept / "journal").resolve()
            record = f'[record]\nenabled = true\nwhat = "both"\ndirectory = "{journal}"\n'
        path.write_text(f"""name = "{NAME}"
[[incremental.lines]]
name = "A"
address = "127.0.0.1:{a}"
[[incremental.lines]]
name = "B"
address = "127.0.0.1:{b}"
[[snapshot.lines]]
name = "A"
address = "127.0.0.1:{snapshot}"
[window]
lost_packet_wait_us = 50_000
[ring]
capacity_bytes = {1 << 28}
{record}""")
        return str(path)

    def _send_options(self) -> list[str]:
        a, b, snapshot = self.ports
        if self.market:
            source = ["--market", str(self.market), "--silence", str(SILENCE_S)]
            source += ["--seconds", str(self.seconds * OVERTIME)]
        else:  # so many events, however long a busy host takes for them
            source = ["--simulate", "--levels", str(self.levels)]
            source += ["--count", str(int(self.seconds * EVENTS_PER_S))]
        speed = self.market_s / self.seconds
        return [
            *source,
            "--incremental",
            f"127.0.0.1:{a},127.0.0.1:{b}",
            "--snapshot",
            f"127.0.0.1:{snapshot}",
            "--speed",
            str(speed),
            "--loss",
            str(LOSS),
            "--reorder",
            str(REORDER),
            "--duplicate",
            str(DUPLICATE),
            "--skew-us",
            str(SKEW_US),
            "--seed",
            str(self.seed),
            "--restart-at",
            str(self.seconds * RESTART * speed),  # by the market's time
            "--linger",
            str(SETTLE_S),
            "--books",
            str(self.directory / "published.json"),
            "--json",
        ]

    def _strategy(self, style: str) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
        return self._process(
            NAME,
            "--style",
            style,
            "--report",
            str(self.directory / f"{style}.json"),
            command="udpfast.cli.demo_strategy:strategy",
        )

    @contextlib.contextmanager
    def _process(self, *arguments: str, **named: str) -> Iterator[subprocess.Popen[str]]:
        words = child_command(*arguments, **named)
        # stderr is not captured: what a process complains about is for the person to read.
        process = subprocess.Popen(words, env=self.environment, stdout=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def _await_readers(self, strategies: list[subprocess.Popen[str]]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        readers = self.directory / "shm" / NAME / "readers"
        while not readers.is_dir() or len(list(readers.iterdir())) < len(strategies):
            if any(strategy.poll() is not None for strategy in strategies):
                raise DemonstrationError("a strategy ended before it attached to the feed")
            if time.monotonic() > deadline:
                raise DemonstrationError(
                    f"the strategies did not attach within {PATIENCE_S:.0f} s; this host may be "
                    "too busy"
                )
            time.sleep(0.02)

    def _await_loop(self, subscriber: subprocess.Popen[str]) -> None:
        # The ring is there before the sockets are: what is published before the loop turns is
        # lost before anyone could know of it.
        deadline = time.monotonic() + PATIENCE_S
        while self._cycles() == 0:
            if subscriber.poll() is not None or time.monotonic() > deadline:
                raise DemonstrationError(
                    f"the subscriber did not begin to receive within {PATIENCE_S:.0f} s; this "
                    "host may be too busy"
                )
            time.sleep(0.02)

    def _cycles(self) -> int:
        try:
            return counters(NAME)["feed"]["cycles"]
        except (FileNotFoundError, NotReadyError):  # the ring comes before the counters
            return 0

    def _watch(self, publisher: subprocess.Popen[str]) -> None:
        # A line that a person can follow, until the publisher is done.
        live = sys.stderr.isatty()
        started = moved = time.monotonic()
        datagrams = 0
        while publisher.poll() is None:
            time.sleep(0.5 if live else 2.0)
            now, values = time.monotonic(), counters(NAME)
            before, datagrams = datagrams, ledger_of(values).datagrams
            moved = now if datagrams != before else moved
            if now - moved > PATIENCE_S:
                raise DemonstrationError(f"nothing was published for {PATIENCE_S:.0f} s")
            text = progress(now - started, values)
            click.echo(f"\r{text}\x1b[K" if live else text, err=True, nl=not live)
        if live:
            click.echo("", err=True)

    def _settle(self) -> None:
        # What is still in the sockets is taken within milliseconds: wait until nothing moves.
        before, unchanged = None, 0
        while unchanged < 5:
            now = ledger_of(counters(NAME)).datagrams
            unchanged = unchanged + 1 if now == before else 0
            before = now
            time.sleep(0.05)

    def _last_line(self, process: subprocess.Popen[str], role: str) -> dict[str, Any]:
        output, _ = process.communicate(timeout=PATIENCE_S)
        if process.returncode != 0:
            raise DemonstrationError(f"the {role} ended with exit code {process.returncode}")
        result: dict[str, Any] = json.loads(output.splitlines()[-1])
        return result

    def _expect_end(self, process: subprocess.Popen[str], role: str) -> None:
        process.communicate(timeout=PATIENCE_S)
        if process.returncode != 0:
            raise DemonstrationError(f"a {role} ended with exit code {process.returncode}")

    def _judge(self, published: dict[str, Any]) -> dict[str, Any]:
        values = counters(NAME)
        ledger = ledger_of(values)
        truth = json.loads((self.directory / "published.json").read_text())
        reports = {
            style: json.loads((self.directory / f"{style}.json").read_text()) for style in STYLES
        }
        books = reports[STYLES[0]]["books"]
        comparisons = {
            style: compare_books(truth, report.pop("books")) for style, report in reports.items()
        }
        missing = account_for_missing(values, published)
        for style, report in reports.items():
            report["books_equal"] = sum(comparisons[style].values())
            report["books_differ"] = sorted(
                name for name, equal in comparisons[style].items() if not equal
            )
        ok = (
            ledger.adds_up
            and missing["unexplained"] == 0
            and missing["unreported"] == 0
            and values["incremental"]["sessions"] == len(published["sessions"])
            and any(book["bids"] or book["asks"] for book in truth.values())
            and all(all(equal.values()) for equal in comparisons.values())
            and not any(report["lapped"] or report["stale"] for report in reports.values())
        )
        return {
            "ok": ok,
            "market": self.market.name if self.market else "simulated",
            "seed": self.seed,
            "published": published,
            "ledger": ledger,
            "counters": values,
            "missing": missing,
            "latency_ns": latency(self.directory / "shm" / NAME),
            "strategies": reports,
            "levels": sum(len(book["bids"]) + len(book["asks"]) for book in truth.values()),
            "books": books,
        }


def account_for_missing(
    values: dict[str, dict[str, int]], published: dict[str, Any]
) -> dict[str, int]:
    """Explain every message of the incremental channel that was published and not delivered.

    Swallowed on every line by the bad network. Or, of a host that was too busy: dropped by the
    kernel, or later than a hole is waited for. Or still under way, or waiting behind a hole, when
    their session ended. All are counted, by the publisher, by the kernel and by the windows. The
    rest is unexplained, and so is any surplus.

    And everything that is missing within a session must have been reported as a gap. Only the
    first and the last message of a session leave no hole.
    """
    incremental = values["incremental"]
    lines = [scope for scope in values if scope.startswith("incremental.")]
    published_messages = published["channels"]["incremental"]["messages"]
    not_delivered = published_messages - incremental["messages"]
    swallowed = published["lost_on_all_lines"]["incremental"]
    kernel = sum(values[line]["kernel_drops"] for line in lines)
    late = sum(values[line]["late"] for line in lines)
    ended = incremental["session_discarded"] + sum(
        values[line]["session_retired"] for line in lines
    )
    beyond = not_delivered - swallowed
    excused = min(max(beyond, 0), kernel + late + ended)
    silent = not_delivered - incremental["lost"]
    ends = 2 * len(published["sessions"])
    return {
        "not_delivered": not_delivered,
        "swallowed_on_all_lines": swallowed,
        "kernel_drops": kernel,
        "late": late,
        "ended_with_session": ended,
        "dropped_late_or_ended": excused,
        "unexplained": beyond - excused,
        "unreported": silent - min(max(silent, 0), kernel + ended + ends),
    }


def compare_books(truth: dict[str, Any], books: dict[str, Any]) -> dict[str, bool]:
    """Compare published and received books, level by level; names of both sides are looked at."""
    return {
        name: truth.get(name) is not None
        and books.get(name) is not None
        and truth[name]["bids"] == books[name]["bids"]
        and truth[name]["asks"] == books[name]["asks"]
        for name in sorted(truth.keys() | books.keys())
    }


def progress(elapsed_s: float, values: dict[str, dict[str, int]]) -> str:
    """Return one line about how far the feed is."""
    datagrams = ledger_of(values).datagrams
    incremental, feed = values["incremental"], values["feed"]
    return (
        f"{elapsed_s:5.1f} s  {datagrams:>9,} datagrams  {incremental['messages']:>8,} messages  "
        f"{incremental['gaps']:>4} gaps  {incremental['lost']:>4} lost  "
        f"{feed['recovered_chain'] + feed['recovered_snapshot']:>4} recoveries  "
        f"{incremental['sessions']} sessions"
    )


def print_summary(result: dict[str, Any]) -> None:
    """Print what happened, for people."""
    incremental, feed = result["counters"]["incremental"], result["counters"]["feed"]
    missing = result["missing"]
    published = result["published"]
    click.echo(
        f"\nmarket {result['market']}, seed {result['seed']}: {published['events']:,} events"
        + ("" if published["finished"] else ", then the time limit cut it off")
    )
    for sentence in describe_missing(published):
        click.echo(sentence)
    click.echo("")
    print_ledger(result["counters"], result["ledger"])
    click.echo(
        f"\nmessages   {incremental['messages']:>10,} delivered in order, in "
        f"{incremental['sessions']} sessions"
    )
    click.echo(
        f"missing    {missing['not_delivered']:>10,} = "
        f"{missing['swallowed_on_all_lines']:,} lost on both lines by the bad network + "
        f"{missing['dropped_late_or_ended']:,} among datagrams dropped by the kernel "
        f"({missing['kernel_drops']:,}), late ({missing['late']:,}) or ended with their session "
        f"({missing['ended_with_session']:,}) + {missing['unexplained']:,} unexplained"
    )
    click.echo(f"gaps       {incremental['gaps']:>10,} reported, {incremental['lost']:,} seqnos")
    click.echo(
        f"objects    {feed['stale']:>10,} times stale; recovered {feed['recovered_chain']:,} "
        f"times by last_seqno, {feed['recovered_snapshot']:,} times by snapshot"
    )
    click.echo("")
    print_latency(
        {name.replace("_", " "): values for name, values in result["latency_ns"].items()}
        | {
            f"loop to strategy ({style})": report["latency_ns"]
            for style, report in result["strategies"].items()
        }
    )
    if (os.cpu_count() or 1) < PROCESSES:
        click.echo(
            f"({PROCESSES} busy processes share {os.cpu_count()} cores: the loop-to-strategy time "
            "is mostly the scheduler's)"
        )
    click.echo("")
    for style, report in result["strategies"].items():
        verdict = (
            "all equal to the published ones"
            if not report["books_differ"]
            else "DIFFERENT: " + ", ".join(report["books_differ"])
        )
        click.echo(
            f"strategy ({style}): {report['records']:,} records, {report['lapped']} missed, "
            f"{report['books_equal']} books ({result['levels']:,} levels) {verdict}"
        )
    click.echo("\nok" if result["ok"] else "\nNOT OK")
