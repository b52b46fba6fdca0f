"""Start a verb again under a preloaded stack, and say what there is of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from udpfast.config import FeedConfig
from udpfast.errors import ConfigError
from udpfast.host import Finding
from udpfast.net.bypass import (
    STACKS,
    State,
    describe_state,
    environment_settings,
    inspect_bypass,
)
from udpfast.net.bypass_launch import LAUNCHED, Launch, find_library, plan_launch

__all__ = [
    "describe_counters",
    "enter_bypass",
    "environment_of",
    "inspect_stacks",
    "print_environment",
]


def enter_bypass(config: FeedConfig, *, quiet: bool) -> None:
    """Start this very command again under the stack that the feed asks for.

    Returns where none is asked for, where this is the process that was started again, or where
    the user had preloaded the stack already; its settings are then all the user's.

    Raises
    ------
    ConfigError
        The stack's library is not there, or another stack is preloaded.
    """
    asked = config.bypass.stack
    if asked == "none" or os.environ.get(LAUNCHED) == asked:
        return
    loaded = inspect_bypass()
    if loaded.stack == asked:
        return
    if loaded.state is not State.NONE:
        raise ConfigError(
            f"bypass {asked}: expected one stack, found {loaded.stack} preloaded already"
        )
    launch = _launch(config)
    if not quiet:
        for line in launch.lines:
            click.echo(f"udpfast: bypass {asked}: {line}")
    sys.stdout.flush()
    # The same interpreter with the same arguments: -m, options and all.
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], launch.environment)


def inspect_stacks(config: FeedConfig | None) -> list[Finding]:
    """Say which stacks are installed, which the feed asks for, and what it would start with."""
    asked = config.bypass.stack if config else "none"
    findings = []
    for stack in STACKS.values():
        wanted = stack.name == asked
        try:
            explicit = config.bypass.library if config and wanted else ""
            have, found = str(find_library(stack, explicit, os.environ)), True
        except ConfigError as error:
            have, found = str(error) if wanted else "not installed", False
        findings.append(
            Finding(
                f"bypass {stack.name}",
                f"{stack.library}, as bypass.stack asks" if wanted else "nothing asks for it",
                have,
                found if wanted else None,
                "udpfast run refuses to start: without the library it would receive through the "
                "kernel, and nothing would say so.",
            )
        )
        if config and wanted and found:
            findings.append(_plan_finding(config))
    settings = environment_settings(os.environ)
    findings.append(
        Finding(
            "bypass environment",
            "your own settings: they win over the profile",
            " ".join(f"{name}={value}" for name, value in settings.items()) or "none set",
            None,
            "",
        )
    )
    return findings


def print_environment() -> None:
    """Print LD_PRELOAD and every setting of a stack that this process has."""
    for name, value in environment_settings(os.environ).items():
        click.echo(f"udpfast: environment {name}={value}")


def describe_counters(feed: Mapping[str, int]) -> str:
    """Return in words what an instance's counters say of its bypass."""
    names = {stack.number: stack.name for stack in STACKS.values()}
    return describe_state(names.get(feed["bypass_stack"], "none"), State(feed["bypass_state"]))


def environment_of(pid: int) -> dict[str, str]:
    """Return the stack settings that a live process was started with; empty if it is not ours."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in entries)
    return environment_settings({name: value for name, _, value in pairs})


def _launch(config: FeedConfig) -> Launch:
    stack = STACKS[config.bypass.stack]
    library = find_library(stack, config.bypass.library, os.environ)
    return plan_launch(
        stack,
        library,
        os.environ,
        rcvbuf_bytes=config.receive.rcvbuf_bytes,
        strict=config.bypass.strict or config.agent.strict,
    )


def _plan_finding(config: FeedConfig) -> Finding:
    return Finding(
        f"bypass {config.bypass.stack} start",
        "what udpfast run sets",
        "; ".join(_launch(config).lines),
        None,
        "",
    )
