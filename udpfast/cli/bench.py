"""`udpfast bench`: the package of benchmarks, loaded only when it is asked for."""

from __future__ import annotations

import importlib

import click

from udpfast.cli.checkout import package_beside

__all__ = ["bench"]

_name = package_beside("bench", "the benchmarks", "loops.hostprobe")
bench: click.Command = importlib.import_module(f"{_name}.main").bench
