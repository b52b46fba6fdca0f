"""Lines, and addresses of lines, that bring nothing: never, or no more.

The feed decides; this says it in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from udpfast.monitor.servers import is_served

__all__ = ["Addresses", "SilentLines", "describe_addresses", "describe_silence"]

Counters = dict[str, dict[str, int]]
#: By scope of a line that has several, then by address: `shm.counters.CounterBlock` reads it.
Addresses = Mapping[str, Mapping[str, Mapping[str, int]]]

#: What waits for lines whose scopes begin like that; the first that fits.
_EFFECTS = {
    "snapshot.definitions.": "instruments that no definition has told",
    "snapshot.": "objects that wait for a snapshot",
}

#: So many addresses of a line are named; the rest are counted.
_NAMED_MAX = 4


def describe_silence(values: Counters, since_ns: int, unix_ns: int) -> dict[str, str]:
    """Return a sentence for each line that is silent, by its name.

    A line is silent once the feed has said so (`disconnected`): it brought nothing for
    `session.inactivity_timeout_ms`, perhaps never anything.

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
        if "." in scope and not is_served(scope) and line["disconnected"] > line["ready"]
    }
    return {
        scope: _describe(scope, line, since_ns, unix_ns) + _effect(scope, silent, values)
        for scope, line in silent.items()
    }


def describe_addresses(addresses: Addresses, since_ns: int, unix_ns: int) -> dict[str, str]:
    """Return a sentence for each line of which some addresses are silent, by its name.

    A line whose addresses are all silent is silent itself, and is not among them.

    Parameters
    ----------
    addresses : mapping
        Their counters.
    since_ns, unix_ns : int
        As for `describe_silence`.
    """
    found = {}
    for scope, line in addresses.items():
        silent = {address: values for address, values in line.items() if values["silent"]}
        if not silent or len(silent) == len(line):
            continue
        named = [
            f"{address} {_how_long(values, since_ns, unix_ns)}"
            for address, values in list(silent.items())[:_NAMED_MAX]
        ]
        if len(silent) > _NAMED_MAX:
            named.append(f"and {len(silent) - _NAMED_MAX} more")
        found[scope] = f"{scope}: {len(silent)} of {len(line)} addresses bring nothing: " + (
            ", ".join(named)
        )
    return found


def _how_long(values: Mapping[str, int], since_ns: int, unix_ns: int) -> str:
    seconds = max(unix_ns - (values["heard_ns"] or since_ns), 0) // 1_000_000_000
    return f"for {seconds} s" + ("" if values["datagrams"] else ", and never anything")


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
        self._silent: dict[str, set[str]] = {}  # addresses, by line

    def look(self, values: Counters, unix_ns: int, addresses: Addresses) -> Iterator[str]:
        """Compare with the last look; yield a sentence, once, for each line that changed.

        `addresses` are the counters of the addresses of those that have several.
        """
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
        yield from self._look_at_addresses(addresses, unix_ns)

    def _look_at_addresses(self, addresses: Addresses, unix_ns: int) -> Iterator[str]:
        sentences = describe_addresses(addresses, self._since_ns, unix_ns)
        for scope, line in addresses.items():
            silent = {address for address, values in line.items() if values["silent"]}
            before = self._silent.get(scope, set())
            self._silent[scope] = silent
            if silent - before and scope in sentences:
                yield sentences[scope]
            elif silent < before and len(before) < len(line):
                yield f"{scope}: {', '.join(sorted(before - silent))} brings something again"

    def describe(self, values: Counters, unix_ns: int) -> list[str]:
        """Return a sentence for each line that is silent."""
        sentences = describe_silence(values, self._since_ns, unix_ns)
        return [sentence for _, sentence in sorted(sentences.items())]


def _describe(scope: str, line: dict[str, int], since_ns: int, unix_ns: int) -> str:
    heard_ns = line["heard_ns"] or since_ns
    seconds = max(unix_ns - heard_ns, 0) // 1_000_000_000
    if line["heard_ns"]:
        return f"{scope}: nothing for {seconds} s"
    if line["datagrams"]:
        return f"{scope}: nothing of this feed for {seconds} s, and never anything"
    return f"{scope}: nothing for {seconds} s, and never anything"


def _effect(scope: str, silent: dict[str, dict[str, int]], values: Counters) -> str:
    # What follows where no line of its role speaks.
    role = next((role for role in _EFFECTS if scope.startswith(role)), "")
    lines = {other for other in values if other.startswith(role) and not is_served(other)}
    return f"; {_EFFECTS[role]} wait on" if role and lines <= set(silent) else ""
