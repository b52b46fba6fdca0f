"""The tutorial, pasted block by block as a reader would."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shared import ROOT
from udpfast.net.ports import free_ports

BLOCK = re.compile(r'^```(sh|python title="(.*?)")\n(.*?)^```$', re.MULTILINE | re.DOTALL)
PORTS = ("29001", "29101", "29002")


@pytest.mark.system
def test_tutorial_runs_as_it_is_written(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    text = (ROOT / "docs" / "tutorial.md").read_text()
    for port, free in zip(PORTS, free_ports(3), strict=True):
        text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{free}")
    commands = []
    for language, title, content in BLOCK.findall(text):
        if language == "sh":
            commands.append(content)
        else:
            (tmp_path / title).write_text(content)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "UDPFAST_SHM": str(tmp_path / "shm"),
        "UDPFAST_JOURNALS": str(tmp_path / "journals"),
    }
    # As in an interactive shell, a job has its group.
    result = subprocess.run(
        ["bash", "-c", "set -em\n" + "".join(commands)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^\S+ \S+ \((\d+\.\d+, ){3}\d+\.\d+\)$", result.stdout, re.MULTILINE)
    assert "sha256" in result.stdout
    assert "symbol" in result.stdout
