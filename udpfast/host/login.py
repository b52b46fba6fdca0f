"""Whether the login manager removes a feed's files from /dev/shm when its user logs out."""

from __future__ import annotations

import configparser
from collections.abc import Iterator
from pathlib import Path

from udpfast.host.finding import Finding, absent
from udpfast.host.tree import HostTree, HostUse

__all__ = ["inspect_login", "shared_memory_removal"]

#: systemd treats users from this id on as people: SYSTEM_UID_MAX of most distributions' builds.
UID_PEOPLE = 1000
_FOLDERS = ("usr/lib/systemd", "run/systemd", "etc/systemd")  # later ones override earlier ones
_NAME, _WANT = "RemoveIPC", "no, a system user, or one who lingers"
_EFFECT = "systemd-logind removes a feed's files from /dev/shm when its user has logged out."


def inspect_login(tree: HostTree) -> Iterator[Finding]:
    """Yield whether the files of this user's feeds outlive the user's logout."""
    uid = tree.uid()
    if tree.text("proc/1/comm") != "systemd" or uid is None:
        yield absent(_NAME, _WANT, _EFFECT, "no systemd-logind here")
    elif uid < UID_PEOPLE:
        yield Finding(_NAME, _WANT, f"user {uid}, a system user", True, _EFFECT)
    elif _lingers(tree, uid):
        yield Finding(_NAME, _WANT, f"user {uid} lingers", True, _EFFECT)
    else:
        removes = _removes(tree)
        yield Finding(_NAME, _WANT, "yes" if removes else "no", not removes, _EFFECT)


def shared_memory_removal(root: Path = Path("/")) -> str:
    """Return a sentence that logind removes this user's files, and what to do; or ""."""
    (finding,) = inspect_login(HostTree(root, HostUse()))
    if finding.ok is not False:
        return ""
    return f"{_EFFECT} Set RemoveIPC=no in logind.conf, or run `loginctl enable-linger`."


def _removes(tree: HostTree) -> bool:
    # logind.conf(5), logind.conf.d(5): the main file, then all drop-ins in the order of their
    # names.
    main = next((text for folder in reversed(_FOLDERS)
                 if (text := tree.text(f"{folder}/logind.conf")) is not None), "")  # fmt: skip
    parts: dict[str, str] = {}
    for folder in _FOLDERS:
        for path in tree.glob(f"{folder}/logind.conf.d/*.conf"):
            parts[Path(path).name] = path
    said = True  # systemd's default
    for text in (main, *(tree.text(parts[name]) or "" for name in sorted(parts))):
        parser = configparser.RawConfigParser(strict=False, allow_no_value=True, delimiters="=")
        try:
            parser.read_string(text)
        except configparser.Error:
            continue
        value = parser.get("Login", "RemoveIPC", fallback=None)
        if value:
            said = value.strip().lower() in ("yes", "true", "on", "1", "y", "t")
    return said


def _lingers(tree: HostTree, uid: int) -> bool:
    for line in (tree.text("etc/passwd") or "").splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[2] == str(uid):
            return tree.text(f"var/lib/systemd/linger/{fields[0]}") is not None
    return False
