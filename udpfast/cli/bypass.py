"""Start a verb again under a preloaded stack."""

from __future__ import annotations

import os
import sys

from udpfast.config.receive import BypassConfig
from udpfast.core.log import say_start
from udpfast.errors import ConfigError
from udpfast.monitor.bypass import planned_launch
from udpfast.net.bypass import State, environment_settings, inspect_bypass
from udpfast.net.bypass_launch import LAUNCHED

__all__ = ["enter_bypass", "print_environment"]


def enter_bypass(
    bypass: BypassConfig, rcvbuf_bytes: int, *, strict: bool = False, quiet: bool
) -> None:
    """Start this very command again under the stack that it asks for.

    Returns where none is asked for, where this is the process that was started again, or where
    the user had preloaded the stack already; its settings are then all the user's.

    Raises
    ------
    ConfigError
        The stack's library is not there, or another stack is preloaded.
    """
    asked = bypass.stack
    if asked == "none" or os.environ.get(LAUNCHED) == asked:
        return
    loaded = inspect_bypass()
    if loaded.stack == asked:
        return
    if loaded.state is not State.NONE:
        raise ConfigError(
            f"bypass {asked}: expected no other stack to be preloaded, found {loaded.stack}"
        )
    launch = planned_launch(bypass, rcvbuf_bytes, strict=strict)
    if not quiet:
        for line in launch.lines:
            say_start(f"udpfast: bypass {asked}: {line}")
    # The same interpreter with the same arguments: -m, options and all.
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], launch.environment)


def print_environment() -> None:
    """Print LD_PRELOAD and every setting of a stack that this process has."""
    for name, value in environment_settings(os.environ).items():
        say_start(f"udpfast: environment {name}={value}")
