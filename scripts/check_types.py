"""Check the types: mypy --strict over udpfast, bench and lab; stubtest of every .pyi.

python scripts/check_types.py
"""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
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


#: For mypy where Spark, which is large and optional (`make .venv/.spark`), is not installed.
WITHOUT_SPARK = ("--disable-error-code=import-not-found", "--allow-subclassing-any")


def compiled_modules() -> list[str]:
    """Return the names of the compiled modules, whose types are in stubs."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.pyx"))]
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]


def structs() -> Iterator[str]:
    """Yield a pattern for each compiled `Struct.__init__`, which only type checkers see."""
    for module in compiled_modules():
        source = (ROOT / module.replace(".", "/")).with_suffix(".pyx").read_text()
        for name in re.findall(r"^class (\w+)\(Struct\b", source, re.MULTILINE):
            yield re.escape(f"{module}.{name}.__init__")


def main() -> int:
    """Return 1 if either of the two found something; both report it."""
    has_spark = importlib.util.find_spec("pyspark") is not None
    if not has_spark:
        print("udpfast: no Spark here: the types of what uses it are not checked", flush=True)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as allowlist:
        allowlist.write("\n".join([CYTHON_NAMES, *structs()]))
        allowlist.flush()
        commands = (
            # Writing a cache takes a quarter of the time; developers have a cache of their own.
            (
                *("mypy", "--strict", "--no-error-summary", "--cache-dir", os.devnull),
                *(() if has_spark else WITHOUT_SPARK),
                *PACKAGES,
            ),
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
