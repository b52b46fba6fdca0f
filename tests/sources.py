"""The project's own files, for the tests that read them."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.shared import ROOT

BUILT = {".venv", "build", "dist", "__pycache__", ".git", ".hypothesis"}


def files(folder: str, *suffixes: str) -> Iterator[Path]:
    """Yield the files below a folder of the project that end in one of `suffixes`, sorted."""
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in suffixes and not BUILT.intersection(path.relative_to(ROOT).parts):
            yield path


def modules(suffix: str = ".pyx", folder: str = "udpfast") -> list[str]:
    """Return the names of the modules of a package of the project that end in `suffix`."""
    return [
        ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files(folder, suffix)
    ]


def texts() -> Iterator[Path]:
    """Yield the text files of the project: what git tracks, or all but what is built."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    else:
        paths = [path for path in sorted(ROOT.rglob("*")) if not BUILT.intersection(path.parts)]
    for path in paths:
        if path.is_file() and b"\0" not in path.read_bytes()[:4096]:
            yield path
