"""Suggestions for an address whose prefix is missing or unknown: `Reader("feed.toml")`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from udpfast.errors import similar
from udpfast.log.segment import list_segments
from udpfast.shm.instance import journal_root, list_instances, name_in_file

__all__ = ["address_hint", "prefix_hint"]


def address_hint(text: str) -> str:
    """Return the end of an error message: an address that the user may have meant."""
    path = Path(text)
    if text.endswith(".toml"):
        name = name_in_file(text)
        if name:
            return f"; did you mean 'ring:{name}', the feed of {text}?"
        return f"; {text} is a feed's file: the address is 'ring:' and the `name` in it"
    if "/" in text:
        return f"; did you mean '{_prefix_of(path)}:{text}'?"
    known = {name: f"journal:{name}" for name in _journals()}
    known |= {each.name: f"ring:{each.name}" for each in list_instances()}
    near = [text] if text in known else similar(text, known)
    addresses = [known[name] for name in near] or [f"ring:{text}"]
    return f"; did you mean {' or '.join(map(repr, addresses))}?"


def prefix_hint(prefix: str, target: str, known: Iterable[str]) -> str:
    """Return the end of an error message: the address with a similar known prefix, or ""."""
    near = similar(prefix, known, 1)
    return f"; did you mean {f'{near[0]}:{target}'!r}?" if near else ""


def _prefix_of(path: Path) -> str:
    is_journal = (path / "journal").exists() or (path.is_dir() and list_segments(path))
    return "journal" if is_journal else "ring"


def _journals() -> list[str]:
    root = journal_root()
    try:
        return sorted(each.name for each in root.iterdir() if each.is_dir())
    except OSError:
        return []
