"""Which stack receives in place of the kernel's: what was found, and what would start it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from udpfast.config.receive import BypassConfig
from udpfast.net.bypass import STACKS, State, describe_state, environment_settings
from udpfast.net.bypass_launch import Launch, find_library, plan_launch

__all__ = ["BypassStatus", "planned_launch", "read_bypass"]


class BypassStatus(Struct, frozen=True, rename={"text": "is"}):
    """What receives, in words, and the stack settings that a live process was started with."""

    text: str
    environment: dict[str, str]


def read_bypass(feed: Mapping[str, int], pid: int | None) -> BypassStatus:
    """Return what a feed's counters say of its bypass; `pid`: its process, if that is alive."""
    names = {stack.number: stack.name for stack in STACKS.values()}
    text = describe_state(names.get(feed["bypass_stack"], "none"), State(feed["bypass_state"]))
    return BypassStatus(text, {} if pid is None else _environment(pid))


def planned_launch(bypass: BypassConfig, rcvbuf_bytes: int, *, strict: bool = False) -> Launch:
    """Return how a command is started under the stack that it asks for.

    Parameters
    ----------
    bypass : BypassConfig
    rcvbuf_bytes : int
        What its sockets ask for.
    strict : bool
        It must not run unless the stack accelerates; `bypass.strict` says so, too.

    Raises
    ------
    ConfigError
        The stack's library is not there.
    """
    stack = STACKS[bypass.stack]
    library = find_library(stack, bypass.library, os.environ)
    return plan_launch(
        stack,
        library,
        os.environ,
        rcvbuf_bytes=rcvbuf_bytes,
        strict=bypass.strict or strict,
    )


def _environment(pid: int) -> dict[str, str]:
    # Empty if it is not ours.
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in entries)
    return environment_settings({name: value for name, _, value in pairs})
