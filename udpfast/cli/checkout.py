"""Find the packages that only a checkout has: the benchmarks and the lab."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from udpfast.errors import ConfigError

__all__ = ["package_beside"]


def package_beside(folder: str, what: str, compiled: str) -> str:
    """Return the name under which a folder of the checkout is imported here.

    Parameters
    ----------
    folder : str
        Its name in a checkout; a wheel has it as `udpfast_` and that name.
    what : str
        What it holds, for the message.
    compiled : str
        One of its compiled modules, by its name below the folder.

    Raises
    ------
    ConfigError
        It is not installed, or not compiled.
    """
    # In a checkout the folder beside `udpfast` is the one that belongs to it, whatever another
    # checkout has installed.
    root = Path(__file__).resolve().parents[2]
    if (root / "pyproject.toml").exists() and (root / folder / "__init__.py").exists():
        name = folder
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))
    else:
        name = f"udpfast_{folder}"
    if (
        importlib.util.find_spec(name) is None
        or importlib.util.find_spec(f"{name}.{compiled}") is None
    ):
        raise ConfigError(
            f"this udpfast was installed without {what}: install it from a checkout with "
            "UDPFAST_BENCH=1 pip install ."
        )
    return name
