"""The counters of an instance, running or ended: the same numbers that every tool reads."""

import os

from udpfast.errors import did_you_mean
from udpfast.shm.counters import CounterBlock
from udpfast.shm.instance import instance_directory

__all__ = ["Counters", "counters"]


class Scope(dict[str, int]):
    """The counters of one scope by name; a KeyError suggests similar names."""

    def __missing__(self, name: object) -> int:
        raise KeyError(f"no counter {name!r} in this scope{did_you_mean(str(name), self)}")


class Counters(dict[str, dict[str, int]]):
    """Counters by scope and name: a dict that a notebook shows as a table."""

    def __missing__(self, scope: object) -> dict[str, int]:
        hint = did_you_mean(str(scope), self) or f"; there are {', '.join(self)}"
        raise KeyError(f"no scope {scope!r}{hint}")

    def _repr_html_(self) -> str:
        from udpfast.client.notebook import counters_html

        return counters_html(self)


def counters(instance: str | os.PathLike[str]) -> Counters:
    """Return every counter of an instance by scope and name, as of now.

    Parameters
    ----------
    instance : str or path
        The name of the instance, or the path of its directory.

    Returns
    -------
    Counters
        A dict. Scopes are `feed`, `incremental`, `snapshot` and one per line (`incremental.A`);
        `docs/counters.md` has the units and meanings. A running feed keeps counting while they
        are read, so sums may differ slightly.

    Raises
    ------
    FileNotFoundError
        There is no such instance.
    RegionError
        Its counters were written by another version of udpfast, or by a user who is not trusted.
    """
    with CounterBlock.attach(instance_directory(instance)) as block:
        return Counters({scope: Scope(values) for scope, values in block.read().items()})
