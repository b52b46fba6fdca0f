"""`udpfast wire`: measure the lines between two hosts."""

from __future__ import annotations

from typing import Any

import click

from udpfast.cli.verbs import Verbs

__all__ = ["wire"]


@click.group(
    cls=Verbs,
    lines={
        "listen": "send echoes to whoever measures, and show what arrived",
        "send": "measure one or more lines to a listener",
    },
    file="udpfast.cli.wire_{0}:{0}",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def wire(**_: Any) -> None:
    """Measure the lines between two hosts: delays, loss, order, and which line is first.

    \b
    Example, on this host alone:
      udpfast wire listen 127.0.0.1:7007 --sessions 1 &
      udpfast wire send 127.0.0.1 --seconds 2

    \b
    Between two cities, on B and then on A:
      udpfast wire listen 10.1.0.2@eth1 10.2.0.2@eth2
      udpfast wire send 10.1.0.2 --lines microwave=eth1,fibre=eth2@10.2.0.2 --report wire.html

    The package udpfast.probe measures the same from Python.
    """
