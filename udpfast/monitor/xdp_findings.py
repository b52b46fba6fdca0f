"""What AF_XDP lacks for one feed: by what opens it, but without a program on an interface."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from udpfast.agents.feed.lines import xdp_lines, xdp_options
from udpfast.config import FeedConfig
from udpfast.errors import ConfigError, sentence
from udpfast.host import Finding
from udpfast.host.finding import unjudged
from udpfast.net.xdp_host import XdpDriver, XdpInterface, XdpOptions, group_lines
from udpfast.net.xdp_open import foresee

__all__ = ["inspect_xdp"]

_EFFECT = "udpfast run refuses to start."


def inspect_xdp(
    config: FeedConfig, pid: int | None, rights: Callable[[], AbstractContextManager[None]]
) -> list[Finding]:
    """Return what `udpfast run` would say of each interface that the lines come by.

    Nothing is attached or bound, so what runs is not disturbed. The interfaces must be there.

    Parameters
    ----------
    config : FeedConfig
    pid : int, optional
        The feed's process, which may hold the program itself.
    rights : callable
        Makes a context that has the rights of that process.
    """
    options = xdp_options(config)
    try:
        groups = group_lines(xdp_lines(config))
    except ConfigError as error:
        want = "lines that can be told apart"
        return [Finding("receive.path", want, str(error), False, _EFFECT, fault=True)]
    findings = []
    for interface, lines in groups:
        name, want = f"AF_XDP {interface.name}", "what the file asks of it"
        if pid is not None and interface.program and _may_hold(pid, interface):
            have = f"a program of the feed, which runs (pid {pid})"
            reason = "it can be judged while the feed is stopped"
            findings.append(unjudged(name, want, have, _EFFECT, reason))
            continue
        try:
            with rights():
                driver = foresee(interface, lines, options)
        except (ConfigError, OSError) as error:
            have = sentence(error)
            findings.append(Finding(name, want, have, False, _EFFECT, fault=True))
            continue
        findings.append(_judged(name, want, driver, options))
    return findings


def _judged(name: str, want: str, driver: XdpDriver | None, options: XdpOptions) -> Finding:
    if driver is not None:
        mode = "native" if driver.native and options.mode != "generic" else "generic"
        copied = mode == "generic" or options.zero_copy == "off" or not driver.zero_copy
        have = f"{mode}, {'frames are copied' if copied else 'zero copy'}"
        return Finding(name, want, have, True, _EFFECT, fault=True)
    reason = "this kernel does not tell what the driver can do"
    asks = options.mode == "native" or options.zero_copy == "on"
    have = "a program can be attached"
    if asks:
        return unjudged(name, want, have, _EFFECT, reason)
    return Finding(name, want, have, True, _EFFECT, fault=True)


def _may_hold(pid: int, interface: XdpInterface) -> bool:
    """Return whether a process has a program on an interface, or does not let itself be asked."""
    try:
        for each in Path(f"/proc/{pid}/fdinfo").iterdir():
            words = each.read_text().split()
            if "xdp" in words and words[words.index("ifindex:") + 1 :][:1] == [
                str(interface.index)
            ]:
                return True
    except PermissionError:
        return True
    except (OSError, ValueError):  # it ended meanwhile
        return False
    return False
