"""README's first use, pasted from top to bottom as a new user would."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shared import ROOT
from udpfast.net.ports import free_ports

#: A file's block below the line that names it, or a block for a shell.
BLOCK = re.compile(
    r"^(?:`(?P<name>[\w.]+)`, [^\n]*\n\n)?```(?P<language>\w+)\n(?P<content>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.system
def test_readme_runs_as_it_is_written_and_again(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    text = readme[readme.index("## Twenty lines of use") : readme.index("## Measured")]
    for port, free in zip(("9001", "9101", "9002"), free_ports(3), strict=True):
        text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{free}")
    commands = ""
    for block in BLOCK.finditer(text):
        if block["language"] == "sh":
            assert not commands, "one block is pasted into the shell"
            commands = block["content"]
        else:
            (tmp_path / block["name"]).write_text(block["content"])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "batches.py",
        "feed.toml",
        "strategy.py",
    ]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "UDPFAST_SHM": str(tmp_path / "shm"),
        "UDPFAST_JOURNALS": str(tmp_path / "journals"),
    }
    # On a busy host something may need attention, such as losses: then `stat` ends with 1.
    assert "udpfast stat market\n" in commands
    commands = commands.replace("udpfast stat market\n", "udpfast stat market || [ $? = 1 ]\n")
    # As long as both strategies take, and little longer: publisher and feed are busy all the time.
    assert " --seconds 10 " in commands
    commands = commands.replace(" --seconds 10 ", " --seconds 3 --linger 1 ")
    for _ in range(2):  # what the first run leaves behind does not disturb the second
        # As in an interactive shell, a job has its group.
        result = subprocess.run(
            ["bash", "-c", f"set -em\ntrap 'kill $(jobs -p)' ERR\n{commands}wait\n"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        assert "Warning" not in result.stderr, result.stderr
        assert re.search(r"^\S+ \S+ \d+\.\d+ \d+\.\d+$", result.stdout, re.MULTILINE)
        batches = re.findall(r"^\d+ records, 0 missed; bids: \[", result.stdout, re.MULTILINE)
        assert len(batches) == 3, result.stdout
        assert "the sums are equal" in result.stdout
