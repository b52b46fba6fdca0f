"""Kernel bypass by LD_PRELOAD: the known stacks, and whether one is active in this process.

OpenOnload, VMA and XLIO replace libc's socket functions in a process that is started with their
library preloaded. Without the library, or without its driver, the same program silently runs on the
kernel's stack: ld.so ignores a library that it cannot load, Onload falls back to ordinary sockets,
and VMA fails only the first call. So a request alone proves nothing: `bypass_launch` refuses a
library that does not exist, and after the start the process itself is inspected.
"""

import ctypes
import socket
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

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
    """State of the bypass in this process; the value of the counter `bypass_state`."""

    NONE = 0  # not requested, and no stack is loaded
    ABSENT = 1  # requested, but its library is not loaded
    LOADED = 2  # its library is loaded, but the sockets are the kernel's
    ACCELERATED = 3  # its library answers and holds its device open


class Preset(Struct, frozen=True):
    """One environment variable of a stack's profile, and the reason for its value."""

    name: str
    value: str
    reason: str


class Stack(Struct, frozen=True):
    """One preloaded network stack.

    Attributes
    ----------
    name : str
        Name in settings and on the command line.
    number : int
        The value of the counter `bypass_stack`.
    library : str
        Name of its library's file, which a version may follow.
    mapped : tuple of str
        Prefixes of that file's name in /proc/self/maps, where links are resolved.
    prefix : str
        Prefix of its environment variables.
    device : str
        Prefix of the device's path that it holds open while it accelerates.
    profile : tuple of Preset
        Settings for a feed.
    strict : tuple of Preset
        Settings that make it fail instead of falling back to the kernel.
    install : str
        How to install it.
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


_SPEC_REASON = (
    "as in the stack's own latency profile: it polls forever, on one thread, in huge pages"
)
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


class Bypass(Struct, frozen=True):
    """The state of kernel bypass in this process.

    Attributes
    ----------
    stack : str
        The requested stack; if none was requested, the loaded one, or "none".
    asked : bool
        Whether a stack was requested.
    state : State
        How far it is active.
    reason : str
        Why it is not accelerated; empty if it is, or if there is no stack.
    """

    stack: str
    asked: bool
    state: State
    reason: str

    @property
    def missing(self) -> bool:
        """Whether a stack was requested and is not active."""
        return self.asked and self.state is not State.ACCELERATED

    @property
    def text(self) -> str:
        """State and reason: "onload: loaded, but using the kernel's stack: no /dev/onload ..."."""
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
    """Inspect this process: which stack is loaded, whether it answers and holds its device.

    Parameters
    ----------
    asked : str
        The requested stack, or "none".
    root : Path
        The directory that contains `proc`; tests make their own.

    Notes
    -----
    Call it when sockets are open: Onload opens its device with the first socket. It reads
    /proc/self/maps, which is too slow for a loop.
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
    """Open and close a socket, so that a stack that fails its first call fails here.

    Without a usable NIC, VMA returns an error from the first intercepted call and uses the kernel's
    sockets from then on.

    Returns
    -------
    str
        The error of the first call; empty if it succeeded.

    Raises
    ------
    UdpfastError
        The second call failed, too: this stack cannot open sockets.
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
    """Return LD_PRELOAD and the variables of all stacks that are set in an environment."""
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
    # CDLL(None) resolves symbols as the program itself does, so preloaded libraries come first.
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
        except OSError:  # has been closed meanwhile
            continue
    return False
