"""The scripts say what they should, and change nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shared import ROOT

# No apt-get on such a PATH: a script that would install something cannot.
BARE = {"PATH": "/nowhere"}


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the project's folder."""
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_preflight_complete_machine_passes() -> None:
    result = run(sys.executable, "scripts/preflight.py")
    assert result.returncode == 0, result.stdout


def test_preflight_without_compiler_says_what_to_install_in_one_line() -> None:
    result = run(sys.executable, "scripts/preflight.py", **BARE, CC="no-such-compiler -O2")
    assert result.returncode == 4
    (line,) = result.stdout.splitlines()
    assert line == "udpfast needs a C compiler (no-such-compiler): apt-get install gcc"


def test_preflight_finds_java_for_spark() -> None:
    result = run(sys.executable, "scripts/preflight.py", "spark", PYTHONPATH=str(ROOT))
    if os.environ.get("UDPFAST_WITHOUT_SPARK"):
        pytest.skip("UDPFAST_WITHOUT_SPARK is set: there may be no Java")
    assert (result.returncode, result.stdout) == (0, "")


def test_preflight_without_java_says_what_to_install_in_one_line(tmp_path: Path) -> None:
    # A Java that is too old, and a root that has none: nothing can be installed on this PATH.
    code = (
        "import pathlib, runpy, sys; import udpfast.spark.java as java; "
        "java.find_java.__defaults__ = (pathlib.Path('/nowhere'),); "
        "sys.argv = ['preflight.py', 'spark']; "
        "runpy.run_path('scripts/preflight.py', run_name='__main__')"
    )
    result = run(sys.executable, "-c", code, **BARE, JAVA_HOME=str(tmp_path))
    assert result.returncode == 4
    (line,) = result.stdout.splitlines()
    assert line.startswith("udpfast: Spark needs Java 17 or newer")
    assert "apt-get install openjdk-17-jre-headless" in line


def test_setup_without_compiler_says_so_before_it_copies_anything(tmp_path: Path) -> None:
    result = run(sys.executable, "setup.py", "build", "--build-base", str(tmp_path),
                 **BARE, CC="no-such-compiler")  # fmt: skip
    assert result.returncode != 0
    assert result.stderr.splitlines()[-1].startswith("udpfast needs a C compiler")
    assert "copying" not in result.stdout


def test_mirror_copies_every_package() -> None:
    from scripts.mirror import COPIED

    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert {"udpfast", "pyspark_udpfast"} <= packages
    assert packages <= {*COPIED}


@pytest.mark.parametrize("name", ["first.py", "deep/second.py"])
def test_mirror_copies_changed_and_drops_removed(tmp_path: Path, name: str) -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from mirror import mirror
    finally:
        sys.path.pop(0)
    source, target = tmp_path / "source", tmp_path / "target"
    file = source / "udpfast" / name
    file.parent.mkdir(parents=True)
    file.write_text("1")
    mirror(source, target)
    copied = target / "udpfast" / name
    assert copied.stat().st_mtime_ns == file.stat().st_mtime_ns
    built = copied.with_suffix(".so")
    built.touch()
    file.unlink()
    mirror(source, target)
    assert not copied.exists()
    assert not built.exists()
