"""Types: mypy --strict over udpfast and bench, stubtest of every .pyi against its module."""

import subprocess
import sys
from pathlib import Path

from tests.shared import ROOT
from tests.sources import modules

# What Cython gives every class and module, and no stub names.
CYTHON_NAMES = r"""
.*\.__pyx_capi__
.*\.__test__
.*\.__reduce_cython__
.*\.__setstate_cython__
.*\.__pyx_vtable__
.*\.__reduce__
.*\.__setstate__
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module of this interpreter in the project's folder."""
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_mypy_strict_finds_nothing() -> None:
    result = run("mypy", "--strict", "udpfast", "bench")
    assert result.returncode == 0, result.stdout + result.stderr


def test_stubs_match_the_compiled_modules(tmp_path: Path) -> None:
    allowlist = tmp_path / "cython_names.txt"
    allowlist.write_text(CYTHON_NAMES)
    result = run(
        "mypy.stubtest",
        "--allowlist",
        str(allowlist),
        "--ignore-unused-allowlist",
        "--ignore-disjoint-bases",
        "--concise",
        *modules(".pyx"),
    )
    assert result.returncode == 0, result.stdout + result.stderr
