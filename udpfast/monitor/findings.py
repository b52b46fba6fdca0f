"""What a host lacks for one feed: its core, its directories, its sockets, its stack."""

from __future__ import annotations

import errno
import ipaddress
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from udpfast.agents.feed.factories import wanted_agents, wanted_cores
from udpfast.agents.feed.lines import ReceivedAddress, receive_options, received_addresses
from udpfast.agents.feed.recorder import bytes_to_begin
from udpfast.archive.feed_settings import other_feed
from udpfast.config import FeedConfig, logins_of, read_login
from udpfast.core.agent import AgentRunner, CallableAgent
from udpfast.core.core_number import check_core, core_count, cores_allowed
from udpfast.core.endpoint import parse_endpoint
from udpfast.errors import ConfigError, UdpfastError, sentence
from udpfast.host import Finding, HostUse
from udpfast.host.finding import unjudged
from udpfast.host.network import CAP_NET_ADMIN
from udpfast.host.tree import HostTree
from udpfast.monitor.bypass import planned_launch
from udpfast.monitor.losses import read_counters
from udpfast.monitor.output import read_output
from udpfast.monitor.xdp_findings import inspect_xdp
from udpfast.net.bypass import STACKS, environment_settings
from udpfast.net.bypass_launch import find_library
from udpfast.net.drops import socket_drops
from udpfast.net.line import LineAddress, open_receiver
from udpfast.net.multicast import resolve_interface, routed_interface
from udpfast.net.xdp_host import find_interface
from udpfast.net.xdp_open import open_member
from udpfast.shm.files import as_owner_of
from udpfast.shm.instance import (
    check_group,
    check_instance,
    instance_directory,
    journal_directory,
)

__all__ = ["describe_judged", "feed_use", "inspect_feed", "inspect_together", "use_of_all"]

#: What ZeroMQ says of EADDRINUSE, in the sentence of who binds.
_IN_USE = "Address already in use"
_UNCOUNTED = "the feed has counted nothing yet; `udpfast wire` measures the skew of a link"


def feed_use(config: FeedConfig) -> HostUse:
    """Return how a feed uses the host: its core, its interfaces, its sockets."""
    agent, receive = config.agent, config.receive
    found = (_interface_name(each.where) for each in received_addresses(config))
    return HostUse(
        cores=() if agent.core is None else (agent.core,),
        # Datagrams that never leave the host meet no NIC.
        interfaces=tuple(dict.fromkeys(name for name in found if name not in {"", "lo"})),
        rcvbuf_bytes=receive.rcvbuf_bytes,
        busy_poll=receive.busy_poll_us > 0,
        prefer_busy_poll=receive.prefer_busy_poll,
        gro=receive.gro,
        fifo=agent.fifo_priority > 0 and agent.idle == "spin",
    )


def use_of_all(configs: Sequence[FeedConfig]) -> HostUse:
    """Return how feeds use the host together: what one of them needs, the host needs.

    The host is judged by the rights of those that run, if there are any.
    """
    uses = [feed_use(config) for config in configs]
    pids = [pid for config in configs if (pid := _running(config.name)) is not None]
    if not uses:
        return HostUse()
    return HostUse(
        cores=tuple(dict.fromkeys(core for use in uses for core in use.cores)),
        interfaces=tuple(dict.fromkeys(name for use in uses for name in use.interfaces)),
        rcvbuf_bytes=max(use.rcvbuf_bytes for use in uses),
        busy_poll=any(use.busy_poll for use in uses),
        prefer_busy_poll=any(use.prefer_busy_poll for use in uses),
        gro=any(use.gro for use in uses),
        fifo=any(use.fifo for use in uses),
        processes=tuple(map(str, dict.fromkeys(pids))) or ("self",),
    )


def describe_judged(configs: Sequence[FeedConfig]) -> str:
    """Return by whose rights `use_of_all` and `inspect_feed` judge, in words."""
    found = [(config.name, pid) for config in configs if (pid := _running(config.name))]
    if not found:
        return (
            f"judged for this user, {os.geteuid()}, as no such feed runs: another user's feed may "
            "have fewer rights"
        )
    whose = [f"{name}, user {_user_of(pid)}" for name, pid in found]
    return f"judged for the process of {'; '.join(whose)}"


def _user_of(pid: int) -> int:
    # Who runs a process; this user if it has ended meanwhile.
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return os.geteuid()


def _interface_name(line: LineAddress) -> str:
    # The interface by which a line comes; "" if the kernel does not say.
    host, port = parse_endpoint(line.address)
    try:
        if line.interface:
            return resolve_interface(line.interface).name
        return routed_interface(host, port).name
    except (ConfigError, OSError):
        return ""


def inspect_feed(config: FeedConfig | None) -> list[Finding]:
    """Look at the stacks that are installed, and at what a feed asks of this host.

    Each line's socket is opened for a moment.
    """
    if config is None:
        return _stacks(None)
    return [
        *_stacks(config),
        *_instance(config),
        *_cores(config),
        *_grants(config),
        *_agents(config),
        *_record(config),
        *_store(config),
        *_logins(config),
        *_waits(config),
        *_sockets(config),
    ]


def _instance(config: FeedConfig) -> list[Finding]:
    # Whether the feed's files can be made where they are to lie, for whom they are.
    effect = "udpfast run refuses to start."
    asked: list[tuple[str, str, Callable[[str], None], str]] = [
        ("instance", "a directory in which only this user writes", check_instance, config.name)
    ]
    if config.access.group:
        want = "a group of this user's"
        asked.append(("access.group", want, check_group, config.access.group))
    findings = []
    for name, want, attempt, value in asked:
        refused = _refusal(partial(attempt, value))
        findings.append(Finding(name, want, refused or value, not refused, effect, fault=True))
    return findings


def _refusal(attempt: Callable[[], object]) -> str:
    # By what it fails; empty: by nothing.
    try:
        attempt()
    except (UdpfastError, OSError) as error:
        return sentence(error)
    return ""


def _cores(config: FeedConfig) -> list[Finding]:
    # Whether the core of the loop, and those of the agents that have one, are there to be had.
    allowed = cores_allowed()
    findings = []
    for key, core in wanted_cores(config).items():
        loop = key == "agent.core"
        if core is None and not loop:
            continue
        have = "unpinned" if core is None else str(core)
        absent = _refusal(partial(check_core, key, core))
        refused = bool(absent) or (loop and core is not None and config.agent.strict)
        if absent:
            have += f", which this host does not have (0 to {core_count() - 1})"
        elif core is not None and core not in allowed:
            have += f", offline or not of the cpuset: {', '.join(map(str, allowed))}"
        findings.append(
            Finding(
                key,
                "a core that this process may use",
                have,
                core in allowed,
                "udpfast run refuses to start."
                if refused
                else "The scheduler moves a loop that is not pinned, which then finds its caches "
                "cold.",
                fault=refused,
            )
        )
    return findings


def _grants(config: FeedConfig) -> list[Finding]:
    # What a strict loop's thread asks of the kernel, asked for by a thread that ends at once.
    agent = config.agent
    if not agent.strict:
        return []
    runner = AgentRunner(
        CallableAgent("udpfast check", lambda now_ns: None),
        fifo_priority=agent.fifo_priority or None,
        lock_memory=agent.lock_memory,
    )
    # In a thread of its own: its priority is not this one's to keep.
    runner.start()
    runner.finish()
    return [
        Finding(
            f"agent.{grant.name}",
            grant.asked,
            grant.reason or "granted",
            grant.granted,
            "With agent.strict, udpfast run refuses to start.",
            fault=True,
        )
        for grant in runner.grants
    ]


def _agents(config: FeedConfig) -> list[Finding]:
    # Whether agents can open what their settings name: addresses to bind, lines to send by.
    findings = []
    pid = _running(config.name)
    for agent in wanted_agents(config):
        name, want = f"agent {agent.name}", "what its settings name, to be opened"
        effect = "The agent cannot begin, and is tried again and again."
        try:
            if agent.try_start(config):
                findings.append(Finding(name, want, "it can be opened", True, effect, fault=True))
        except (UdpfastError, OSError) as error:
            have = sentence(error)
            if pid is not None and _IN_USE in have:
                reason = "bound already: `udpfast stat` says how the feed's agents are"
                have = f"of the feed, which runs (pid {pid})"
                findings.append(unjudged(name, want, have, effect, reason))
            else:
                findings.append(Finding(name, want, have, False, effect, fault=True))
    return findings


def _store(config: FeedConfig) -> list[Finding]:
    # Whether a feed that writes a store can make it where it is to go.
    if config.output != "store":
        return []
    effect = "udpfast run refuses to start."
    return [_place("store.directory", config.store.directory or config.name, effect)[0]]


def _place(key: str, wanted: str, effect: str) -> tuple[Finding, Path]:
    # Whether a directory can be made and written in, and where it is to be.
    want = "a directory that this user may write in"
    try:
        directory = journal_directory(wanted)
    except FileNotFoundError as error:
        directory = Path(error.filename)
    except (UdpfastError, OSError) as error:
        return Finding(key, want, str(error), False, effect, fault=True), Path(wanted)
    above = directory
    while not above.exists():
        above = above.parent
    found = above.is_dir() and os.access(above, os.W_OK | os.X_OK)
    have = str(above) if found else f"{above}, in which it may not"
    return Finding(key, want, have, found, effect, fault=True), directory


def _record(config: FeedConfig) -> list[Finding]:
    # Whether the recorder, if there is one, can make its journal where it is to go.
    if not config.record.enabled:
        return []
    effect = "The recorder cannot begin, and is tried again and again; nothing is kept."
    place, directory = _place("record.directory", config.record.directory or config.name, effect)
    if owner := other_feed(directory, config.name):
        want, have = f"a journal of {config.name}", f"{directory}, of the feed {owner}"
        return [place._replace(want=want, have=have, ok=False)]
    if not place.ok:
        return [place]
    limit = _limit(config, directory)
    if not any(directory.glob("**/*.segment")):  # later, old segments may make room
        disk, need = os.statvfs(place.have), bytes_to_begin(config.record, config.ring.names)
        free = disk.f_bavail * disk.f_frsize
        text = f"{free:,} bytes free at {place.have}"
        room = Finding("record room", f"{need:,} to begin", text, free >= need, effect, fault=True)
        limit = [room, *limit]
    return [place, *limit]


def _limit(config: FeedConfig, directory: Path) -> list[Finding]:
    # Whether a start removes records because the limit is lower than it was.
    limit = config.record.keep_bytes
    if not limit:
        return []
    files = [each for place in (directory, directory / "raw") for each in place.glob("*.*")]
    size = sum(each.stat().st_blocks * 512 for each in files)
    return [
        Finding(
            "record.keep_bytes",
            "what the journals take, or more",
            f"{limit:,}, they take {size:,}",
            size <= limit,
            "The next start removes the oldest segments.",
        )
    ]


def inspect_together(configs: Mapping[str, FeedConfig]) -> list[Finding]:
    """Look for what only one of several feeds can have: the address of a host, a journal."""
    users: dict[tuple[str, str], dict[str, str]] = {}
    for name, config in configs.items():
        for each in received_addresses(config):
            host, port = parse_endpoint(each.where.address)
            if port and not ipaddress.ip_address(host).is_multicast:
                shown = f"{name} {each.shown}"
                users.setdefault(("address", each.where.address), {})[name] = shown
        if config.record.enabled:
            journal = config.record.directory or config.name
            users.setdefault(("record.directory", journal), {})[name] = name
    return [
        Finding(
            what,
            "one feed",
            f"{where} of {' and '.join(found.values())}",
            False,
            "Whichever of them begins later cannot have it.",
            fault=True,
        )
        for (what, where), found in users.items()
        if len(found) > 1
    ]


def _logins(config: FeedConfig) -> list[Finding]:
    # Whether each server's login file can be used. What is in it is not shown.
    findings = []
    asked = logins_of(config.wire, config.retransmission, config.snapshot_server)
    for name, path, spoken in asked:
        want = f"{' and '.join(spoken.login)}, as {spoken.name} has them" if path else "none named"
        try:
            read_login(path, spoken)
            have, found = path or "none", True
        except ConfigError as problem:
            have, found = str(problem), False
        effect = "The server is not asked: what it would bring stays missing."
        findings.append(Finding(f"{name}.login", want, have, found, effect, fault=True))
    return findings


def _waits(config: FeedConfig) -> list[Finding]:
    # Whether holes wait until the slower of several lines has filled them, and whether there is
    # room meanwhile, as far as the feed has counted.
    findings = []
    streams = "incremental" if config.wire.framing == "roq" else "streams"
    for scope, key, role in (
        ("incremental", streams, config.incremental),
        ("snapshot", "snapshot", config.snapshot),
    ):
        if len(role.lines) < 2:
            continue
        late, full, waited_us = _too_late(config, scope)
        known = late is not None
        wait_us = role.lost_packet_wait_us or config.window.lost_packet_wait_us
        now = f" (waits for {waited_us:,} us now)" if wait_us == "auto" and waited_us else ""
        findings += [
            Finding(
                f"{key} lost_packet_wait_us",
                _wait_wanted(wait_us, waited_us),
                f"{wait_us}{now}, {late or 0:,} datagrams came too late",
                late == 0 if known else None,
                "What one line lost is reported lost, though another line brings it.",
                "" if known else _UNCOUNTED,
            ),
            Finding(
                f"{key} window.size",
                "2 x rate x wait, the next power of two; slab_cells: rate x wait",
                f"{config.window.size}, {full or 0:,} gaps because it was full",
                full == 0 if known else None,
                "Holes are given up before they have waited.",
                "" if known else _UNCOUNTED,
            ),
        ]
    return findings


def _wait_wanted(wait_us: int | str, waited_us: int | None) -> str:
    # The pipeline takes 8 ms to import, and few feeds come here.
    from udpfast.feed.pipeline import WAIT_MAX_US

    longest = f'"auto" waits for {WAIT_MAX_US:,} us at most'
    if wait_us != "auto":
        return f"the skew of the lines and a quarter more; {longest}"
    if waited_us == WAIT_MAX_US:
        return f"a number: the skew and a quarter more; {longest}"
    return 'few, before "auto" knows the skew; if they grow, a number: the skew and a quarter more'


def _too_late(config: FeedConfig, scope: str) -> tuple[int | None, int | None, int | None]:
    # Datagrams of a channel that came behind their gap, gaps for want of room, and how long holes
    # wait now; None: the feed has never run.
    try:
        counters, *_ = read_counters(instance_directory(config.name))
    except (UdpfastError, OSError):
        return None, None, None
    lines = [values for name, values in counters.items() if name.startswith(f"{scope}.")]
    channel = counters[scope]
    late = sum(line["late"] for line in lines)
    return late, channel["gaps_window_full"], channel["wait_ns"] // 1_000


def _sockets(config: FeedConfig) -> list[Finding]:
    # Which options of the lines' sockets are not granted, and why. With AF_XDP they hold ports and
    # memberships, and its interfaces are judged as well.
    findings = []
    by_xdp = config.receive.path == "xdp"
    options = receive_options(config)
    pid = _running(config.name)
    unheard = "This line cannot be received."
    found_all = True
    for each in received_addresses(config):
        name = each.name
        if not parse_endpoint(each.where.address)[1]:
            have, effect = (
                "0: the kernel chooses another one at each start",
                "Nobody can send there.",
            )
            findings.append(Finding(name, "a port", have, False, effect, fault=True))
        want = "an interface for AF_XDP" if by_xdp else "a socket"
        try:
            if by_xdp:
                find_interface(each.where)
            with _as_feed(pid):
                sock, results = (
                    open_member(each.where) if by_xdp else open_receiver(each.where, options)
                )
        except OSError as error:
            findings.append(_refused(each, error, pid))
            continue
        except ConfigError as error:  # an interface that this host does not have
            found_all = False
            findings.append(Finding(name, want, str(error), False, unheard, fault=True))
            continue
        sock.close()
        findings += [
            Finding(
                f"{name} {result.name}",
                "NIC" if result.asked == "auto" else result.asked,  # stamps: the NIC's are better
                result.got,
                not result.reason,
                f"{result.reason}." if result.reason else "",
                fault=config.agent.strict,
            )
            for result in results
        ]
    if by_xdp and found_all:
        findings += inspect_xdp(config, pid, partial(_as_feed, pid))
    return findings


def _as_feed(pid: int | None) -> AbstractContextManager[None]:
    # With the rights of the feed's process, where root has more.
    tree = HostTree(Path("/"), HostUse(processes=(str(pid),)))
    if pid is None or tree.capable(CAP_NET_ADMIN):
        return nullcontext()
    return as_owner_of(Path(f"/proc/{pid}"))


def _refused(each: ReceivedAddress, error: OSError, pid: int | None) -> Finding:
    # Why a line has no socket; what the feed itself holds, because it runs, is no fault.
    name, want, effect = each.name, "a socket", "This line cannot be received."
    if error.errno == errno.EADDRINUSE:
        if pid is not None and each.where.address in _held(pid):
            reason = "bound already: its options can be judged while the feed is stopped"
            return unjudged(name, want, f"of the feed, which runs (pid {pid})", effect, reason)
        return Finding(
            name, want, "the port is taken by another program (ss -lunp)", False, effect, fault=True
        )
    return Finding(name, want, error.strerror or str(error), False, effect, fault=True)


def _running(name: str) -> int | None:
    # The process of the feed of this name, if it lives.
    try:
        output = read_output(instance_directory(name))
    except (UdpfastError, OSError):  # none yet, or one that its status speaks of
        return None
    return output.writer_pid if output.alive and output.state == "open" else None


def _held(pid: int) -> set[str]:
    try:
        return {one.address for one in socket_drops(pid)}
    except OSError:  # it ended meanwhile, or is another user's
        return set()


def _stacks(config: FeedConfig | None) -> list[Finding]:
    # Which stacks are installed, which the feed asks for, and what it would start with.
    asked = config.bypass.stack if config else "none"
    findings = []
    for stack in STACKS.values():
        wanted = stack.name == asked
        try:
            explicit = config.bypass.library if config and wanted else ""
            have, found = str(find_library(stack, explicit, os.environ)), True
        except ConfigError as error:
            have, found = str(error) if wanted else "not installed", False
        findings.append(
            Finding(
                f"bypass {stack.name}",
                f"{stack.library}, as bypass.stack asks" if wanted else "nothing asks for it",
                have,
                found if wanted else None,
                "udpfast run refuses to start: without the library it would receive through the "
                "kernel, and nothing would say so.",
                fault=True,
            )
        )
        if config and wanted and found:
            findings.append(_plan_finding(config))
    settings = environment_settings(os.environ)
    findings.append(
        Finding(
            "bypass environment",
            "your own settings: they win over the profile",
            " ".join(f"{name}={value}" for name, value in settings.items()) or "none set",
            None,
            "",
        )
    )
    return findings


def _plan_finding(config: FeedConfig) -> Finding:
    return Finding(
        f"bypass {config.bypass.stack} start",
        "what udpfast run sets",
        "; ".join(
            planned_launch(
                config.bypass, config.receive.rcvbuf_bytes, strict=config.agent.strict
            ).lines
        ),
        None,
        "",
    )
