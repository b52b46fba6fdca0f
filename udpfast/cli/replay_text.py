"""What `udpfast replay` says of its result."""

from __future__ import annotations

from typing import Any

import click

from udpfast.cli.draw import print_ledger
from udpfast.cli.replay_datagrams import UNREADABLE
from udpfast.client.record_words import text_word

__all__ = ["print_result"]


def print_result(result: dict[str, Any]) -> None:
    """Print the result of a replay for people."""
    if "framing" in result:
        click.echo("framing {name}: {why}".format(**result["framing"]))
    for channel, addresses in result.get("lines", {}).items():
        if not addresses:
            continue
        click.echo(
            f"{channel}: "
            + ", ".join(f"{chr(65 + i)} = {address}" for i, address in enumerate(addresses))
        )
    if "ledger" in result:
        print_ledger(result["counters"], result["ledger"])
    _print_left_out(result)
    _print_losses(result)
    for name, book in result.get("books", {}).items():
        click.echo(
            f"book {text_word(name)}: {len(book['bids'])} bids, {len(book['asks'])} asks"
            + (", STALE" if book["stale"] else "")
        )
    for what in ("sent", "unreachable", "written"):
        if what in result:
            click.echo(f"{result[what]:,} datagrams {what}")
    if "sha256" in result:
        click.echo(f"records {result['records']}, sha256 {result['sha256']}")
    if not result.get("as_expected", True):
        click.echo("the SHA-256 is not the expected one")


def _print_left_out(result: dict[str, Any]) -> None:
    # What of the capture was not replayed as it is.
    capture = result.get("capture", {})
    if capture.get("other_datagrams"):
        click.echo(f"{capture['other_datagrams']:,} datagrams to other addresses: left out")
    frames = capture.get("frames", {})
    if frames.get("fragments"):
        click.echo(f"{frames['fragments']:,} IP fragments: left out")
    for kind, words in UNREADABLE.items():
        if frames.get(kind):
            click.echo(f"{frames[kind]:,} frames {words}: not read")
    if capture.get("damage"):
        click.echo(f"the capture breaks off early: {capture['damage']}")
    if "set_back" in result:
        steps, longest_ns = result["set_back"].values()
        click.echo(
            f"the clock was set back {steps} times, by up to {longest_ns / 1e9:.3f} s: what "
            "follows is replayed in the order of arrival"
        )
    if result.get("missed"):
        click.echo(
            f"{result['missed']:,} records or datagrams are missing: their recorder missed them, "
            "or they are damaged"
        )


def _print_losses(result: dict[str, Any]) -> None:
    for session in result.get("sessions", []):
        click.echo(
            f"session {session['old']} -> {session['new']} ({session['reason']}), "
            + (f"stream {session['stream']}, " if session["stream"] else "")
            + f"{session['discarded']} pending messages dropped"
        )
    for gap in result.get("gaps", []) + result.get("snapshot_gaps", []):
        click.echo(
            f"gap {gap['channel']} [{gap['first']}, {gap['last']}] {gap['count']} lost "
            f"({gap['reason']}, waited {gap['waited_ns'] / 1e6:.2f} ms)"
        )
