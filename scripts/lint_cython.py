"""Run cython-lint over the project, and pycodestyle once instead of one process per file.

    python scripts/lint_cython.py udpfast docs/examples

Codes that pyproject.toml ignores are ignored, as `cython-lint` itself does.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

from cython_lint.cython_lint import PYCODESTYLE_CODES

ROOT = Path(__file__).resolve().parent.parent


def main(places: list[str]) -> int:
    """Return 1 if either of the two found something; both report it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cython-lint"]
    ignored = PYCODESTYLE_CODES | set(settings["ignore"])
    style = (
        *("pycodestyle", "--filename=*.pyx,*.pxd,*.pxi", f"--ignore={','.join(sorted(ignored))}"),
        f"--max-line-length={settings['max-line-length']}",
    )
    commands = (("cython_lint.cython_lint", "--no-pycodestyle", *places), (*style, *places))
    codes = [
        subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode
        for command in commands
    ]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
