"""Lines that bring nothing: never, or no more. Seen by their counters, said once."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["SilentLines", "never_spoke"]

Counters = dict[str, dict[str, int]]


def never_spoke(values: Counters) -> list[str]:
    """Return a sentence for each line that has brought nothing since its instance began."""
    found = [scope for scope, line in values.items() if "." in scope and not line["datagrams"]]
    return [f"{scope}: brought nothing so far{_effect(scope, found, values)}" for scope in found]


class SilentLines:
    """Notices that a line fell silent, and that it speaks again; time is an argument.

    Parameters
    ----------
    after_ns : int
        How long a line may be silent; 0: for ever.
    """

    def __init__(self, after_ns: int) -> None:
        self._after_ns = after_ns
        self._heard: dict[str, tuple[int, int]] = {}  # datagrams, and when they last changed
        self._silent: set[str] = set()

    def look(self, values: Counters, now_ns: int) -> Iterator[str]:
        """Compare with the last look; yield a sentence, once, for each line that changed."""
        spoke, fell = [], []
        for scope, line in values.items():
            if "." not in scope:
                continue
            datagrams, since_ns = self._heard.get(scope, (line["datagrams"], now_ns))
            if line["datagrams"] != datagrams:
                since_ns = now_ns
            self._heard[scope] = (line["datagrams"], since_ns)
            is_silent = 0 < self._after_ns <= now_ns - since_ns
            if is_silent and scope not in self._silent:
                self._silent.add(scope)
                fell.append(scope)
            elif not is_silent and scope in self._silent:
                self._silent.remove(scope)
                spoke.append(scope)
        yield from (f"{scope}: speaks again" for scope in spoke)
        for scope in fell:
            yield self._describe(scope, now_ns) + _effect(scope, self._silent, values)

    def describe(self, now_ns: int) -> list[str]:
        """Return how long each silent line has brought nothing."""
        return [self._describe(scope, now_ns) for scope in sorted(self._silent)]

    def _describe(self, scope: str, now_ns: int) -> str:
        datagrams, since_ns = self._heard[scope]
        ever = "" if datagrams else ", and never anything"
        return f"{scope}: nothing for {(now_ns - since_ns) // 1_000_000_000} s{ever}"


def _effect(scope: str, silent: list[str] | set[str], values: Counters) -> str:
    # What follows of a channel of which no line speaks.
    channel = scope.partition(".")[0]
    lines = {other for other in values if other.startswith(f"{channel}.")}
    if channel == "snapshot" and lines <= set(silent):
        return "; objects that wait for a snapshot wait on"
    return ""
