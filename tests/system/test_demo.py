"""The demonstration as a person starts it."""

import json
import subprocess
import sys

import pytest

from tests.cases import nightly

pytestmark = pytest.mark.system


def demo(*options):
    """Run the demonstration; return what it printed, and its summary."""
    result = subprocess.run(
        [sys.executable, "-m", "udpfast", "demo", *options, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    summary = json.loads(result.stdout.splitlines()[-1])
    assert summary["ok"]
    return result.stdout, summary


def test_demo_proves_books_and_sums(tmp_path):
    books_path = tmp_path / "books.json"
    _, summary = demo("--simulate", "--seconds", "3", "--books", str(books_path))
    assert summary["ledger"]["adds_up"]
    assert summary["missing"]["unexplained"] == 0
    assert summary["counters"]["incremental"]["sessions"] == 2
    for strategy in summary["strategies"].values():
        assert strategy["books_equal"] > 0
        assert strategy["books_differ"] == []
        assert strategy["lapped"] == 0
    books = json.loads(books_path.read_text())
    for book in books.values():
        bids, asks = ([price for price, _ in book[side]] for side in ("bids", "asks"))
        assert bids == sorted(bids, reverse=True)
        assert asks == sorted(asks)


@pytest.mark.parametrize("venue", ["pitch", *nightly("itch", "cme")])
def test_demo_of_a_venue_has_every_order_in_its_queue(venue):
    printed, summary = demo("--venue", venue, "--seconds", "3")
    assert all(one["orders"] > 10 for one in summary["symbols"].values())
    assert "orders in their queues" in printed
    assert printed.splitlines()[-2] == "ok"
    doubted = any(one["stale"] for one in summary["symbols"].values())
    assert ("in doubt: a message that both lines lost" in printed) is doubted
