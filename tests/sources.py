"""The project's own files, for the tests that read them."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.shared import ROOT

#: A file of the project that a comment or a page cites; headers of Linux are none.
CITED = re.compile(r"(?<![\w/.<-])((?!linux/)(?:[a-z_0-9]+/)+[a-z_0-9]+\.(?:pyx|pxd|pyi?|h))\b")

BUILT = {".venv", "build", "dist", "__pycache__", ".git", ".hypothesis"}


def files(folder: str, *suffixes: str) -> Iterator[Path]:
    """Yield the files below a folder of the project that end in one of `suffixes`, sorted."""
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in suffixes and not BUILT.intersection(path.relative_to(ROOT).parts):
            yield path


def line_of(text: str, match: re.Match[str]) -> int:
    """Return the number of the line of a text in which a match begins."""
    return 1 + text.count("\n", 0, match.start())


def absent_files(name: str, text: str) -> list[str]:
    """Return what a file's text cites of the project's code and is not there, a sentence each."""
    roots = (ROOT, ROOT / "udpfast", (ROOT / name).parent)
    return [
        f"{name}:{line_of(text, cited)}: cites {cited[1]}, which is not there"
        for cited in CITED.finditer(text)
        if not any((root / cited[1]).exists() for root in roots)
    ]


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
