"""The examples, run against an instance that the test fills."""

import signal
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import udpfast
from tests.client.instance import Instance
from tests.shared import ROOT
from tests.waiting import PATIENCE_S
from udpfast import Kind, RecordFlag
from udpfast.agents.feed.image_keeper import ImageKeeper
from udpfast.config import ImageConfig
from udpfast.core.layout import CONTROL_DTYPES
from udpfast.market.updates import TRADE, TRADES

BUY, SELL = 1, 2


def run(name: str, instance: Instance, environment: dict[str, str]) -> str:
    """Run an example until the ring is closed; return what it printed."""
    instance.ring.flush()
    with subprocess.Popen(
        [sys.executable, str(ROOT / "docs" / "examples" / name), instance.address],
        env=environment, text=True, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        first = process.stdout.readline()  # it is attached: now the ring may end
        instance.ring.close()
        rest = process.stdout.read()
        assert process.wait(timeout=PATIENCE_S) == 0
    return first + rest


def trade(
    instance: Instance, price: float, quantity: float, side: int, symbol: str = "BTCUSDT"
) -> None:
    """Append a summary of two equal trades."""
    rows = np.zeros(2, TRADE)
    rows["price"], rows["quantity"], rows["side"] = price, quantity, side
    update = instance.update(TRADES, "binance-usdm", symbol, row_count=len(rows))
    instance.append(Kind.TRADES, update.tobytes() + rows.tobytes())


def test_poll_numpy_prints_every_batch(instance: Instance, environment: dict[str, str]) -> None:
    for number in range(10):
        instance.top(float(number), number + 0.5)
    output = run("poll_numpy.py", instance, environment)
    assert output == "10 records, 0 missed, 1.0 us, 0.50\n"


def test_read_books_prints_the_state_when_it_comes_and_every_change(
    instance: Instance, environment: dict[str, str]
) -> None:
    instance.book([(10.0, 1.0)], [(11.0, 2.0)], snapshot=True)
    instance.book([(10.5, 3.0)], [])
    instance.ring.flush()
    keeper = ImageKeeper(ImageConfig(), instance.directory)
    keeper.on_start()
    keeper.work(0)
    keeper.on_stop()
    output = run("read_books.py", instance, environment)
    assert output == "binance-usdm BTCUSDT sound (10.5, 3.0, 11.0, 2.0)\n"


@pytest.mark.parametrize("name", ["poll_numpy.py", "callbacks.py"])
def test_example_follows_a_ring_whose_beginning_was_overwritten(
    name: str, instance: Instance, environment: dict[str, str]
) -> None:
    while instance.ring.position <= instance.ring.capacity_bytes:
        instance.book([(10.0, 1.0)], [(11.0, 2.0)], snapshot=True)
    assert run(name, instance, environment)


def test_callbacks_prints_books_trades_and_gaps(
    instance: Instance, environment: dict[str, str]
) -> None:
    instance.book([(10.0, 1.0)], [(11.0, 2.0)], snapshot=True)
    instance.append(Kind.GAP, np.array((5, 6, 2, 0, 1, 0), CONTROL_DTYPES[Kind.GAP]).tobytes())
    instance.book([(10.5, 3.0)], [])
    rows = np.zeros(2, TRADE)
    rows["quantity"] = 1.5
    trades = instance.update(TRADES, "binance-usdm", "BTCUSDT", row_count=2)
    instance.append(Kind.TRADES, trades.tobytes() + rows.tobytes())
    output = run("callbacks.py", instance, environment)
    assert output.splitlines() == [
        "BTCUSDT (10.0, 1.0, 11.0, 2.0)",
        "lost 2 messages",
        "BTCUSDT stale",
        "BTCUSDT traded 3.0",
    ]


def test_follow_asyncio_prints_every_quote(instance: Instance, environment: dict[str, str]) -> None:
    instance.top(1.0, 2.0)
    instance.book([(10.0, 1.0)], [], snapshot=True)
    instance.top(3.0, 4.0, "ETHUSDT")
    output = run("follow_asyncio.py", instance, environment)
    assert output.splitlines() == ["BTCUSDT 1.0 2.0", "ETHUSDT 3.0 4.0"]


def test_latest_prints_the_newest_of_each(instance: Instance, environment: dict[str, str]) -> None:
    for number in range(10):
        instance.top(float(number), 0.0)
        instance.top(float(number), 0.0, "ETHUSDT")
    output = run("latest.py", instance, environment)
    assert output.splitlines() == [
        "TOP_OF_BOOK BTCUSDT 18",
        "TOP_OF_BOOK ETHUSDT 19",
        "18 superseded",
    ]


def test_arrow_tables_prints_the_mean_spread(
    instance: Instance, environment: dict[str, str]
) -> None:
    pytest.importorskip("pyarrow")
    instance.top(1.0, 2.0)
    instance.top(1.0, 3.0)
    assert run("arrow_tables.py", instance, environment) == "BTCUSDT 1.50\n"


def test_numba_flow_prints_what_was_traded_since_the_last_doubt_of_each_symbol(
    instance: Instance, environment: dict[str, str]
) -> None:
    if find_spec("numba") is None:  # an import of it takes half a second
        pytest.skip("no numba: pip install numba")
    trade(instance, 10.0, 5.0, BUY)
    instance.append(Kind.GAP, np.array((5, 6, 2, 0, 1, 0), CONTROL_DTYPES[Kind.GAP]).tobytes())
    instance.top(99.0, 101.0)
    trade(instance, 10.0, 4.0, BUY)
    trade(instance, 10.0, 1.0, SELL)
    # One that is stale is forgotten, and no other.
    instance.top(9.0, 11.0, "ETHUSDT")
    instance.top(19.0, 21.0, "XRPUSDT")
    trade(instance, 10.0, 5.0, BUY, "ETHUSDT")
    instance.stale("ETHUSDT")
    trade(instance, 10.0, 1.0, SELL, "ETHUSDT")
    instance.top(29.0, 31.0, "ETHUSDT", flags=RecordFlag.DOUBT)
    trade(instance, 10.0, 1.0, BUY, "XRPUSDT")
    output = run("numba_flow.py", instance, environment)
    assert output.splitlines() == [
        "12 records",
        "BTCUSDT 100.0 60.0",
        "ETHUSDT 0.0 -20.0",
        "XRPUSDT 20.0 20.0",
        "12 records 2 doubts",
    ]


def test_follow_in_c_prints_quotes_gaps_and_what_was_missed(
    instance: Instance, tmp_path: Path
) -> None:
    compiler = sysconfig.get_config_var("CC").split()[0]
    source = ROOT / "docs" / "examples" / "follow.c"
    strict = ("-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror")
    include = f"-I{udpfast.get_include()}"
    subprocess.run(
        [compiler, *strict, "-O1", include, "-o", tmp_path / "follow", source], check=True
    )
    follow = subprocess.Popen(
        [tmp_path / "follow", instance.directory], stdout=subprocess.PIPE, text=True
    )
    assert follow.stdout is not None
    instance.top(9.0, 11.0)
    instance.ring.flush()
    assert follow.stdout.readline() == "BTCUSDT 9 11\n"
    follow.send_signal(signal.SIGSTOP)
    for _ in range(10_000):  # more than the ring holds
        instance.top(10.0, 12.0)
    instance.append(Kind.GAP, np.array((5, 6, 2, 0, 1, 0), CONTROL_DTYPES[Kind.GAP]).tobytes())
    instance.ring.flush()
    follow.send_signal(signal.SIGCONT)
    lines = list(iter(follow.stdout.readline, "lost 2 messages\n"))
    instance.top(20.0, 22.0, "ETHUSDT")
    instance.ring.close()
    assert follow.communicate(timeout=PATIENCE_S)[0] == "ETHUSDT 20 22\nthe feed is gone\n"
    assert follow.returncode == 0
    missed = sum(int(line.split()[1]) for line in lines if line.startswith("missed"))
    assert missed > 0
    assert missed + lines.count("BTCUSDT 10 12\n") == 10_000
