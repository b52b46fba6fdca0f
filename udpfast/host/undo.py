"""The undo file: which values there were, and who may have a say in that.

It holds the boot's id (what was set does not outlive a boot), then a line per value: kind, target,
and in base64 the bytes it had. The first ever seen of a target stays. As it tells root what to
write where, nobody else may write it, exchange it, or lead another way to it; and whatever it says,
nothing is written but settings of the kernel that there are.
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

#: One change as it is shown: setting, old, new, result, reason.
Row = tuple[str, str, str, str, str]

_DRIVER_TARGET = re.compile(r"[^-/\s][^/\s]* -[ACGK] [a-z][a-z-]*")
_DRIVER_VALUE = re.compile(r"[a-z0-9]+")


class UndoFileError(Exception):
    """The undo file is not one that root alone can write, or is not there."""


class UndoFile:
    """The undo file of a host whose `proc` and `sys` are below `root`.

    Raises
    ------
    UndoFileError
        Somebody else could write it, exchange it, or lead the way to it elsewhere.
    """

    def __init__(self, path: Path, root: Path) -> None:
        self.path = _trusted(path)
        self._root = root
        try:
            self._boot = "boot " + (root / "proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            self._boot = "boot unknown"

    def remember(self, changes: Iterable[Change]) -> None:
        """Write down what the targets of these changes hold now, before the first is made."""
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
        """Put back every value, the last change first; what cannot be put back stays in the file.

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
        # Put one value back, and read it back; None if it is what it was.
        kind, target, value = _parsed(line)
        if kind == "ethtool":
            error = set_driver(target, value.decode())
            if "unmodified" in error:  # some releases call it a failure if there is nothing to do
                error = ""
            return _row(target, "", value, error)
        if kind != "file":
            return _row(target, "", b"", "expected a line that apply wrote")
        path = Path(f"{self._root}{target}")
        old = _content(path)
        if old == value:
            return None
        error = write_file(self._root, target, value)
        # A file that offers choices shows them all and takes one: "always [madvise] never".
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
        # All of them, or the file as it was: a full disk or a kill must not cost values.
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
    # Kind, target and bytes of a line; the kind is "" if `apply` did not write it.
    kind, _, rest = line.partition("\t")
    target, _, text = rest.partition("\t")
    try:
        value = base64.b64decode(text.encode(errors="surrogateescape"), validate=True)
    except binascii.Error:
        return "", target, b""
    driver = _DRIVER_TARGET.fullmatch(target) and _DRIVER_VALUE.fullmatch(value.decode("latin-1"))
    return (kind if kind == "file" or (kind == "ethtool" and driver) else ""), target, value


def _trusted(path: Path) -> Path:
    # The file without links in its way, if it is root's alone or can be made so.
    directory = path.absolute().parent
    while not os.path.lexists(directory):
        directory = directory.parent
    try:
        # As it is named, with its links, and as it is: neither way may be led elsewhere.
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
    # It and all directories above are of root, or of who runs this, and nobody else may write to
    # them; but a directory above may be one, as /tmp, where nobody moves what is another's.
    for place in (path, *path.parents):
        status = place.lstat()
        mode = stat.S_IMODE(status.st_mode)
        if status.st_uid not in {0, os.geteuid()}:
            raise UndoFileError(f"{place} is of user {status.st_uid}")
        shared = mode & 0o022 and not stat.S_ISLNK(status.st_mode)
        if shared and (place == path or not mode & stat.S_ISVTX):
            raise UndoFileError(f"{place} has mode {mode:o}")
