"""What is found of one knob of the host, and what would mend it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Change", "Finding", "absent", "unjudged"]


@dataclass(frozen=True, slots=True)
class Change:
    """One setting of the kernel, and what it should be.

    Attributes
    ----------
    kind : str
        "file", or "ethtool" for what only the driver can set.
    target : str
        The file, as "/proc/sys/vm/swappiness"; else interface, flag and parameter of ethtool, as
        "eth1 -C rx-usecs".
    old, new : str
        What it is, and what it should be.
    """

    kind: str
    target: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One property of the host.

    Attributes
    ----------
    name : str
        What was looked at.
    want : str
        What a low-latency receiver wants.
    have : str
        What was found.
    ok : bool or None
        Whether that will do; None if it cannot be judged here.
    effect : str
        What it does to a feed, a sentence.
    reason : str
        Why it cannot be judged; empty if it is.
    changes : tuple of Change
        What makes it better while the host runs; empty if nothing does, or nothing has to.
    fault : bool
        Whether a feed cannot run, or not as it is asked to, while it is not as it should be;
        otherwise it costs time, or datagrams under load.
    """

    name: str
    want: str
    have: str
    ok: bool | None
    effect: str
    reason: str = ""
    changes: tuple[Change, ...] = ()
    fault: bool = False


def absent(name: str, want: str, effect: str, reason: str) -> Finding:
    """Return the finding about something that is not there."""
    return Finding(name, want, "absent", None, effect, reason)


def unjudged(name: str, want: str, have: str, effect: str, reason: str) -> Finding:
    """Return the finding about something that is there, and cannot be judged."""
    return Finding(name, want, have, None, effect, reason)
