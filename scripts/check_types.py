"""Check the types: mypy --strict over udpfast, bench and lab; stubtest of every .pyi.

python scripts/check_types.py
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("udpfast", "bench", "lab")

# Names that Cython adds to every class and module, and that stubs leave out.
CYTHON_NAMES = r"""
.*\.__pyx_capi__
.*\.__test__
.*\.__reduce_cython__
.*\.__setstate_cython__
.*\.__pyx_vtable__
.*\.__reduce__
.*\.__setstate__
"""


def compiled_modules() -> list[str]:
    """Return the names of the compiled modules, whose types are in stubs."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.pyx"))]
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]


def main() -> int:
    """Return 1 if either of the two found something; both report it."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as allowlist:
        allowlist.write(CYTHON_NAMES)
        allowlist.flush()
        commands = (
            # Writing a cache takes a quarter of the time; developers have a cache of their own.
            ("mypy", "--strict", "--no-error-summary", "--cache-dir", os.devnull, *PACKAGES),
            (
                *("mypy.stubtest", "--allowlist", allowlist.name, "--ignore-unused-allowlist"),
                *("--ignore-disjoint-bases", "--concise", *compiled_modules()),
            ),
        )
        codes = [
            subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode
            for command in commands
        ]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
