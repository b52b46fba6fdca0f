"""An expectation that knows which of its parts were looked at: the others were not compared."""

from __future__ import annotations

from typing import Any

__all__ = ["Looked", "looked"]


class Looked(dict[str, Any]):
    """An object of JSON; who goes through it looks at all its keys, not at what they lead to."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__((key, looked(value)) for key, value in content.items())
        self._asked: set[str] = set()
        self._listed = False

    def __getitem__(self, key: str) -> Any:
        self._asked.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, and note that somebody asked for it."""
        self._asked.add(key)
        return super().get(key, default)

    def items(self) -> Any:
        """Return all, and note that somebody goes through them."""
        self._listed = True
        return super().items()

    def values(self) -> Any:
        """Return all values, and note that somebody goes through them."""
        self._listed = True
        return super().values()

    def unasked(self) -> set[str]:
        """Return where nobody looked, as paths of keys; `*` is each of those that were listed."""
        found: set[str] = set()
        for key, value in super().items():
            if not self._listed and key not in self._asked:
                found.add(key)
                continue
            step = "*" if self._listed else key
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, Looked):
                    found |= {f"{step}.{path}" for path in each.unasked()}
        return found


def looked(value: Any) -> Any:
    """Return a value of JSON with all objects in it as `Looked`."""
    if isinstance(value, dict):
        return Looked(value)
    return [looked(each) for each in value] if isinstance(value, list) else value
