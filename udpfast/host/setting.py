"""Make changes: write files of the kernel, and set what only the driver can."""

from __future__ import annotations

import os
from pathlib import Path

from udpfast.host.ethtool import set_driver
from udpfast.host.finding import Change

__all__ = ["set_value", "write_file"]

_PLACES = ("/proc/sys/", "/proc/irq/", "/sys/")


def set_value(root: Path, change: Change) -> str:
    """Make one change; return why it was refused, or "" if it was not."""
    if change.kind == "ethtool":
        return set_driver(change.target, change.new)
    return write_file(root, change.target, f"{change.new}\n".encode())


def write_file(root: Path, target: str, content: bytes) -> str:
    """Write a setting in a single write, as the kernel requires; return why it was refused."""
    if not _is_kernel_file(root, target):
        return "expected an existing file below /proc/sys, /proc/irq or /sys, and no link"
    try:
        descriptor = os.open(f"{root}{target}", os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
        try:
            os.write(descriptor, content)
        finally:
            os.close(descriptor)
    except OSError as error:
        return str(error.strerror)
    return ""


def _is_kernel_file(root: Path, target: str) -> bool:
    # The file must exist and not be a link. Its directory may be a link, as /sys/class/net/eth1 is,
    # if it does not lead out of there.
    path = Path(f"{root}{target}")
    if not target.startswith(_PLACES) or ".." in target.split("/"):
        return False
    if path.is_symlink() or not path.is_file():
        return False
    real = str(path.resolve())
    tops = ("", str(root.resolve()))
    return any(real.removeprefix(top).startswith(_PLACES) for top in tops)
