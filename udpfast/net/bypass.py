"""Kernel bypass by LD_PRELOAD: the stacks there are, and whether one is active in this process.

OpenOnload, VMA and XLIO replace libc's socket functions in a process that is started with their
library preloaded. Without it, or without its driver, the same program runs on the kernel's stack
and says nothing: ld.so ignores a library that it cannot load, Onload falls back to ordinary
sockets, and VMA fails the first call only. Therefore no request is trusted: `bypass_launch`
refuses a library that is not there, and after the start the process itself is looked at.
"""

import ctypes
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path

from udpfast.errors import UdpfastError

__all__ = [
    "STACKS",
    "Bypass",
    "Preset",
    "Stack",
    "State",
    "describe_state",
    "environment_settings",
    "inspect_bypass",
    "open_first_socket",
]

# getsockopt(fd, SOL_SOCKET, 2800) answers under VMA (vma_extra.h) and XLIO (xlio_types.h) alone.
# The file descriptor is -1 in older versions and -2 in newer ones; the kernel refuses both.
_SO_GET_API = 2800
_API_DESCRIPTORS = (-2, -1)


class State(IntEnum):
    """How far the bypass of this process goes; the value of the counter `bypass_state`."""

    NONE = 0  # nobody asked, nothing is loaded
    ABSENT = 1  # asked for, but its library is not in the process
    LOADED = 2  # its library is in the process, the sockets are the kernel's
    ACCELERATED = 3  # its library answers and holds its device open


@dataclass(frozen=True, slots=True)
class Preset:
    """One environment variable of a stack's profile, and why it has this value."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True)
class Stack:
    """One preloaded network stack.

    Attributes
    ----------
    name : str
    number : int
        The value of the counter `bypass_stack`.
    library : str
        File name, a version may follow.
    mapped : tuple of str
        Beginnings of its file name in /proc/self/maps, where links are resolved.
    prefix : str
        Of its environment variables.
    device : str
        Beginning of the device's name that it holds open while it accelerates.
    profile : tuple of Preset
        What a feed wants of it.
    strict : tuple of Preset
        What makes it fail instead of falling back to the kernel.
    install : str
        Where it comes from.
    """

    name: str
    number: int
    library: str
    mapped: tuple[str, ...]
    prefix: str
    device: str
    profile: tuple[Preset, ...]
    strict: tuple[Preset, ...]
    install: str


_SPEC_REASON = "as in the stack's own latency profile: it polls forever, on one thread, in huge "
"pages"
_EXIT_REASON = "the process ends if the stack cannot start, instead of continuing without it"

STACKS = {
    "onload": Stack(
        name="onload",
        number=1,
        library="libonload.so",
        mapped=("libonload.so", "libcitransport"),
        prefix="EF_",
        device="/dev/onload",
        profile=(
            Preset(
                "EF_POLL_USEC", "100000", "us that a blocking call spins, as in its latency.opf"
            ),
        ),
        strict=(
            Preset("EF_NO_FAIL", "0", "refuse to open a socket on the kernel's stack instead"),
        ),
        install="install OpenOnload",
    ),
    "vma": Stack(
        name="vma",
        number=2,
        library="libvma.so",
        mapped=("libvma.so",),
        prefix="VMA_",
        device="/dev/infiniband/uverbs",
        profile=(Preset("VMA_SPEC", "latency", _SPEC_REASON),),
        strict=(Preset("VMA_EXCEPTION_HANDLING", "-2", _EXIT_REASON),),
        install="install libvma",
    ),
    "xlio": Stack(
        name="xlio",
        number=3,
        library="libxlio.so",
        mapped=("libxlio.so",),
        prefix="XLIO_",
        device="/dev/infiniband/uverbs",
        profile=(Preset("XLIO_SPEC", "latency", _SPEC_REASON),),
        strict=(Preset("XLIO_EXCEPTION_HANDLING", "-2", _EXIT_REASON),),
        install="install libxlio (NVIDIA DOCA)",
    ),
}


@dataclass(frozen=True, slots=True)
class Bypass:
    """What this process has of a stack.

    Attributes
    ----------
    stack : str
        The one asked for, else the one that is loaded, else "none".
    asked : bool
        Whether somebody asked for it.
    state : State
    reason : str
        Why it is not accelerated; empty where it is, or where there is none.
    """

    stack: str
    asked: bool
    state: State
    reason: str

    @property
    def missing(self) -> bool:
        """Whether it was asked for and is not active."""
        return self.asked and self.state is not State.ACCELERATED

    @property
    def text(self) -> str:
        """One line: "onload: loaded, but using the kernel's stack: no /dev/onload is open"."""
        return describe_state(self.stack, self.state) + (f": {self.reason}" if self.reason else "")


def describe_state(stack: str, state: State) -> str:
    """Return a stack's state in words."""
    if state is State.NONE:
        return "none: sockets are the kernel's"
    words = {
        State.ABSENT: "NOT ACTIVE, not even loaded",
        State.LOADED: "loaded, but using the kernel's stack",
        State.ACCELERATED: "accelerated",
    }
    return f"{stack}: {words[state]}"


def inspect_bypass(asked: str = "none", root: Path = Path("/")) -> Bypass:
    """Look at this process: which stack is loaded, does it answer, does it hold its device.

    Parameters
    ----------
    asked : str
        The stack that should be there, or "none".
    root : Path
        Where `proc` is; a test lays out its own.

    Notes
    -----
    Call it when sockets are open: Onload opens its device with the first one. One look costs a
    read of /proc/self/maps: for starts, not for loops.
    """
    loaded = [stack for stack in STACKS.values() if _is_mapped(stack, root)]
    stack = STACKS[asked] if asked != "none" else loaded[0] if loaded else None
    if stack is None:
        return Bypass("none", False, State.NONE, "")
    found = Bypass(stack.name, asked != "none", State.LOADED, "")
    if stack not in loaded:
        others = ", ".join(other.library for other in loaded)
        return replace(
            found,
            state=State.ABSENT,
            reason=f"{stack.library} is not loaded in this process"
            + (f", but {others} is" if others else "")
            + "; ld.so ignores LD_PRELOAD for programs with file capabilities or setuid",
        )
    if not _answers(stack):
        return replace(found, reason=f"{stack.library} does not answer as the active stack")
    if not _holds_device(stack, root):
        return replace(
            found,
            reason=f"no {stack.device} is open: its driver is not loaded, or no NIC supports it",
        )
    return replace(found, state=State.ACCELERATED)


def open_first_socket(stack: str) -> str:
    """Open a socket and close it, so that a stack which fails its first call fails this one.

    Without a usable NIC, VMA returns an error from the first intercepted call and works on the
    kernel's sockets from then on.

    Returns
    -------
    str
        What the first call failed with; empty if it did not.

    Raises
    ------
    UdpfastError
        The second call fails too: there are no sockets under this stack.
    """
    failure = ""
    for _ in range(2):
        try:
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
        except OSError as error:
            again, failure = bool(failure), error.strerror or str(error)
            if again:
                raise UdpfastError(
                    f"bypass {stack}: cannot open a socket: {failure}; the stack refuses to fall "
                    "back to the kernel (EF_NO_FAIL=0 allows it, and works without a driver)"
                ) from None
        else:
            break
    return failure


def environment_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return LD_PRELOAD and every variable of every stack, as the environment has them."""
    prefixes = tuple(stack.prefix for stack in STACKS.values())
    return {
        name: value
        for name, value in sorted(environment.items(), key=lambda item: item[0])
        if name == "LD_PRELOAD" or name.startswith(prefixes)
    }


def _is_mapped(stack: Stack, root: Path) -> bool:
    maps = (root / "proc/self/maps").read_text(encoding="utf-8", errors="replace")
    names = {line.rpartition("/")[2] for line in maps.splitlines() if "/" in line}
    return any(name.startswith(stack.mapped) for name in names)


def _answers(stack: Stack) -> bool:
    # CDLL(None) looks symbols up as the program itself does, so preloaded ones come first.
    program = ctypes.CDLL(None)
    if stack.name == "onload":
        try:
            return bool(program.onload_is_present() == 1)
        except AttributeError:
            return False
    for descriptor in _API_DESCRIPTORS:
        interface = ctypes.c_void_p()
        size = ctypes.c_uint32(ctypes.sizeof(interface))
        result = program.getsockopt(
            descriptor,
            socket.SOL_SOCKET,
            _SO_GET_API,
            ctypes.byref(interface),
            ctypes.byref(size),
        )
        if result == 0 and interface.value:
            return True
    return False


def _holds_device(stack: Stack, root: Path) -> bool:
    for link in (root / "proc/self/fd").iterdir():
        try:
            if str(link.readlink()).startswith(stack.device):
                return True
        except OSError:  # closed meanwhile
            continue
    return False
