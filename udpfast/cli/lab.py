"""`udpfast lab`: the package of programs that try udpfast, loaded only when it is asked for."""

from __future__ import annotations

import importlib

import click

from udpfast.cli.checkout import package_beside

__all__ = ["lab"]

_name = package_beside("lab", "the lab", "ringload")
lab: click.Command = importlib.import_module(f"{_name}.main").lab
