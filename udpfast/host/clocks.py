"""The quality of this host's clock, according to chrony, ptp4l, phc2sys and the kernel."""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from udpfast.host.finding import Finding, absent, unjudged
from udpfast.host.tree import HostTree, HostUse

__all__ = ["ClockState", "inspect_clocks", "read_clock"]

#: Daemons that steer a clock, by process name (the kernel keeps 15 bytes of it).
DAEMONS = {
    "chronyd": "chrony",
    "ptp4l": "ptp4l",
    "phc2sys": "phc2sys",
    "ntpd": "ntpd",
    "systemd-timesyn": "systemd-timesyncd",
}
#: Largest error at which a feed's latencies between two hosts are still meaningful.
ERROR_WANTED_NS = 1_000_000
EFFECT = "Latencies from another host's clock, and one-way times, are wrong by as much."
UNSTEERED = "A clock that nothing steers drifts by seconds a day."

_STA_UNSYNC = 0x0040  # linux/timex.h
_TIME_ERROR = 5

Asked = Callable[[Sequence[str]], str]


class ClockState(NamedTuple):
    """What steers the clock, and its largest error.

    Attributes
    ----------
    source : str
        "chrony", "ptp4l", "phc2sys", "ntpd", "systemd-timesyncd", "kernel" (the kernel was told
        that the clock is right, by an unknown daemon) or "none".
    daemons : tuple of str
        The clock daemons that run here.
    synchronised : bool
        The source says that the clock follows a reference.
    offset_ns, error_ns : int or None
        Last measured distance of the clock from its reference, and the largest error that the
        source states; None: not stated.
    text : str
        The same as a sentence.
    """

    source: str
    daemons: tuple[str, ...]
    synchronised: bool
    offset_ns: int | None
    error_ns: int | None
    text: str


def read_clock(root: Path = Path("/"), ask: Asked | None = None) -> ClockState:
    """Return the quality of this host's clock. Takes a few ms, because it runs `chronyc` or `pmc`.

    Parameters
    ----------
    root : Path
        Directory with `proc`; a test makes its own.
    ask : callable, optional
        Runs a command and returns its output, "" if it failed; a test passes its own.
    """
    ask = ask or _ask
    daemons = _running(HostTree(root, HostUse()))
    if "chrony" in daemons and (state := _chrony(ask, daemons)):
        return state
    if "ptp4l" in daemons and (state := _ptp(ask, daemons)):
        return state
    return _kernel(daemons, _adjtimex() if root == Path("/") else None)


def inspect_clocks(tree: HostTree) -> Iterator[Finding]:
    """Yield the findings about what steers the clock, and about its error."""
    source, want = "clock daemon", "chrony, or ptp4l and phc2sys"
    if not (tree.root / "proc/self").is_dir():
        yield absent(source, want, UNSTEERED, "no /proc")
        yield absent("clock error", f"at most {_words(ERROR_WANTED_NS)}", EFFECT, "no /proc")
        return
    state = read_clock(tree.root)
    running = " and ".join(state.daemons) or "nothing"
    ok = bool(state.daemons)
    if "ptp4l" in state.daemons and "phc2sys" not in state.daemons and state.source != "chrony":
        # ptp4l steers the NIC's clock; with software stamps it steers the system's itself.
        ok = state.synchronised
    yield Finding(source, want, f"{running} runs", ok, UNSTEERED)
    want = f"synchronised, error at most {_words(ERROR_WANTED_NS)}"
    if state.synchronised and state.error_ns is None:
        yield unjudged("clock error", want, state.text, EFFECT, "the source states no error")
    else:
        ok = state.synchronised and (state.error_ns or 0) <= ERROR_WANTED_NS
        yield Finding("clock error", want, state.text, ok, EFFECT)


def _running(tree: HostTree) -> tuple[str, ...]:
    names = {tree.text(file) for file in tree.glob("proc/[0-9]*/comm")}
    return tuple(daemon for name, daemon in DAEMONS.items() if name in names)


def _chrony(ask: Asked, daemons: tuple[str, ...]) -> ClockState | None:
    # chronyc(1), tracking: the error is at most |offset| + root dispersion + root delay / 2.
    fields = ask(["chronyc", "-n", "-c", "tracking"]).strip().split(",")
    try:
        reference = fields[1] or fields[0]
        offset_s, delay_s, dispersion_s = float(fields[4]), float(fields[10]), float(fields[11])
        leap = fields[13]
    except (IndexError, ValueError):
        return None
    locked = leap != "Not synchronised"
    error_ns = round((abs(offset_s) + dispersion_s + delay_s / 2) * 1e9)
    text = (
        f"chrony follows {reference}, error at most {_words(error_ns)}"
        if locked
        else "chrony runs and follows nothing"
    )
    offset_ns = round(offset_s * 1e9)
    return ClockState("chrony", daemons, locked, offset_ns, error_ns if locked else None, text)


def _ptp(ask: Asked, daemons: tuple[str, ...]) -> ClockState | None:
    # pmc(8) asks ptp4l through its socket. The offset is that of the NIC's clock or, with software
    # time stamps, of the system's; phc2sys makes the system's clock follow the NIC's.
    shown = ask(["pmc", "-u", "-b", "0", "GET TIME_STATUS_NP", "GET PORT_DATA_SET"])
    offset = re.search(r"^\s*master_offset\s+(-?\d+)", shown, re.M)
    if offset is None:
        return None
    states = re.findall(r"^\s*portState\s+(\w+)", shown, re.M)
    locked = "SLAVE" in states
    offset_ns = int(offset[1])
    how = "ptp4l and phc2sys follow" if "phc2sys" in daemons else "ptp4l follows"
    text = (
        f"{how} a master, offset {_words(offset_ns)}"
        if locked
        else f"ptp4l runs, its port is {' '.join(states) or 'unknown'}"
    )
    # No figure includes an asymmetry of the path to the master: the offset is a lower bound.
    return ClockState("ptp4l", daemons, locked, offset_ns, abs(offset_ns) if locked else None, text)


def _kernel(daemons: tuple[str, ...], told: tuple[bool, int] | None) -> ClockState:
    source = daemons[0] if daemons else "none"
    if told is None or not told[0]:
        runs = " and ".join(daemons)
        text = f"{runs} runs, not synchronised" if daemons else "nothing steers the clock"
        return ClockState(source, daemons, False, None, None, text)
    error_ns = told[1]
    text = f"synchronised ({' and '.join(daemons) or 'source unknown'})"
    if error_ns:
        text += f", error at most {_words(error_ns)}"
    source = source if daemons else "kernel"
    return ClockState(source, daemons, True, None, error_ns or None, text)


class _Timex(ctypes.Structure):  # adjtimex(2)
    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 32),
    )


def _adjtimex() -> tuple[bool, int] | None:
    """Return whether the kernel was told that the clock is right, and its largest error in ns."""
    found = _Timex()
    state = ctypes.CDLL(None).adjtimex(ctypes.byref(found))
    if state < 0:
        return None
    return state != _TIME_ERROR and not found.status & _STA_UNSYNC, found.maxerror * 1000


def _ask(command: Sequence[str]) -> str:
    if (path := _which(command[0])) is None:
        return ""
    try:
        answer = subprocess.run(
            [path, *command[1:]], capture_output=True, text=True, check=False, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout if answer.returncode == 0 else ""


@functools.cache
def _which(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/sbin")


def _words(value_ns: int) -> str:
    for size, unit in ((1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")):
        if abs(value_ns) >= size:
            return f"{value_ns / size:.3g} {unit}"
    return f"{value_ns} ns"
