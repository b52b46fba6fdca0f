"""The recipe of docs/formats.md for nautilus_trader, where that is installed."""

import re
from pathlib import Path

import pytest

from tests.export.market import BEGIN_NS, Market, record
from tests.export.test_formats import PRESENT_MORE, SNAPSHOT, exported
from tests.shared import ROOT
from udpfast.core.layout import Kind

pytest.importorskip("nautilus_trader", reason="not installed: no extra has it")
pytest.importorskip("databento_dbn", reason="not installed: the extra [dbn]")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Return the journal of a snapshot of orders in two records, and a trade."""
    market = Market(tmp_path / "feed", 1 << 22)
    for header, more, orders in (
        (SNAPSHOT, PRESENT_MORE, ((13, 30), (11, 10))),
        ({}, 0, ((12, 20),)),
    ):
        market.tell(
            Kind.ORDERS,
            [
                {"order_id": b"%d" % order, "price": 7.0, "quantity": 5, "side": 1, "action": 1,
                 "priority": priority, "present": 1}
                for order, priority in orders
            ],
            "ESZ6", header | {"received_ns": BEGIN_NS}, present=more,
        )  # fmt: skip
    market.tell(Kind.TRADES, [{"price": 7.0, "quantity": 2.0, "side": 1}], "ESZ6")
    record(market, tmp_path / "journal")
    market.close()
    return tmp_path / "journal"


def loaded(journal: Path, table: str, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return what the recipe of the page makes of a table."""
    path = journal.parent / "trades.dbn.zst"
    words = ("--format", "dbn", "--table", table, "--symbol", "ESZ6")
    assert exported(journal, path, *words).exit_code == 0
    monkeypatch.chdir(journal.parent)
    page = (ROOT / "docs" / "formats.md").read_text().partition("## nautilus_trader")[2]
    code = re.search(r"```python\n(.*?)```", page, re.S)
    assert code is not None
    names: dict[str, list[object]] = {}
    exec(code.group(1), names)
    return names["ticks"]


def test_trades_are_ticks(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tick,) = loaded(journal, "trades", monkeypatch)
    assert str(tick).startswith("ESZ6.XCME,7.00,2,BUYER")


def test_snapshot_in_parts_is_one_queue(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deltas = loaded(journal, "orders", monkeypatch)
    orders = [int(found[1]) for found in re.finditer(r"order_id=(\d+)", str(deltas))]
    assert orders == [0, 11, 12, 13]
