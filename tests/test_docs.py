"""The documentation says what the code says."""

import subprocess
import sys

from tests.shared import ROOT


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
