"""The examples, run against an instance that the test fills."""

import subprocess
import sys

from tests.client.instance import Instance
from tests.shared import ROOT


def run(name: str, instance: Instance, environment: dict[str, str]) -> str:
    """Run an example until the ring is closed; return what it printed."""
    instance.ring.flush()
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "docs" / "examples" / name), instance.address],
        env=environment, text=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    first = process.stdout.readline()  # it is attached: now the ring may end
    instance.ring.close()
    rest = process.stdout.read()
    assert process.wait(timeout=30) == 0
    return first + rest


def test_poll_numpy_prints_every_batch(instance: Instance, environment: dict[str, str]) -> None:
    for number in range(10):
        instance.top(float(number), number + 0.5)
    output = run("poll_numpy.py", instance, environment)
    assert output == "10 records, 0 missed, 1.0 us, 0.50\n"


def test_read_books_prints_every_change(instance: Instance, environment: dict[str, str]) -> None:
    instance.book([(10.0, 1.0)], [(11.0, 2.0)], snapshot=True)
    instance.book([(10.5, 3.0)], [])
    output = run("read_books.py", instance, environment)
    assert output.splitlines() == [
        "binance-usdm BTCUSDT sound (10.0, 1.0, 11.0, 2.0)",
        "binance-usdm BTCUSDT sound (10.5, 3.0, 11.0, 2.0)",
    ]
