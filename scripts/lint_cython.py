"""cython-lint over the project, with pycodestyle once instead of a process for each file.

    python scripts/lint_cython.py udpfast docs/examples

It ignores what pyproject.toml says, as `cython-lint` does by itself.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

from cython_lint.cython_lint import PYCODESTYLE_CODES

ROOT = Path(__file__).resolve().parent.parent


def main(places: list[str]) -> int:
    """Return 1 if either of the two has found something; both say what."""
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
