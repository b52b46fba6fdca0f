"""What is known of a host besides its feeds: findings, losses, stores, journals, groups."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from udpfast.archive.bus_files import list_stores
from udpfast.archive.feed_settings import read_feed
from udpfast.archive.groups import Group, list_groups
from udpfast.archive.run_notes import RunNote, list_runs
from udpfast.config import FeedConfig
from udpfast.errors import UdpfastError
from udpfast.host import inspect_host
from udpfast.monitor.findings import use_of_all
from udpfast.monitor.journals import Journals, feed_journals, list_journals, read_journals
from udpfast.monitor.losses import HostLosses, read_host_losses
from udpfast.monitor.paced import Paced
from udpfast.monitor.stores import Stores, read_stores

__all__ = ["Groups", "HostFacts", "HostFinding", "read_host_facts"]

#: Findings are read so often: of a hundred small files, of which hardly any ever changes.
FINDINGS_S = 60.0
#: And the kernel's counts of losses, of which the feeds' own sockets have theirs at each look.
LOSSES_S = 5.0


class HostFinding(Struct, frozen=True):
    """What the host lacks for its feeds, as `udpfast check` finds it.

    `fault`: a feed cannot run as it is asked to; otherwise it costs time, or datagrams under load.
    """

    name: str
    want: str
    have: str
    effect: str
    fault: bool


class Groups(Struct, frozen=True):
    """Groups of feeds (`udpfast run DIRECTORY`), by name.

    Attributes
    ----------
    found : dict of Group
    unreadable : dict of str
        Why others cannot be read.
    """

    found: dict[str, Group]
    unreadable: dict[str, str]


class HostFacts(Struct, frozen=True):
    """A host at one moment, without its feeds.

    Attributes
    ----------
    findings : tuple of HostFinding
        Faults first. The host's own; what a feed's file asks of its sockets, `udpfast check FILE`
        says: who looks opens none.
    losses : HostLosses
        Of the network namespace of who looks, since it began; of no socket.
    stores : Stores
        Of this user, of a bus or of a feed alone.
    journals : Journals
        Of this user; the records of stores, too.
    groups : Groups
        Of this user.
    runs : dict of RunNote
        What is wrong with runs of feeds, by the feeds' names.
    """

    findings: tuple[HostFinding, ...]
    losses: HostLosses
    stores: Stores
    journals: Journals
    groups: Groups
    runs: dict[str, RunNote] = {}


def read_host_facts(instances: Iterable[Path] = (), paced: Paced | None = None) -> HostFacts:
    """Return what is known of this host.

    Parameters
    ----------
    instances : iterable of Path
        Directories of the feeds whose use of the host is judged.
    paced : Paced, optional
        Remembers what takes long.
    """
    paced = Paced() if paced is None else paced
    feeds = tuple(instances)
    return HostFacts(
        findings=paced.get(("findings", feeds), lambda _: _findings(feeds), FINDINGS_S),
        losses=paced.get("losses", lambda _: read_host_losses(), LOSSES_S),
        stores=paced.get("stores", lambda _: read_stores(list_stores())),
        journals=paced.get("journals", lambda _: read_journals(_all_journals(feeds))),
        groups=Groups(*list_groups()),
        runs=list_runs(),
    )


def _findings(feeds: Iterable[Path]) -> tuple[HostFinding, ...]:
    found = [
        HostFinding(each.name, each.want, each.have, each.effect, each.fault)
        for each in inspect_host(use=use_of_all(_configs(feeds)))
        if each.ok is False
    ]
    return tuple(sorted(found, key=lambda each: not each.fault))


def _configs(feeds: Iterable[Path]) -> list[FeedConfig]:
    found = []
    for instance in feeds:
        try:
            found.append(read_feed(instance))
        except (OSError, UdpfastError):  # the instance's own status says so
            continue
    return [config for config in found if config is not None]


def _all_journals(feeds: Iterable[Path]) -> list[Path]:
    found = {*list_journals(), *list_stores()}
    for instance in feeds:
        found.update(feed_journals(instance))
    return sorted(found)
