"""`udpfast bench`: the package of benchmarks, loaded only when it is asked for."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import click

from udpfast.errors import ConfigError

__all__ = ["bench"]


def _package() -> str:
    # In a checkout the folder `bench` beside `udpfast` is the one that belongs to it, whatever
    # another checkout has installed; a wheel brings it under a name of its own.
    root = Path(__file__).resolve().parents[2]
    if not ((root / "pyproject.toml").exists() and (root / "bench/trials.py").exists()):
        return "udpfast_bench"
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return "bench"


_package_name = _package()
if (
    importlib.util.find_spec(_package_name) is None
    or importlib.util.find_spec(f"{_package_name}.loops.hostprobe") is None
):
    raise ConfigError(
        "this udpfast was installed without the benchmarks: install it from a checkout with "
        "UDPFAST_BENCH=1 pip install ."
    )

bench: click.Command = importlib.import_module(f"{_package_name}.main").bench
