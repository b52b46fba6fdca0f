"""Everything that one instance knows about itself, live or dead, and all instances of a host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from udpfast.archive.replay_note import Replay, read_replay
from udpfast.archive.run_notes import RunNote, read_run
from udpfast.client.latency import latency
from udpfast.core.clock import realtime_ns
from udpfast.errors import UdpfastError, sentence
from udpfast.log.readers import ReaderInfo, list_readers
from udpfast.monitor.bypass import BypassStatus, read_bypass
from udpfast.monitor.host import HostFacts, read_host_facts
from udpfast.monitor.journals import Journals, feed_journals, read_journals
from udpfast.monitor.ledger import Ledger, ledger_of
from udpfast.monitor.limits import feed_counts, reached_limits, read_image
from udpfast.monitor.losses import read_counters
from udpfast.monitor.objects import ObjectStates, read_objects
from udpfast.monitor.output import OutputFacts, find_overwritten, read_output
from udpfast.monitor.paced import Paced
from udpfast.monitor.servers import read_servers
from udpfast.monitor.silence import describe_addresses, describe_silence
from udpfast.page.words import moment
from udpfast.shm.instance import instance_directory, instance_root, list_instances
from udpfast.shm.relay_counts import RelayCounts
from udpfast.shm.roster import read_roster

__all__ = [
    "PAUSED",
    "AgentStatus",
    "HostStatus",
    "InstanceStatus",
    "ReaderStatus",
    "ReplayStatus",
    "read_host",
    "read_replay_status",
    "read_some",
    "read_status",
]


#: A supervisor starts a feed again within seconds. Longer than this, somebody has to look.
PAUSED_NS = 20_000_000_000
PAUSED = "stopped, to be started again"


class AgentStatus(Struct, frozen=True):
    """One agent of an instance: an `AgentEntry`, with its state in lower case."""

    name: str
    state: str
    restarts: int
    pid: int
    changed_ns: int
    cycles: int
    failure: str
    looked_ns: int
    down_ns: int
    down_records: int
    lost_recent: int = 0
    disagreements_recent: int = 0

    @property
    def restarts_text(self) -> str:
        """How often it was started again, and when last: a count alone does not tell."""
        text = f"{self.restarts} restarts"
        if self.restarts and self.state == "running":
            text += f", the last {max(self.looked_ns - self.changed_ns, 0) // 10**9:,} s ago"
        if self.down_ns:
            text += f", NOT STEADY since {moment(self.down_ns)}"
        return text

    @property
    def works(self) -> bool:
        """Whether it runs, and has not failed within `run.restart_steady_ms`."""
        return self.state in ("running", "starting") and not self.down_ns


class ReaderStatus(Struct, frozen=True):
    """One reader of an instance's ring: a `ReaderInfo`, and how far it is behind.

    `lag` is in records.
    """

    pid: int
    name: str
    position: int
    index: int
    lapped: int
    polled_ns: int
    alive: bool
    began_index: int
    read: int
    lag: int
    lag_bytes: int


class ReplayStatus(Struct, frozen=True):
    """A ring that a replay of a journal's records writes, or wrote: no feed, and nothing counts.

    Attributes
    ----------
    directory : str
    writer_pid : int
    life : str
        running, stopped (it closed the ring), failed (by an error), or dead.
    records : int
        That the ring carried so far.
    replay : Replay
        What it replays, and how far it is.
    readers : tuple of ReaderStatus
    """

    directory: str
    writer_pid: int
    life: str
    records: int
    replay: Replay
    readers: tuple[ReaderStatus, ...]

    @property
    def text(self) -> str:
        """What it replays, and how far it is, in words."""
        return f"replay of {self.replay.source}, {self.replay.text}"


class InstanceStatus(Struct, frozen=True):
    """Everything about an instance at one moment; counters and histograms go on meanwhile.

    Attributes
    ----------
    directory : str
    writer_pid : int
    alive : bool
        The writer's process is there.
    output : str
        What it writes: ring or store.
    state : str
        Of that: open, closed (in good order), left (in good order, to be started again) or failed
        (an error ended the feed).
    stuck_ns : int
        Its process is there, and has not been up to date for so long; 0: it is.
    epoch, records, position : int
        Of the ring or store: which writer, and records and bytes so far.
    started_ns : int
        When the feed was started, UNIX ns.
    bypass : BypassStatus
    agents : tuple of AgentStatus
    ledger : Ledger
    silent : tuple of str
        A sentence per line that brings nothing.
    addresses : dict
        Of each line that has several addresses, by scope, address and name: what came there.
    silent_addresses : tuple of str
        A sentence per line of which some addresses bring nothing.
    counters : dict
        By scope and name.
    image : dict or None
        What the image says of itself; None: there is none of this ring.
    relay : dict or None
        What the relay beside it has counted, by scope and name; None: there was none.
    objects : ObjectStates or None
        How many objects are in doubt, and why; None: without an image nobody counts them.
    journals : Journals
        What its recorder keeps, or the store that it writes.
    readers : tuple of ReaderStatus
    latency_ns : dict
        By hop, as `udpfast.latency` returns it; empty if it was not asked for.
    servers : dict
        What agents count of the servers that they ask, by the table of their settings.
    replay : Replay or None
        What it replays, if it is a replay of datagrams; None: it is a feed.
    note : RunNote or None
        Why it does not run, or why nobody finds it, if `udpfast run` noted that.
    relay_gone : int
        Pid of the relay beside it that was killed or failed, and is none of `agents`; 0: none.
    relay_waits : bool
        A relay is there, and waits for the next feed of this name.
    paused_ns : int
        For how long it has waited to be started again; 0: it does not.
    """

    directory: str
    writer_pid: int
    alive: bool
    output: str
    state: str
    stuck_ns: int
    epoch: int
    records: int
    position: int
    started_ns: int
    bypass: BypassStatus
    agents: tuple[AgentStatus, ...]
    ledger: Ledger
    silent: tuple[str, ...]
    addresses: dict[str, dict[str, dict[str, int]]]
    silent_addresses: tuple[str, ...]
    counters: dict[str, dict[str, int]]
    image: dict[str, int] | None
    relay: dict[str, dict[str, int]] | None
    objects: ObjectStates | None
    journals: Journals
    readers: tuple[ReaderStatus, ...]
    latency_ns: dict[str, dict[str, int]]
    servers: dict[str, dict[str, int]]
    replay: Replay | None = None
    note: RunNote | None = None
    relay_gone: int = 0
    relay_waits: bool = False
    paused_ns: int = 0

    @property
    def path(self) -> Path:
        """Its directory."""
        return Path(self.directory)

    @property
    def silent_lines(self) -> tuple[str, ...]:
        """The scopes of the lines that bring nothing."""
        return tuple(sentence.partition(":")[0] for sentence in self.silent)

    @property
    def life(self) -> str:
        """In a word: running, stuck (its loop stands still), stopped (it closed the ring), paused
        (it was stopped, to be started again), failed (by an error), or dead.
        """
        if self.state == "failed":
            return "failed"
        if self.alive:
            return "stuck" if self.stuck_ns else "running"
        return {"closed": "stopped", "left": "paused"}.get(self.state, "dead")

    @property
    def life_shown(self) -> str:
        """The same, in capitals where that needs attention."""
        bad = self.life in ("stuck", "failed", "dead") or self.paused_long
        return self.life.upper() if bad else self.life

    @property
    def life_told(self) -> str:
        """The same, in words where one does not say it."""
        return PAUSED if self.life_shown == "paused" else self.life_shown

    @property
    def paused_long(self) -> bool:
        """Whether it waits to be started again for longer than that takes."""
        return self.life == "paused" and self.paused_ns >= PAUSED_NS

    @property
    def limits(self) -> dict[str, str]:
        """A sentence for each limit that was reached, by what counts it."""
        return reached_limits(feed_counts(self.counters), self.image)


class HostStatus(Struct, frozen=True):
    """All instances of this user on this host.

    Attributes
    ----------
    instances : dict of InstanceStatus
        By name.
    unreadable : dict of str
        Why there is no status of the others, by name: not a feed's, or of another version.
    host : HostFacts
        What is known of the host beside them.
    replays : dict of ReplayStatus
        Rings that replays of records write or wrote, by name.
    """

    instances: dict[str, InstanceStatus]
    unreadable: dict[str, str]
    host: HostFacts
    replays: dict[str, ReplayStatus] = {}


def read_status(
    name: str | Path, *, with_latency: bool = True, paced: Paced | None = None
) -> InstanceStatus:
    """Return everything about an instance, by its name or its directory.

    Parameters
    ----------
    with_latency : bool
        False: who looks often, and reads the histograms anyway, spares half of the time.
    paced : Paced, optional
        Remembers what takes long, for who looks again.

    Raises
    ------
    FileNotFoundError
        There is no such instance, or no feed writes it.
    RegionError
        It is of another version, or not safe to read.
    """
    directory = instance_directory(name)
    paced = Paced() if paced is None else paced
    values, addresses, started_ns = read_counters(directory)
    unix_ns = realtime_ns()
    output = read_output(directory)
    readers = list_readers(output.readers)
    image = read_image(directory, output.epoch)
    replay = read_replay(directory, output.log, output.epoch)
    # The times of a replay's lines are recorded ones: their silence says nothing.
    live = replay is None
    agents = tuple(
        AgentStatus(**{**asdict(agent), "state": agent.state.name.lower()})
        for agent in read_roster(directory)
    )
    relay, relay_lives, gone = _read_relay(directory)
    objects = paced.get(
        ("objects", directory), lambda _: read_objects(directory, values["feed"], image)
    )
    if objects is not None and (output.stuck_ns or not output.alive):
        objects = objects.unfed()
    return InstanceStatus(
        directory=str(directory),
        writer_pid=output.writer_pid,
        alive=output.alive,
        output=output.kind,
        state=output.state,
        stuck_ns=output.stuck_ns,
        epoch=output.epoch,
        records=output.records,
        position=output.position,
        started_ns=started_ns,
        bypass=read_bypass(values["feed"], output.writer_pid if output.alive else None),
        agents=agents,
        ledger=ledger_of(values, readers, output.records),
        silent=tuple(describe_silence(values, started_ns, unix_ns).values()) if live else (),
        addresses=addresses,
        silent_addresses=(
            tuple(describe_addresses(addresses, started_ns, unix_ns).values()) if live else ()
        ),
        counters=values,
        image=image,
        relay=relay,
        objects=objects,
        journals=paced.get(
            ("journals", directory),
            lambda _: read_journals(feed_journals(directory)),
        ),
        readers=_readers(directory, readers, output),
        latency_ns=latency(directory) if with_latency else {},
        servers=read_servers(directory),
        replay=replay,
        note=_read_note(directory, started_ns, output),
        paused_ns=_paused_ns(agents, output, unix_ns),
        # The roster says how one is that the feed starts.
        relay_gone=gone if all(agent.name != "relay" for agent in agents) else 0,
        relay_waits=relay_lives and not (output.alive and output.state == "open"),
    )


def read_replay_status(name: str | Path) -> ReplayStatus | None:
    """Return what is known of a ring that a replay of records writes, or wrote.

    Returns
    -------
    ReplayStatus or None
        None: its writer is no such replay, or it has no ring.

    Raises
    ------
    FileNotFoundError
        There is no such instance.
    FormatError, RegionError
        It is damaged, of another version, or not safe to read.
    """
    directory = instance_directory(name)
    try:
        output = read_output(directory)
    except FileNotFoundError:
        return None
    replay = read_replay(directory, output.log, output.epoch)
    if replay is None or replay.counted:
        return None
    states = {"closed": "stopped", "failed": "failed"}
    life = states.get(output.state, "running" if output.alive else "dead")
    return ReplayStatus(
        str(directory),
        output.writer_pid,
        life,
        output.records,
        replay,
        _readers(directory, list_readers(output.readers), output),
    )


def _readers(
    directory: Path, readers: Sequence[ReaderInfo], output: OutputFacts
) -> tuple[ReaderStatus, ...]:
    # What a reader can read no more it has missed, although it has not polled since.
    oldest = find_overwritten(directory, readers, output)
    found = []
    for reader in readers:
        over = oldest - reader.index if output.position - reader.position > output.capacity else 0
        values = asdict(reader)
        values["lapped"] += max(over, 0)
        # A reader that is read later than the ring's end may be beyond it.
        lag = max(output.records - reader.index - max(over, 0), 0)
        lag_bytes = max(output.position - reader.position, 0)
        if output.capacity:  # a store keeps all
            lag_bytes = min(lag_bytes, output.capacity)
        found.append(ReaderStatus(**values, lag=lag, lag_bytes=lag_bytes))
    return tuple(found)


def _paused_ns(agents: Sequence[AgentStatus], output: OutputFacts, unix_ns: int) -> int:
    if output.state != "left" or output.alive:
        return 0
    return max(unix_ns - max((each.changed_ns for each in agents), default=0), 1)


def _read_note(directory: Path, started_ns: int, output: OutputFacts) -> RunNote | None:
    if directory.parent != instance_root():
        return None
    note = read_run(directory.name)
    if note is None or note.at_ns < started_ns:
        return None
    # That another start fails says nothing of a feed that runs.
    runs = output.alive and output.state == "open"
    return None if runs and note.what == "failed" else note


def _read_relay(directory: Path) -> tuple[dict[str, dict[str, int]] | None, bool, int]:
    # What it has counted, whether it lives, and its pid if it is gone.
    try:
        counts = RelayCounts.attach(directory)
    except (FileNotFoundError, UdpfastError):
        return None, False, 0
    found, alive = counts.read(), counts.alive
    if not alive:
        found["relay"]["short"] = 0  # nothing waits any more
    gone = counts.gone
    counts.close()
    return found, alive, gone


def read_host(*, with_latency: bool = True, paced: Paced | None = None) -> HostStatus:
    """Return the status of every instance of this user on this host, live or dead, and of the host.

    Parameters
    ----------
    with_latency, paced : bool, Paced
        As for `read_status`.
    """
    instances = {directory.name: directory for directory in list_instances()}
    return read_some(instances, with_latency=with_latency, paced=paced)


def read_some(
    names: Mapping[str, str | Path], *, with_latency: bool = True, paced: Paced | None = None
) -> HostStatus:
    """Return the same of some instances: by what they are called, their names or directories."""
    instances, unreadable, replays = {}, {}, {}
    for name, where in names.items():
        try:
            replay = read_replay_status(where)
            if replay is not None:
                replays[name] = replay
            else:
                instances[name] = read_status(where, with_latency=with_latency, paced=paced)
        except (OSError, UdpfastError) as error:
            unreadable[name] = sentence(error)
    live = [status.path for status in instances.values() if status.alive]
    return HostStatus(instances, unreadable, read_host_facts(live, paced), replays)
