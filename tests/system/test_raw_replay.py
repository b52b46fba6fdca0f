"""A raw capture, replayed by a process of its own: the records that ring or store got."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cases import nightly
from tests.system.test_feed_store import Market, Start, feed_tables, ready, start, taken
from tests.waiting import PATIENCE_S, wait_until
from udpfast.net.ports import free_port

pytestmark = pytest.mark.system

__all__ = ["start"]  # a fixture


def run(start: Start, *arguments: object) -> tuple[int, dict[str, Any]]:
    """Return a verb's exit code, and what its last line says."""
    process: subprocess.Popen[str] = start(*arguments)
    output, problem = process.communicate(timeout=PATIENCE_S)
    assert output, problem
    return process.returncode, json.loads(output.splitlines()[-1])


@pytest.mark.parametrize("output", ["ring", *nightly("store")])
def test_raw_capture_makes_the_same_records_again(
    start: Start, tmp_path: Path, output: str
) -> None:
    port = free_port()
    # A store is the record of what readers get: beside it, only datagrams are kept.
    what = "both" if output == "ring" else "raw"
    text = feed_tables(
        port, record=f'[record]\nenabled = true\nwhat = "{what}"\nsegment_bytes = 4194304'
    )
    file = tmp_path / "feed.toml"
    file.write_text(text.replace('output = "store"', f'output = "{output}"'))
    market = Market(port)
    process = ready(start("run", file))
    market.send(400)
    market.number += 7  # lost by all lines
    market.send(400)
    wait_until(lambda: taken() == 800, "messages")
    process.terminate()
    assert process.wait(PATIENCE_S) == 0
    code, live = run(start, "replay", "iex" if output == "ring" else "store:iex", "--json")
    assert code == 0 and live["kinds"]["TOP_OF_BOOK"] == 800 and live["kinds"]["GAP"] == 1
    expected = f"sha256:{live['sha256']}"
    for batch in (1, 64):
        raw = ("replay", "iex", "--raw", "--batch", batch, "--expect")
        code, found = run(start, *raw, expected, "--json")
        assert (code, found["as_expected"], found["missed"]) == (0, True, 0), found
        assert found["sha256"] == live["sha256"]
        # RESTART is of a writer, and no record of what it received.
        assert found["records"] == live["records"] - live["kinds"].get("RESTART", 0)
    code, found = run(start, *raw, "sha256:" + "0" * 64, "--json")
    assert (code, found["as_expected"]) == (1, False)
