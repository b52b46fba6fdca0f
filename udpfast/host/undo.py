"""The undo file: the values before the changes, and who may write it.

It has the id of the boot (settings do not outlive a boot), then one line per value: kind, target,
and the original bytes in base64. The first value recorded for a target stays. Because the file
tells root what to write where, nobody else may write it, replace it, or redirect its path; and
whatever it says, only existing settings of the kernel are written.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

from udpfast.host.ethtool import set_driver
from udpfast.host.finding import Change
from udpfast.host.setting import write_file

__all__ = ["Row", "UndoFile", "UndoFileError"]

#: One change in a table: setting, old, new, result, reason.
Row = tuple[str, str, str, str, str]

_DRIVER_TARGET = re.compile(r"[^-/\s][^/\s]* -[ACGK] [a-z][a-z-]*")
_DRIVER_VALUE = re.compile(r"[a-z0-9]+")


class UndoFileError(Exception):
    """The undo file can be written by others than root, or does not exist."""


class UndoFile:
    """The undo file of a host whose `proc` and `sys` are below `root`.

    Raises
    ------
    UndoFileError
        Somebody else could write it, replace it, or redirect its path.
    """

    def __init__(self, path: Path, root: Path) -> None:
        self.path = _trusted(path)
        self._root = root
        try:
            self._boot = "boot " + (root / "proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            self._boot = "boot unknown"

    def remember(self, changes: Iterable[Change]) -> None:
        """Record the present values of the targets of these changes, before any is made."""
        lines = self._lines()
        if lines[:1] != [self._boot]:
            lines = [self._boot]
        known = {line.rpartition("\t")[0] for line in lines}
        for change in changes:
            key = f"{change.kind}\t{change.target}"
            if key in known:
                continue
            known.add(key)
            old = change.old.encode()
            if change.kind == "file":
                old = Path(f"{self._root}{change.target}").read_bytes()
            lines.append(f"{key}\t{base64.b64encode(old).decode()}")
        self._replace(lines)

    def undo(self) -> list[Row]:
        """Restore all values, the last change first. What cannot be restored stays in the file.

        Raises
        ------
        UndoFileError
            There is no undo file.
        """
        if not self.path.exists():
            raise UndoFileError(f"nothing to undo: there is no {self.path}")
        boot, *lines = self._lines() or [""]
        if boot != self._boot:
            print(
                f"nothing to undo: {self.path} was written before the last reboot", file=sys.stderr
            )
            self.path.unlink()
            return []
        rows: list[Row] = []
        left = []
        for line in reversed(lines):
            row = self._restore(line)
            if row is None:
                continue
            rows.append(row)
            if row[3] != "done":
                left.append(line)
        if left:
            self._replace([boot, *reversed(left)])
        else:
            self.path.unlink()
        return rows

    def _restore(self, line: str) -> Row | None:
        # Restore one value and read it back; None if it had not changed.
        kind, target, value = _parsed(line)
        if kind == "ethtool":
            error = set_driver(target, value.decode())
            if "unmodified" in error:  # some releases fail if nothing changes
                error = ""
            return _row(target, "", value, error)
        if kind != "file":
            return _row(target, "", b"", "expected a line that apply wrote")
        path = Path(f"{self._root}{target}")
        old = _content(path)
        if old == value:
            return None
        error = write_file(self._root, target, value)
        # A file with choices shows all of them but takes one: "always [madvise] never".
        chosen = re.search(rb"\[([a-z]+)\]", value)
        if error and chosen:
            error = write_file(self._root, target, chosen[1])
        now = _content(path)
        if not error and now != value:
            error = f"reads {now.decode(errors='replace').strip()} now"
        return _row(target, old.decode(errors="replace"), value, error)

    def _lines(self) -> list[str]:
        if not self.path.exists():
            return []
        return self.path.read_text(errors="surrogateescape").split("\n")[:-1]

    def _replace(self, lines: list[str]) -> None:
        # Replace the file atomically: a full disk or a kill must not lose values.
        new = self.path.with_name(f"{self.path.name}.new")
        old_mask = os.umask(0o077)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new.unlink(missing_ok=True)
            with new.open("x", errors="surrogateescape") as file:
                file.writelines(f"{line}\n" for line in lines)
                file.flush()
                os.fsync(file.fileno())
        finally:
            os.umask(old_mask)
        new.replace(self.path)


def _row(target: str, old: str, new: bytes, error: str) -> Row:
    result = "refused" if error else "done"
    return target, old, new.decode(errors="replace"), result, error


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes() if path.is_file() else b""
    except OSError:
        return b""


def _parsed(line: str) -> tuple[str, str, bytes]:
    # Return kind, target and bytes of a line. The kind is "" if `apply` did not write the line.
    kind, _, rest = line.partition("\t")
    target, _, text = rest.partition("\t")
    try:
        value = base64.b64decode(text.encode(errors="surrogateescape"), validate=True)
    except binascii.Error:
        return "", target, b""
    driver = _DRIVER_TARGET.fullmatch(target) and _DRIVER_VALUE.fullmatch(value.decode("latin-1"))
    return (kind if kind == "file" or (kind == "ethtool" and driver) else ""), target, value


def _trusted(path: Path) -> Path:
    # Return the path without links, if root alone can write the file, or can be made to.
    directory = path.absolute().parent
    while not os.path.lexists(directory):
        directory = directory.parent
    try:
        # Check the path as given, with its links, and as resolved: neither may be redirected.
        for way in (directory, directory.resolve()):
            _trust(way)
        if os.path.lexists(path):
            if not stat.S_ISREG(path.lstat().st_mode):
                raise UndoFileError(f"expected {path} to be a file")
            _trust(path.absolute())
    except UndoFileError as error:
        raise UndoFileError(
            f"expected an undo file that only root can write, found that {error}"
        ) from None
    return path.absolute().parent.resolve() / path.name


def _trust(path: Path) -> None:
    # The path and all directories above it must belong to root or to this user, and nobody else may
    # write to them. A sticky directory such as /tmp may be above, because nobody can move another's
    # files there.
    for place in (path, *path.parents):
        status = place.lstat()
        mode = stat.S_IMODE(status.st_mode)
        if status.st_uid not in {0, os.geteuid()}:
            raise UndoFileError(f"{place} is of user {status.st_uid}")
        shared = mode & 0o022 and not stat.S_ISLNK(status.st_mode)
        if shared and (place == path or not mode & stat.S_ISVTX):
            raise UndoFileError(f"{place} has mode {mode:o}")
