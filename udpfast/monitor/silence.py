"""Lines that bring nothing: never, or no more. The feed decides; this says it in words."""

from __future__ import annotations

from collections.abc import Iterator

from udpfast.monitor.servers import is_served

__all__ = ["SilentLines", "describe_silence"]

Counters = dict[str, dict[str, int]]


def describe_silence(values: Counters, since_ns: int, unix_ns: int) -> dict[str, str]:
    """Return a sentence for each line that is silent, by its name.

    A line is silent once the feed has said so (`disconnected`), and if it never brought anything.

    Parameters
    ----------
    values : dict
        The counters of the instance.
    since_ns : int
        When the feed was started, UNIX ns.
    unix_ns : int
        Now.
    """
    silent = {
        scope: line
        for scope, line in values.items()
        if "." in scope
        and not is_served(scope)
        and (line["disconnected"] > line["ready"] or not line["datagrams"])
    }
    return {
        scope: _describe(scope, line, since_ns, unix_ns) + _effect(scope, silent, values)
        for scope, line in silent.items()
    }


class SilentLines:
    """Notices that a line fell silent, and that it speaks again.

    Parameters
    ----------
    since_ns : int
        When the feed was started, UNIX ns.
    """

    def __init__(self, since_ns: int) -> None:
        self._since_ns = since_ns
        self._counted: dict[str, tuple[int, int]] = {}  # silences begun and ended, by line

    def look(self, values: Counters, unix_ns: int) -> Iterator[str]:
        """Compare with the last look; yield a sentence, once, for each line that changed."""
        spoke, fell = [], []
        for scope, line in values.items():
            if "." not in scope:
                continue
            counted = line["disconnected"], line["ready"]
            before = self._counted.get(scope, (0, 0))
            self._counted[scope] = counted
            if counted[0] > before[0]:
                fell.append(scope)
            if counted[1] > before[1] and counted[0] == counted[1]:
                spoke.append(scope)
        sentences = describe_silence(values, self._since_ns, unix_ns)
        # Between two looks it may have been both: then it is said how it is now.
        yield from (sentences[scope] for scope in fell if scope in sentences)
        yield from (f"{scope}: speaks again" for scope in spoke)

    def describe(self, values: Counters, unix_ns: int) -> list[str]:
        """Return a sentence for each line of which the feed has said that it is silent."""
        sentences = describe_silence(values, self._since_ns, unix_ns)
        return [
            sentence
            for scope, sentence in sorted(sentences.items())
            if values[scope]["disconnected"]
        ]


def _describe(scope: str, line: dict[str, int], since_ns: int, unix_ns: int) -> str:
    heard_ns = line["heard_ns"] or since_ns
    seconds = max(unix_ns - heard_ns, 0) // 1_000_000_000
    if line["heard_ns"]:
        return f"{scope}: nothing for {seconds} s"
    if line["datagrams"]:
        return f"{scope}: nothing of this feed for {seconds} s, and never anything"
    return f"{scope}: nothing for {seconds} s, and never anything"


def _effect(scope: str, silent: dict[str, dict[str, int]], values: Counters) -> str:
    # What follows of a channel of which no line speaks.
    channel = scope.partition(".")[0]
    lines = {other for other in values if other.startswith(f"{channel}.") and not is_served(other)}
    if channel == "snapshot" and lines <= set(silent):
        return "; objects that wait for a snapshot wait on"
    return ""
