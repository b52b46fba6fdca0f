"""Findings about the knobs of a host, and the changes that improve them."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Change", "Finding", "absent", "unjudged"]


class Change(NamedTuple):
    """One change of a kernel setting.

    Attributes
    ----------
    kind : str
        "file", or "ethtool" for what only the driver can set.
    target : str
        The file, such as "/proc/sys/vm/swappiness", or interface, flag and parameter of ethtool,
        such as "eth1 -C rx-usecs".
    old, new : str
        The present value, and the value to set.
    """

    kind: str
    target: str
    old: str
    new: str


class Finding(NamedTuple):
    """One property of the host.

    Attributes
    ----------
    name : str
        What was inspected.
    want : str
        What a low-latency receiver needs.
    have : str
        What was found.
    ok : bool or None
        Whether that is good enough; None if it cannot be judged here.
    effect : str
        How it affects a feed, as a sentence.
    reason : str
        Why it cannot be judged; empty if it can.
    changes : tuple of Change
        Changes that improve it while the host runs; empty if there are none, or none is needed.
    fault : bool
        Unless it is ok, a feed cannot run, or not as its file asks. Otherwise it only costs time,
        or datagrams under load.
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
    """Return the finding about something that does not exist on this host."""
    return Finding(name, want, "absent", None, effect, reason)


def unjudged(name: str, want: str, have: str, effect: str, reason: str) -> Finding:
    """Return the finding about something that exists but cannot be judged."""
    return Finding(name, want, have, None, effect, reason)
