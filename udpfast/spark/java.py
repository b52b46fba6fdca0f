"""Find the Java that Spark should use."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from udpfast.errors import UdpfastError

__all__ = ["JAVA_WANTED", "JavaMissingError", "find_java", "java_version"]

#: Spark 4 is compiled for Java 17.
JAVA_WANTED = 17

INSTALLED = Path("/usr/lib/jvm")


class JavaMissingError(UdpfastError):
    """There is no Java that Spark can run on."""


def find_java(installed: Path = INSTALLED) -> Path:
    """Return the home of a Java of version 17 or newer.

    Tries `JAVA_HOME`, the `java` of PATH, and then the oldest suitable version below `installed`,
    because Spark is tested best with the version that it was built for.

    Raises
    ------
    JavaMissingError
        There is none; the message says which were found, and what to install.
    """
    seen = []
    for home in _candidates(installed):
        version = java_version(home)
        if version >= JAVA_WANTED:
            return home
        seen.append(f"{home} is {version or 'no Java'}")
    raise JavaMissingError(
        f"Spark needs Java {JAVA_WANTED} or newer"
        + (f" ({', '.join(seen)})" if seen else "")
        + f": apt-get install openjdk-{JAVA_WANTED}-jre-headless, or set JAVA_HOME"
    )


def java_version(home: Path) -> int:
    """Return the major version of the Java at `home`; 0 if there is none, or it does not run."""
    # Read the file first: starting Java takes a quarter of a second.
    try:
        text = (home / "release").read_text()
    except OSError:
        try:
            text = subprocess.run(
                [home / "bin/java", "-version"],
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            ).stderr
        except (OSError, subprocess.TimeoutExpired):
            return 0
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(found[1]) if found and (home / "bin/java").exists() else 0


def _candidates(installed: Path) -> Iterator[Path]:
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"])
    on_path = shutil.which("java")
    if on_path is not None:
        yield Path(on_path).resolve().parents[1]
    others = [path for path in sorted(installed.glob("*")) if (path / "bin/java").exists()]
    yield from sorted(others, key=java_version)
