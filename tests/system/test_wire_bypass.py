"""`udpfast wire` under a stub of a preloaded stack: it carries what the ends receive."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.net.preload import build_stub
from tests.waiting import PATIENCE_S
from udpfast.probe import Receiver

pytestmark = pytest.mark.system


def test_send_runs_under_the_stack_that_it_is_asked_to(tmp_path: Path) -> None:
    library, count = build_stub("onload", tmp_path), tmp_path / "count"
    with Receiver(["127.0.0.1:0"], spin=False) as receiver:
        asked = ["--seconds", "0.2", "--idle", "sleep", "--json", "--timestamps", "none"]
        bypass = ["--bypass", "onload", "--bypass-library", str(library)]
        ran = subprocess.run(
            [*(sys.executable, "-m", "udpfast", "wire", "send"), receiver.addresses[0], *asked,
             *bypass],
            env={**os.environ, "STUB_COUNT": str(count)},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["lines"]["line"]["returned"] == 200
    assert int(count.read_text()) >= 200
