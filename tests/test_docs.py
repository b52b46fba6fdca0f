"""The documentation says what the code says."""

import re
import subprocess
import sys

from tests.shared import ROOT
from udpfast import OrderBook


def test_operating_tables_are_what_the_code_says():
    result = subprocess.run(
        [sys.executable, "scripts/generate_reference.py", "--check"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_readme_best_prices_are_unpacked_as_the_book_gives_them():
    names = re.search(r"^ *(.*) = book\.best\(\)$", (ROOT / "README.md").read_text(), re.M)
    assert names is not None
    assert len(names[1].split(", ")) == len(OrderBook().best())
