"""A small disk that can grow, mounted at a directory; mounting needs root."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Self

__all__ = ["SmallDisk", "UnavailableError", "command"]


class UnavailableError(Exception):
    """This host does not allow something that a row needs; the text names it."""


def command(*words: str) -> None:
    """Run a command; if it fails, raise `UnavailableError` with its message."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"{words[0]}: {done.stderr.strip()}")


class SmallDisk:
    """A disk of a few megabytes in memory, mounted at a new directory."""

    def __init__(self, directory: Path, megabytes: int = 2) -> None:
        self.directory = directory
        self.megabytes = megabytes
        directory.parent.mkdir(mode=0o700, exist_ok=True)
        directory.mkdir(mode=0o700)
        command("mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "none", str(directory))

    def grow(self, megabytes: int) -> None:
        """Make the disk larger by some megabytes."""
        self.megabytes += megabytes
        command("mount", "-o", f"remount,size={self.megabytes}m", str(self.directory))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "-l", self.directory], check=True)
