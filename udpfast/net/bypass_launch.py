"""How to start a process under a preloaded stack: the library and the environment.

ld.so ignores a library that it cannot load, and the program then runs on the kernel's stack. This
module refuses such a library instead.
"""

import struct
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from udpfast.errors import ConfigError
from udpfast.net.bypass import Preset, Stack

__all__ = ["LAUNCHED", "Launch", "find_library", "plan_launch"]

#: Environment variable of a process that was started under a stack; it has the stack's name.
LAUNCHED = "UDPFAST_BYPASS"

# Directories that ld.so may not search, but into which installers put libraries.
_DIRECTORIES = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib",
    "usr/local/lib64",
    "usr/local/lib",
)

_ELF_CLASS = {4: 1, 8: 2}[struct.calcsize("P")]  # ELFCLASS32, ELFCLASS64


class Launch(Struct, frozen=True):
    """How to start a process under a stack: its environment, and a line of text per variable."""

    environment: dict[str, str]
    lines: tuple[str, ...]


def find_library(
    stack: Stack, explicit: str, environment: Mapping[str, str], root: Path = Path("/")
) -> Path:
    """Return the path of the library to preload: the first one that ld.so can load.

    Parameters
    ----------
    stack : Stack
        The stack whose library to find.
    explicit : str
        A path from the user. Empty: search LD_LIBRARY_PATH, the cache of ldconfig, and then the
        usual directories.
    environment : mapping
        Environment of the process.
    root : Path
        The directory that contains `sbin` and `usr`; tests make their own.

    Raises
    ------
    ConfigError
        There is none, or ld.so would ignore it. The message says where it was searched and what to
        install.
    """
    if explicit:
        path = Path(explicit).absolute()
        refusal = _why_not_loadable(path)
        if refusal:
            raise ConfigError(f"bypass {stack.name}: {refusal}")
        return path
    preferred = [Path(name) for name in environment.get("LD_LIBRARY_PATH", "").split(":") if name]
    usual = [root / name for name in _DIRECTORIES]
    for path in [*_in(preferred, stack), *_in_cache(root, stack), *_in(usual, stack)]:
        if not _why_not_loadable(path):
            return path
    looked = ", ".join(f"/{name}" for name in _DIRECTORIES)
    raise ConfigError(
        f"bypass {stack.name}: expected {stack.library}, found it neither in LD_LIBRARY_PATH nor "
        f"the ldconfig cache nor {looked}: {stack.install}, or set its path with --bypass-library "
        "or bypass.library"
    )


def plan_launch(
    stack: Stack,
    library: Path,
    environment: Mapping[str, str],
    *,
    rcvbuf_bytes: int = 0,
    strict: bool = False,
) -> Launch:
    """Return the environment for a process under a stack; variables that are set already win.

    Parameters
    ----------
    stack : Stack
        The stack.
    library : Path
        The result of `find_library`.
    environment : mapping
        Environment of the process; not changed.
    rcvbuf_bytes : int
        Size of the receive queue that the sockets will request; 0: the stack's default.
    strict : bool
        Make the stack fail instead of falling back to the kernel.
    """
    planned = dict(environment)
    others = environment.get("LD_PRELOAD", "")
    planned["LD_PRELOAD"] = f"{library}:{others}" if others else str(library)
    planned[LAUNCHED] = stack.name
    lines = [f"LD_PRELOAD={planned['LD_PRELOAD']}"]
    for preset in _presets(stack, rcvbuf_bytes, strict):
        own = environment.get(preset.name)
        if own is None:
            planned[preset.name] = preset.value
            lines.append(f"{preset.name}={preset.value}: {preset.reason}")
        else:
            lines.append(
                f"{preset.name}={own} stays as your environment sets it; the profile has "
                f"{preset.value}: {preset.reason}"
            )
    return Launch(planned, tuple(lines))


def _presets(stack: Stack, rcvbuf_bytes: int, strict: bool) -> Iterator[Preset]:
    yield from stack.profile
    if stack.name == "onload" and rcvbuf_bytes:
        yield Preset(
            "EF_UDP_RCVBUF",
            str(min(rcvbuf_bytes, (1 << 30) - 1)),  # Onload accepts at most half of an int32
            "receive.rcvbuf_bytes, whatever net.core.rmem_max allows the kernel's sockets",
        )
    if strict:
        yield from stack.strict


def _in(directories: list[Path], stack: Stack) -> Iterator[Path]:
    for directory in directories:
        yield from sorted(directory.glob(f"{stack.library}*"))


def _in_cache(root: Path, stack: Stack) -> Iterator[Path]:
    # Lines look like "libvma.so.9 (libc6,x86-64) => /lib/x86_64-linux-gnu/libvma.so.9".
    try:
        listing = subprocess.run(
            [root / "sbin/ldconfig", "-p"], capture_output=True, text=True, check=False
        ).stdout
    except OSError:
        return
    for line in listing.splitlines():
        name, arrow, path = line.strip().partition(" => ")
        if arrow and name.startswith(stack.library):
            yield Path(path)


def _why_not_loadable(path: Path) -> str:
    # Return why ld.so would ignore the file; "" if it would load it.
    if set(str(path)) & set(" :"):
        return (
            "expected a path without spaces and colons, at which ld.so would split it, found "
            f"{path}"
        )
    try:
        with path.open("rb") as file:
            head = file.read(5)
    except OSError as error:
        return f"expected a shared library, found {path}: {error.strerror}"
    if head != b"\x7fELF" + bytes([_ELF_CLASS]):
        return f"expected a shared library of {32 * _ELF_CLASS} bits, found another file: {path}"
    return ""
