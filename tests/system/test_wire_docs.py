"""The page and the help of `udpfast wire`: what they show works when it is pasted."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shared import ROOT
from tests.waiting import PATIENCE_S
from udpfast.net.ports import free_port
from udpfast.probe import Receiver

pytestmark = pytest.mark.system

EXAMPLE = ROOT / "docs/examples/measure_lines.py"


def environment() -> dict[str, str]:
    command = Path(sys.executable).parent
    paths = [str(command), os.environ["PATH"]]
    return {**os.environ, "PATH": os.pathsep.join(paths), "PYTHONPATH": os.pathsep.join(sys.path)}


def pasted(script: str, folder: Path) -> str:
    """Run lines as a shell does, at a port of their own; return what they print.

    A tenth of the time that they take serves as well: both ends spin all the while.
    """
    assert "--seconds 2" in script
    script = script.replace("--seconds 2", "--seconds 0.2")
    port = free_port()
    script = script.replace(":7007", f":{port}").replace("send 127.0.0.1", f"send 127.0.0.1:{port}")
    ran = subprocess.run(
        ["bash", "-ec", f"{script}\nwait"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_first_lines_of_the_page_work(tmp_path: Path) -> None:
    page = (ROOT / "docs/wire.md").read_text()
    block = re.search(r"```\n(udpfast wire listen .*?)```", page, re.S)
    assert block is not None
    shown = pasted(block[1], tmp_path)
    assert shown.count("lost on all lines: ") == 2  # of the listener and of the sender
    assert "out: microwave was first" in shown


def test_example_of_the_help_works(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "udpfast", "wire", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    ).stdout
    lines = re.findall(r"^ +(udpfast wire \w+ 127\.0\.0\.1.*)$", shown, re.M)
    assert len(lines) == 2
    assert "round trip" in pasted("\n".join(lines), tmp_path)


def test_example_in_python_is_the_page_s_and_runs(tmp_path: Path) -> None:
    assert EXAMPLE.read_text() in (ROOT / "docs/wire.md").read_text()
    with Receiver(["127.0.0.1:0"], spin=False) as receiver:
        (address,) = receiver.addresses
        shown = subprocess.run(
            [sys.executable, str(EXAMPLE), address, address],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_S,
        ).stdout
    assert "microwave p50" in shown
    assert "lost 0 on the way out" in shown
    assert (tmp_path / "lines.html").exists()
    assert (tmp_path / "lines.npz").exists()
