"""The directory of an instance (one running feed) in shared memory: `<root>/<name>/`.

    ring  counters  names  latency  slab  roster  wake  readers/<pid>-<n>

The root is `$UDPFAST_SHM`, or `/dev/shm/udpfast-<uid>`. Both directories belong to one user, and
nobody else may write in them, because whoever can put files there can feed prices to a strategy.

A group may be allowed to read. Its members can then create files in `readers/`, and nowhere else;
there, each can remove and change only their own:

    root 0711   instance 2750   regions 0640   slab 0600   readers/ 3770   readers/* 0640

instead of 0700 and 0600 throughout. Regions follow the mode of their directory (`shm.region`).
"""

import contextlib
import errno
import os
import pwd
import re
import stat
import tempfile
from pathlib import Path

from udpfast.core.oserr import check
from udpfast.errors import ConfigError, RegionError, did_you_mean
from udpfast.shm.trust import describe_owners, find_group, trusted_owners

__all__ = [
    "GROUPS",
    "RUNS",
    "SHARED",
    "admit_group",
    "admit_group_to_journal",
    "check_group",
    "check_instance",
    "hint_of_other_users",
    "instance_directory",
    "instance_hint",
    "instance_root",
    "journal_directory",
    "journal_root",
    "list_instances",
    "name_in_file",
]

#: Folders in the root that are not instances: memory that buses share with apps; groups of feeds;
#: what is wrong with runs of feeds.
SHARED = ".bus"
GROUPS = ".groups"
RUNS = ".runs"

_NAME = re.compile(r"[A-Za-z0-9._-]+")
#: Most instances that an error lists.
_LISTED_MAX = 8
#: Hint for a directory that does not exist, and the key that sets its place.
_HINTS = {
    "journal": ("was it recorded?", "record.directory"),
    "store": ("does this host keep it?", "store.directory"),
}
#: Where a user's instances lie by default: this, and the number of the user.
_DEFAULT_ROOT = "/dev/shm/udpfast-"
_INSTANCE = "instance; is its feed running (udpfast run)?"


def instance_root() -> Path:
    """Return the directory that holds all instances of this user."""
    setting = os.environ.get("UDPFAST_SHM")
    return Path(setting) if setting else Path(f"{_DEFAULT_ROOT}{os.geteuid()}")


def list_instances() -> list[Path]:
    """Return the directories of this user's instances, live and dead, sorted by name.

    Directories without a file are left out: a start that was refused leaves only `readers/` behind.
    """
    root = instance_root()
    try:
        found = sorted(root.iterdir()) if root.is_dir() else []
    except PermissionError:
        said = "only its owner can list its instances: give one by its name"
        raise PermissionError(errno.EACCES, said, str(root)) from None
    return [each for each in found if each.name not in (SHARED, GROUPS, RUNS) and _has_files(each)]


def _has_files(directory: Path) -> bool:
    try:
        return any(path.is_file() for path in directory.iterdir())
    except (NotADirectoryError, FileNotFoundError):
        return False
    except OSError:  # list it: reading its status will report the error
        return True


def instance_directory(
    name_or_path: str | os.PathLike[str], create: bool = False, group: str | None = ""
) -> Path:
    """Return the directory of an instance, after checking that only its owner can write there.

    Parameters
    ----------
    name_or_path : str or path
        A name (letters, digits, `.`, `_`, `-`) below the root or, if it has a slash, a path.
    create : bool
        Create the directory (and the root), and set who may read it.
    group : str or None
        With `create`: the group that may read, by name or number; empty: only the owner may;
        None: no change. (A start that may still be refused passes None, and calls `admit_group`
        once it has succeeded.)

    Raises
    ------
    ConfigError
        The name has other characters, or there is no such group.
    PermissionError
        This user is not a member of the group; or may not read the instance.
    FileNotFoundError
        There is no such instance, and `create` is False.
    RegionError
        It is a symbolic link, not a directory, another user's, or writable for others.
    """
    text = os.fspath(name_or_path)
    if "/" in text:
        directory = Path(text)
    else:
        if not _NAME.fullmatch(text) or text in (".", ".."):
            raise ConfigError(
                f"an instance's name must have only letters, digits, '.', '_' and '-', was {text!r}"
            )
        root = instance_root()
        if create:
            root.mkdir(mode=0o700, exist_ok=True)
        _check_directory(root)
        _check_admitted(root, os.X_OK)
        directory = root / text
    if create:
        directory.mkdir(mode=0o700, exist_ok=True)
    if "/" not in text and not os.path.lexists(directory):
        said = f"no such instance{instance_hint(text)}"
        raise FileNotFoundError(errno.ENOENT, said, str(directory))
    _check_directory(directory)
    _check_admitted(directory, os.R_OK | os.X_OK)
    if create:
        (directory / "readers").mkdir(mode=0o700, exist_ok=True)
        if group is not None:
            admit_group(directory, group)
    return directory


def check_instance(name: str) -> None:
    """Refuse where a feed could not make its instance, or its files there; nothing is made.

    Raises
    ------
    FileNotFoundError, PermissionError
        The directory above the root does not exist; this user may not write there.
    RegionError
        As for `instance_directory`.
    """
    root = instance_root()
    found = [each for each in (root, root / name) if os.path.lexists(each)]
    for directory in found:
        _check_directory(directory)
    writes = (found or [root.parent])[-1]
    if not os.access(writes, os.W_OK | os.X_OK):
        check(-errno.EACCES if writes.exists() else -errno.ENOENT, "write in", str(writes))


def instance_hint(text: str) -> str:
    """Return the end of an error about a missing instance: a suggestion or a question.

    Parameters
    ----------
    text : str
        The name that was given, which may be the path of a feed's file.
    """
    name = name_in_file(text)
    if name:
        return f"; did you mean {name!r}, the feed of {text}?"
    if text and "/" not in text and (instance_root() / GROUPS / f"{text}.json").is_file():
        return f"; it is a group: udpfast stat shows its feeds, group:{text} reads them"
    known = sorted(each.name for each in list_instances())
    near = did_you_mean(text, known)
    if near:
        return near
    more = f" and {len(known) - _LISTED_MAX} more" if len(known) > _LISTED_MAX else ""
    there = f"; there are {', '.join(known[:_LISTED_MAX])}{more}" if known else ""
    return f"{there}; is its feed running (udpfast run)?{hint_of_other_users()}"


def hint_of_other_users() -> str:
    """Return who else has instances on this host, and how to look at them; empty: nobody.

    It is empty as well where UDPFAST_SHM says whose instances are meant.
    """
    if os.environ.get("UDPFAST_SHM"):
        return ""
    mine = str(os.geteuid())
    default = Path(_DEFAULT_ROOT)
    found = default.parent.glob(f"{default.name}*")
    uids = {each.name.removeprefix(default.name) for each in found} - {mine}
    hints = []
    for uid in sorted((each for each in uids if each.isdecimal()), key=int):
        try:
            user = pwd.getpwuid(int(uid)).pw_name
        except (KeyError, OverflowError):
            user = uid
        where = f"UDPFAST_SHM={_DEFAULT_ROOT}{uid} UDPFAST_TRUST={user}"
        hints.append(f" User {user} has instances, too; to see them: export {where}")
    return "".join(hints)


def name_in_file(path: str) -> str:
    """Return the name of the feed that a file describes; empty: it describes none."""
    if not path.endswith(".toml"):
        return ""
    import tomllib

    try:
        name = tomllib.loads(Path(path).read_text(encoding="utf-8")).get("name")
    except (OSError, ValueError):
        return ""
    return name if isinstance(name, str) else ""


def admit_group(directory: Path, group: str) -> None:
    """Set who may read an instance: a group, by name or number; empty: only its owner may.

    The caller must hold the lock of its ring: a start that is refused must change nothing.
    """
    readers = directory / "readers"
    if group:
        _let_through(directory, instance_root())
        # The files of a set-group-id directory belong to its group. In `readers`, the sticky bit
        # lets members remove only their own.
        for path, mode in ((readers, 0o3770), (directory, 0o2750)):
            _give(path, group, mode)
    elif directory.stat().st_mode & stat.S_ISGID:  # an earlier run let a group in
        directory.chmod(0o700)
        readers.chmod(0o700)


def check_group(group: str) -> None:
    """Refuse a group that `admit_group` could not let in; empty: none is asked for.

    Raises
    ------
    ConfigError, PermissionError
        There is no such group; this user is not a member.
    """
    if group:
        with tempfile.TemporaryDirectory(prefix="udpfast-") as folder:
            _give(Path(folder), group, 0o2750)


def admit_group_to_journal(directory: Path, group: str) -> None:
    """Set who may read a journal and all files in it, as `admit_group` does.

    The caller must hold its lock, and not have opened the journal yet.

    Raises
    ------
    ConfigError, PermissionError
        There is no such group; this user is not a member.
    """
    if group:
        _let_through(directory, journal_root())
        for path in directory.iterdir():
            # Whoever can open a lock file can hold the lock, so keep those private.
            if path.is_file() and not path.is_symlink() and not path.name.endswith(".lock"):
                _give(path, group, 0o640)
        _give(directory, group, 0o2750)
    elif directory.stat().st_mode & stat.S_ISGID:
        directory.chmod(0o700)


def _let_through(directory: Path, root: Path) -> None:
    # Make the directories above it passable, as far as they are below the root.
    for way in directory.resolve().parents:
        if way.is_relative_to(root.resolve()) and way.stat().st_uid == os.geteuid():
            way.chmod(stat.S_IMODE(way.stat().st_mode) | 0o011)  # to pass through, not to list


def _give(path: Path, group: str, mode: int) -> None:
    try:
        os.chown(path, -1, find_group(group))
    except PermissionError:
        raise PermissionError(
            errno.EPERM,
            f"access.group: expected a group that this user belongs to, found {group!r}",
        ) from None
    path.chmod(mode)


def journal_directory(
    name_or_path: str | os.PathLike[str], create: bool = False, what: str = "journal"
) -> Path:
    """Return the directory of a journal, after checking that only its owner can write there.

    The path is absolute and resolved, so that whoever it is passed to finds the same directory.

    Parameters
    ----------
        A name below `$UDPFAST_JOURNALS` (`/var/lib/udpfast` for root, else
        `~/.local/share/udpfast`) or, if it has a slash, a path. A `Path` is always a path.
    create : bool
        Create it and its parents, readable only for the owner.
    what : str
        The noun for error messages: "journal", or "store".
        What errors call it: a store is a journal as well.

    Raises
    ------
    ConfigError
        The name has characters that an instance's may not have.
    FileNotFoundError
        There is no such journal, and `create` is False.
    RegionError
        As for `instance_directory`.
    """
    text = os.fspath(name_or_path)
    directory = Path(text)
    if isinstance(name_or_path, str) and "/" not in text:
        if not _NAME.fullmatch(text) or text in (".", ".."):
            raise ConfigError(
                f"a {what}'s name must have only letters, digits, '.', '_' and '-', was {text!r}; "
                f"give a directory as a path with a slash, such as ./{text.strip('.')}"
            )
        directory = journal_root() / text
    if not directory.is_symlink() or directory.lstat().st_uid in trusted_owners():
        directory = Path(os.path.realpath(directory))
    if create and not directory.is_dir():
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
    _check_directory(directory, f"{what}; {_journal_hint(text, what)}")
    return directory


def journal_root() -> Path:
    """Return the directory of journals that are given by name."""
    setting = os.environ.get("UDPFAST_JOURNALS")
    own = Path("/var/lib") if os.geteuid() == 0 else Path.home() / ".local/share"
    return Path(setting) if setting else own / "udpfast"


def _journal_hint(text: str, what: str) -> str:
    question, key = _HINTS[what]
    if "/" in text:
        return question
    if Path(text).is_dir():
        return f"did you mean ./{text}?"
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = [each.name for each in journal_root().iterdir() if each.is_dir()]
    near = did_you_mean(text, names).removeprefix("; ")
    return f"{near or question} If it is elsewhere ({key}), give its path, such as ./{text}"


def _check_admitted(directory: Path, how: int) -> None:
    if not os.access(directory, how):
        raise PermissionError(
            errno.EACCES,
            "only its owner may read it, and the group that access.group of the feed's file names: "
            "be a member, and let UDPFAST_TRUST name the owner",
            str(directory),
        )


def _check_directory(directory: Path, what: str = _INSTANCE) -> None:
    try:
        status = os.lstat(directory)
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, f"no such {what}", str(directory)) from None
    if stat.S_ISLNK(status.st_mode):
        raise RegionError(f"{directory}: expected a directory, found a symbolic link")
    if not stat.S_ISDIR(status.st_mode):
        raise RegionError(f"{directory}: expected a directory, found another kind of file")
    if status.st_uid not in trusted_owners():
        raise RegionError(
            f"{directory}: {describe_owners()}, found {status.st_uid}; UDPFAST_TRUST names "
            "further users to trust"
        )
    if status.st_mode & 0o022:
        raise RegionError(
            f"{directory}: expected a directory that only its owner may write, found mode "
            f"{stat.S_IMODE(status.st_mode):04o}"
        )
