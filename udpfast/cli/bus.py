"""`udpfast bus`: one order of messages, kept, on several hosts."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path

import click
from msgspec import to_builtins

from udpfast.archive.bus_files import (
    Live,
    described_by,
    make_shared,
    make_wish,
    read_description,
    read_wish,
    take_outboxes,
    take_wish,
)
from udpfast.cli.options import FiniteRange, IntRange, log_level, say_stop
from udpfast.cli.service import EXIT_TAKEN, Service
from udpfast.cli.top_host import store_lines
from udpfast.cli.top_words import plain
from udpfast.cli.verbs import SmallGroup
from udpfast.config import load_feed
from udpfast.config.bus import BusConfig, bus_keys, load_bus
from udpfast.core.log import say_error, say_start, say_warning
from udpfast.core.stop import Stop, raise_once
from udpfast.errors import ConfigError, NotReadyError, UdpfastError, WriterExistsError, sentence
from udpfast.log.journal_header import adopt_copy, is_copy
from udpfast.monitor.stores import StoreStatus, read_store
from udpfast.monitor.troubles import store_troubles
from udpfast.page.words import literal
from udpfast.shm.files import as_owner_of
from udpfast.shm.instance import journal_directory, journal_root

__all__ = ["bus"]

#: What `promote` says: the daemon has begun, and has not said how it ends.
EXIT_GOES_ON = 3

_FILE = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
_HOST = click.option("--host", required=True, help="Which of the file's hosts this one is.")
_DIRECTORY = click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the stores lie; else where journals do.",
)


@click.group(cls=SmallGroup)
def bus() -> None:
    """One order of messages, kept, on several hosts.

    \b
    Examples:
      udpfast bus demo
      udpfast bus check bus.toml
      udpfast bus run bus.toml --host one
      udpfast bus stat bus.toml
    """


@bus.command(epilog="Example: udpfast bus check bus.toml")
@_FILE
def check(file: Path) -> None:
    """Read bus.toml and say which host does what."""
    config = load_bus(file)
    keys = len(bus_keys(config))
    click.echo(f"keys: {keys or 'none: hosts are known by their addresses alone'}")
    for name, store in config.logs.items():
        if store.feed:
            _check_feed(name, store.feed)
        waits = store.release if store.release != "disk" else f"disk, away_ms {store.away_ms}"
        click.echo(f"{name}: port {store.port}, gate {store.gate}, release {waits}")
        for host in store.hosts:
            part = f"copies from {store.source(host) or 'the writer'}"
            if host == store.sequencer:
                part = "writes it"
            click.echo(f"  {host} ({config.hosts[host]}) {part}")


@bus.command(epilog="Example: udpfast bus run bus.toml --host one")
@_FILE
@_HOST
@_DIRECTORY
@click.option("--spin", is_flag=True, help="Never sleep: for a core of its own.")
@click.option("--quarantine", is_flag=True, help="Set aside records that the writer does not have.")
@click.option(
    "--begin",
    metavar="STORE",
    multiple=True,
    help="Begin this store, if no host that can be reached has it; do not wait for the others.",
)
@click.option("--lose", type=click.FloatRange(0, 1), default=0.0, hidden=True)
@click.option("--twice", type=click.FloatRange(0, 1), default=0.0, hidden=True)
@click.option("--cut-s", type=click.FloatRange(0), default=0.0, hidden=True)
@log_level
def run(
    file: Path,
    host: str,
    directory: Path | None,
    spin: bool,
    quarantine: bool,
    begin: tuple[str, ...],
    lose: float,
    twice: float,
    cut_s: float,
) -> None:
    """Do this host's part: write stores, copy them, bring apps' messages to their sequencers.

    Exit codes: 0 stopped; 1 it failed; 2 wrong settings; 3 another process writes one of its
    stores.
    """
    from udpfast.agents.bus.bus_host import BusHost
    from udpfast.agents.bus.bus_sockets import BadPath

    config = load_bus(file)
    _check_host(config, file, host)
    if not any(host in store.hosts for store in config.logs.values()):
        raise ConfigError(f"{file}: expected a host of a store or composite, found {host!r}")
    stopping = Stop()
    stopping.listen()
    service = Service(os.environ)
    try:
        daemon = BusHost(
            config, host, directory, bad=BadPath(lose, twice, cut_s), quarantine=quarantine,
            begin=begin,
            say=lambda line: say_warning(f"udpfast bus: {line}"),
        )  # fmt: skip
    except WriterExistsError as error:
        service.failed(str(error))
        say_error(f"udpfast: {error}")
        sys.exit(EXIT_TAKEN)
    stopping.call(daemon.stop)

    def ready() -> None:
        names = ", ".join(part.name for part in daemon.parts)
        say_start(f"udpfast bus: {host} runs its part of {names}")
        service.ready()

    daemon.run(spin=spin, ready=ready, alive=lambda now_ns: service.alive(now_ns, None))
    service.stopping()
    say_stop(stopping, f"bus of {host}")


@bus.command(epilog="Example: udpfast bus stat bus.toml --json")
@_FILE
@_DIRECTORY
@click.option("--host", help="Which of the file's hosts this one is: only to check that it is.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def stat(file: Path, directory: Path | None, host: str | None, as_json: bool) -> None:
    """Show each store of this host: its end, its copies, its senders; of a dead daemon too.

    Exit code 1 if a store cannot be read, or needs attention.
    """
    config = load_bus(file)
    if host is not None:
        _check_host(config, file, host)
    found = {name: _status(directory, name) for name in config.logs}
    for store in found.values():
        if host is not None and isinstance(store, StoreStatus) and store.host != host:
            raise ConfigError(
                f"{store.directory}: expected the store of {host}, found that of {store.host}"
            )
    if as_json:
        click.echo(json.dumps(to_builtins(found)))
    else:
        _print_stores(found, directory)
    sys.exit(
        any(
            isinstance(store, str) or (store is not None and bool(store_troubles(store)))
            for store in found.values()
        )
    )


def _print_stores(found: dict[str, StoreStatus | str | None], directory: Path | None) -> None:
    for name, store in found.items():
        if store is None:
            where = journal_root() if directory is None else directory
            click.echo(f"{name}: not in {where}; if it lies elsewhere, give --directory")
        elif isinstance(store, str):
            click.echo(f"{name}: {literal(store)}")
        else:
            click.echo(plain(store_lines(store)))


@bus.command(epilog="Example: udpfast bus promote bus.toml orders --host one")
@_FILE
@click.argument("store")
@_HOST
@_DIRECTORY
@click.option(
    "--wait",
    type=FiniteRange(min=0),
    default=10.0,
    show_default=True,
    help="Seconds until it is withdrawn, if the daemon has not taken it up.",
)
def promote(file: Path, store: str, host: str, directory: Path | None, wait: float) -> None:
    """Make this host the writer of a store. Run it there, beside its daemon.

    All hosts that can be reached promise to take nothing of the writer before; what they have more
    than this one is copied first. Hosts that cannot be reached are named: what only they have is
    lost to the new epoch.

    Exit codes: 0 it writes; 1 it does not, and will not; 3 it is still at it.
    """
    config = load_bus(file)
    _check_host(config, file, host)
    if store not in config.logs:
        raise ConfigError(f"{file}: expected one of {', '.join(config.logs)}, found {store!r}")
    hosts = config.logs[store].hosts
    if host not in hosts:
        raise ConfigError(
            f"{file}: expected a host of {store} ({', '.join(hosts)}), found {host!r}"
        )
    try:
        path = place(directory, store)
        before = read_description(path)
    except FileNotFoundError:
        raise NotReadyError(
            f"{store}: expected the daemon of {host} to run here, found none"
        ) from None
    if before["host"] != host:
        raise ConfigError(f"{path}: expected the store of {host}, found that of {before['host']}")
    until = time.monotonic() + wait
    live = Live(path)
    wish, taken = "", False
    outcome: list[str] = []
    try:
        while not outcome:
            left = read_wish(path)  # looked for first: who takes it says so before
            now = read_description(path)
            if wish and now.get("wish") == wish:
                taken, outcome = True, now["outcome"]
            elif not left and not taken and "wish" in now and live.is_alive():
                # The first time, or again: a daemon that was restarted drops earlier wishes.
                with contextlib.suppress(FileExistsError):
                    wish = make_wish(path)
            if time.monotonic() >= until:
                break
            time.sleep(0.05)
    finally:
        withdrawn = bool(wish) and read_wish(path) == wish and take_wish(path)
    if outcome:
        refused = outcome[0].startswith("not promoted")
        click.echo(f"udpfast: {outcome[0]}" if refused else "\n".join(outcome), err=refused)
        sys.exit(refused)
    if wish and not withdrawn and read_description(path).get("wish") == wish:
        click.echo(
            f"udpfast: {host} is still at it after {wait:g} s: `udpfast bus stat` says how it ends",
            err=True,
        )
        sys.exit(EXIT_GOES_ON)
    if live.is_alive():
        why = "did not take it up"
    elif pid := described_by(read_description(path)):
        why = f"stands still (its process {pid} is there) and did not take it up"
    else:
        why = "does not run"
    click.echo(
        f"udpfast: {path}: the daemon of {host} {why} within {wait:g} s: nothing was changed",
        err=True,
    )
    sys.exit(1)


@bus.command(epilog="Example: udpfast bus adopt store:/data/orders")
@click.argument("address")
def adopt(address: str) -> None:
    """Use a store's directory that was moved to another disk, or restored from a backup.

    Its daemon refuses it, because two directories must not continue one store. This command says
    that the directory in which the store was written before is used no more. Run it while the
    daemon does not run. Others may have more than a copy: a host that wrote the store then waits
    for `udpfast bus promote`.
    """
    prefix, _, name = address.partition(":")
    if prefix != "store" or not name:
        raise ConfigError(f"address must be store:NAME or store:/path, was {address!r}")
    path = journal_directory(name)
    if not is_copy(path):
        raise ConfigError(
            f"{path}: expected a copy of a store's directory, found "
            + ("the one in which it was written" if (path / "journal").exists() else "no store")
        )
    with as_owner_of(path):
        adopt_copy(path)
        # Others may have more than this copy: without this file, its host does not write at once.
        (path / "bus.boot").unlink(missing_ok=True)
        make_shared(path)
        taken = take_outboxes(path, Live(path).shared)
    outboxes = f", with {taken} outboxes of its apps" if taken else ""
    click.echo(f"{path} is where this host has the store now{outboxes}")
    # A backup does not tell what apps have let go since, nor what other copies were given.
    click.echo(
        "If this host wrote the store and other hosts copy it, nobody writes it until you run "
        "`udpfast bus promote` for the host that has most: `udpfast bus stat` shows who that is"
    )


@bus.command(epilog="Example: udpfast bus demo --json")
@click.option(
    "--messages",
    type=IntRange(1),
    default=3000,
    show_default=True,
    help="Messages that each app sends.",
)
@click.option("--json", "as_json", is_flag=True, help="The last line is one JSON object.")
def demo(messages: int, as_json: bool) -> None:
    """Three hosts on loopback: losses, kill -9, a promotion; nothing is lost."""
    from udpfast.cli.bus_demo import run_demo

    raise_once()
    found = run_demo(messages, click.echo)
    if as_json:
        click.echo(json.dumps(found))
    sys.exit(0 if found["ok"] else 1)


def place(directory: Path | None, store: str) -> Path:
    """Return the directory of a store's copy on this host."""
    return journal_directory(directory / store if directory is not None else store)


def _status(directory: Path | None, store: str) -> StoreStatus | str | None:
    # None: it is not here. A text: why it cannot be read.
    try:
        return read_store(place(directory, store))
    except FileNotFoundError:
        return None
    except (OSError, UdpfastError) as error:
        return sentence(error)


def _check_feed(name: str, file: str) -> None:
    # The feed's file lies on the host that writes the store, and as a rule on all.
    try:
        load_feed(file)
    except (OSError, UdpfastError) as problem:
        raise ConfigError(
            f"stores.{name}.feed: expected the settings of a feed: {sentence(problem)}"
        ) from None


def _check_host(config: BusConfig, file: Path, host: str) -> None:
    if host not in config.hosts:
        raise ConfigError(f"{file}: expected one of {', '.join(config.hosts)}, found {host!r}")
