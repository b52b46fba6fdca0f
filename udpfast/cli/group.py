"""Several feeds of one host: a process each, one plan of cores, one signal to stop them all."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from udpfast.archive.groups import GroupFeed, GroupFile, read_group
from udpfast.cli.feed_process import FeedProcess
from udpfast.cli.options import say_stop
from udpfast.cli.service import EXIT_TAKEN, Service
from udpfast.config import FeedConfig, load_feed
from udpfast.config.checks import NAME
from udpfast.config.host import HostConfig, load_host, plan_cores
from udpfast.core.clock import monotonic_ns
from udpfast.core.log import Level, is_shown, say_error, say_info, say_start, say_warning
from udpfast.core.stop import Stop
from udpfast.errors import ConfigError, RegionError, WriterExistsError, shown
from udpfast.page.words import counted

__all__ = ["GroupPlan", "feed_files", "is_group", "load_feeds", "plan_group", "run_group"]

HOST_FILE = "host.toml"
LOOK_S = 0.1
STOP_LOOK_S = 0.01
#: What a feed may take to end beyond what its agents may take to drain.
STOP_MARGIN_NS = 10_000_000_000


def run_group(paths: Sequence[str], host_file: str | None, quiet: bool) -> int:
    """Run feeds until a signal ends them, or each was stopped; return the exit code.

    Parameters
    ----------
    paths : sequence of str
        Their files, and directories of such.
    host_file : str or None
        None: host.toml in the first directory, if there is one.
    quiet : bool

    Raises
    ------
    ConfigError
        A file is wrong: then no feed is started. All wrong files are named.
    """
    plan = plan_group(paths, host_file)
    configs, host, group, cores = plan.configs, plan.host, plan.group, plan.cores
    stopping = Stop()
    stopping.listen()
    asked = threading.Event()
    signal.signal(signal.SIGUSR1, lambda number, frame: asked.set())
    try:
        file = GroupFile(group)
    except WriterExistsError as error:
        say_error(f"udpfast: {error}")
        return EXIT_TAKEN
    _say_takeover(group)
    with tempfile.TemporaryDirectory(prefix="udpfast-") as folder:
        feeds = []
        for path, (name, config) in zip(plan.files, configs.items(), strict=True):
            core = cores.get(name)
            feeds.append(
                FeedProcess(
                    GroupFeed(name, _address(config), core=core),
                    _arguments(path, core, quiet),
                    host,
                    Path(folder),
                    lambda sentence: say_warning(f"udpfast: group {group}: {sentence}"),
                )
            )
        if not quiet:
            placed = ", ".join(f"{name} on core {core}" for name, core in cores.items())
            say_start(f"udpfast: group {group}: {len(feeds)} feeds; {placed or 'none is pinned'}")

        def look_again() -> None:
            if asked.is_set():
                asked.clear()
                for feed in feeds:
                    feed.resume(monotonic_ns())
                say_warning(f"udpfast: group {group}: {_compare(paths, host_file, configs.keys())}")

        drain_ms = max(config.run.drain_ms for config in configs.values())
        try:
            patience_ns = 2 * drain_ms * 1_000_000 + STOP_MARGIN_NS
            return _supervise(group, feeds, file, stopping, look_again, patience_ns)
        finally:
            for feed in feeds:
                feed.close()
            file.close()


class GroupPlan(Struct, frozen=True):
    """What `udpfast run` runs of several files, or of a directory.

    Attributes
    ----------
    group : str
        Its name.
    files : list of Path
    configs : dict of FeedConfig
        By the feeds' names, in the order of the files.
    host : HostConfig
    cores : dict of int
        The core of each feed's loop; those that are not pinned are left out.
    """

    group: str
    files: list[Path]
    configs: dict[str, FeedConfig]
    host: HostConfig
    cores: dict[str, int]


def plan_group(paths: Sequence[str], host_file: str | None) -> GroupPlan:
    """Judge the files of a group; parameters and errors are those of `run_group`."""
    files = feed_files(paths)
    configs = load_feeds(files)
    host, where = _load_host(paths, host_file)
    group = _group_name(host, where, files, configs)
    cores = plan_cores({name: each.agent.core for name, each in configs.items()}, host, where)
    return GroupPlan(group, files, configs, host, cores)


def is_group(paths: Sequence[str], host_file: str | None) -> bool:
    """Return whether `udpfast run` takes paths for a group: several files, or a directory."""
    return len(paths) > 1 or host_file is not None or any(Path(each).is_dir() for each in paths)


def _say_takeover(group: str) -> None:
    # What a supervisor that was killed can say to nobody; its feeds say what that cost.
    with suppress(OSError, RegionError):
        before = read_group(group)
        if not before.ended:
            say_warning(
                f"udpfast: group {group}: takes over from process {before.pid}, which did not end "
                "in good order, and its feeds with it: what came since then is lost"
            )


def feed_files(paths: Sequence[str]) -> list[Path]:
    """Return the files of feeds that paths name: of a directory its *.toml, sorted by name.

    Raises
    ------
    ConfigError
        A directory has none.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir():
            files.append(path)
            continue
        found = sorted(each for each in path.glob("*.toml") if each.name != HOST_FILE)
        if not found:
            raise ConfigError(f"{path}: expected files of feeds (*.toml), found none")
        files += found
    return files


def load_feeds(files: Sequence[Path]) -> dict[str, FeedConfig]:
    """Return what files say of feeds, by the feeds' names.

    Raises
    ------
    ConfigError
        A file is wrong, or two feeds have one name. All wrong files are named.
    """
    configs: dict[str, FeedConfig] = {}
    wrong: list[str] = []
    for path in files:
        try:
            config = load_feed(path)
        except ConfigError as error:
            wrong.append(str(error))
            continue
        if config.name in configs:
            wrong.append(f"{path}: name: expected each feed's own, found {config.name!r} again")
        configs[config.name] = config
    if wrong:
        raise ConfigError("\n".join(wrong))
    return configs


def _load_host(paths: Sequence[str], host_file: str | None) -> tuple[HostConfig, str]:
    for path in map(Path, paths):
        if host_file is None and path.is_dir() and (path / HOST_FILE).exists():
            host_file = str(path / HOST_FILE)
    if host_file is None:
        return HostConfig(), HOST_FILE
    return load_host(host_file), host_file


def _group_name(
    host: HostConfig, where: str, files: Sequence[Path], configs: dict[str, FeedConfig]
) -> str:
    name = host.group or files[0].resolve().parent.name
    if not NAME.holds(name):
        raise ConfigError(
            f"{where}: group: expected {NAME.expected}, found {shown(name)}, the directory's name: "
            "give the group another one"
        )
    if name in configs:
        raise ConfigError(
            f"{where}: group: expected a name that no feed of the group has, found {name!r}"
        )
    return name


def _address(config: FeedConfig) -> str:
    if config.output == "ring":
        return f"ring:{config.name}"
    return f"store:{config.store.directory or config.name}"


def _arguments(path: Path, core: int | None, quiet: bool) -> list[str]:
    level = max(each for each in Level if is_shown(each))
    pinned = [] if core is None else ["--core", str(core)]
    silent = ["--quiet"] if quiet else []
    return ["run", str(path), *pinned, *silent, "--log-level", level.name.lower()]


def _compare(paths: Sequence[str], host_file: str | None, running: Set[str]) -> str:
    # What SIGUSR1 to the group does besides: it says what its files would change.
    said = [
        "SIGUSR1 to the group starts those feeds again that were stopped: for another one send it "
        "to that feed's process, which `udpfast stat` names"
    ]
    try:
        files = plan_group(paths, host_file).configs
    except ConfigError as error:
        return f"{said[0]}. With the files as they are, the group would not start: {error}"
    for what, names in (
        ("added", files.keys() - running),
        ("gone", running - files.keys()),
    ):
        if names:
            said.append(f"{what}: {', '.join(sorted(names))}")
    if len(said) == 1:
        return f"{said[0]}. Its files are sound, and name the feeds that it runs"
    then = "a new start of the group adds and removes feeds"
    return f"{said[0]}. Feeds of its files, {'; '.join(said[1:])}: {then}"


def _supervise(
    group: str,
    feeds: Sequence[FeedProcess],
    file: GroupFile,
    stopping: Stop,
    look_again: Callable[[], None],
    patience_ns: int,
) -> int:
    service = Service(os.environ)
    now_ns = monotonic_ns()
    for feed in feeds:
        feed.start(now_ns)
    file.write(feed.entry for feed in feeds)
    try:
        while not stopping.wait(LOOK_S) and any(feed.entry.state != "ended" for feed in feeds):
            now_ns = monotonic_ns()
            changed = [feed for feed in feeds if feed.look(now_ns)]
            if changed:
                file.write(feed.entry for feed in feeds)
            if all(feed.entry.state != "starting" for feed in feeds):
                service.ready()
            look_again()
            if service.status_due(now_ns):
                service.status(_status(feeds))
            service.alive(now_ns, None)
    finally:
        service.stopping()
        say_stop(stopping, f"group {group}")
        fine = _stop(feeds, stopping, patience_ns)
        file.write((feed.entry for feed in feeds), ended=True)
    if fine:
        say_info(f"udpfast: group {group}: stopped in good order, {counted(len(feeds), 'feed')}")
    return 0 if fine else 1


def _stop(feeds: Sequence[FeedProcess], stopping: Stop, patience_ns: int) -> bool:
    # Whether each ended in good order.
    began_ns = monotonic_ns()
    hurried = killed = False
    for feed in feeds:
        feed.forget()
        feed.signal(signal.SIGTERM)
    while any(feed.runs for feed in feeds):
        if stopping.is_hurried() and not hurried:
            hurried = True
            for feed in feeds:
                feed.signal(signal.SIGTERM)
        if not killed and monotonic_ns() - began_ns > patience_ns:
            killed = True
            for feed in feeds:
                if feed.runs:
                    say_error(f"udpfast: feed {feed.entry.name} did not end: it is killed")
                feed.signal(signal.SIGKILL)
        time.sleep(STOP_LOOK_S)
        for feed in feeds:
            feed.look_for_end()
    return all(feed.entry.state == "ended" for feed in feeds)


def _status(feeds: Sequence[FeedProcess]) -> str:
    counts = Counter(feed.entry.state for feed in feeds)
    parts = [f"{len(feeds)} feeds: " + ", ".join(f"{n} {state}" for state, n in counts.items())]
    parts += [
        f"{feed.entry.name}: {feed.entry.failure}"
        for feed in feeds
        if feed.entry.state == "waiting"
    ]
    return "; ".join(parts)
