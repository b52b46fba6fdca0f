"""`udpfast run`: receive a feed, or several, until a signal ends it, and keep them going."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click
from msgspec.structs import replace

from udpfast.agents.feed.feed_keeper import FeedKeeper
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.archive.run_notes import forget_run, note_run
from udpfast.cli.bypass import enter_bypass, print_environment
from udpfast.cli.options import IntRange, log_level, say_stop
from udpfast.cli.service import EXIT_AGAIN, EXIT_TAKEN, Service
from udpfast.config import FeedConfig, load_feed
from udpfast.config.types import CORE_MAX
from udpfast.core.clock import monotonic_ns, realtime_ns
from udpfast.core.log import say_error, say_info, say_start, say_warning
from udpfast.core.parent import parent_gone
from udpfast.core.stop import Stop
from udpfast.errors import WriterExistsError, sentence
from udpfast.host import shared_memory_removal
from udpfast.log.readers import list_readers
from udpfast.monitor.limits import feed_counts, reached_limits
from udpfast.monitor.silence import SilentLines
from udpfast.monitor.stalls import Stalls
from udpfast.net.bypass import STACKS
from udpfast.shm.instance import name_in_file
from udpfast.shm.roster import AgentState

__all__ = ["EXIT_TAKEN", "run", "say_removed"]

LOOK_S = 0.1


@click.command(epilog="Example: udpfast run feed.toml")
@click.argument("paths", metavar="FEED.TOML|DIRECTORY...", nargs=-1, required=True)
@click.option("--quiet", is_flag=True, help="Print errors only.")
@click.option(
    "--core", type=IntRange(0, CORE_MAX), help="Pin the loop here, overriding agent.core."
)
@click.option(
    "--host",
    "host_file",
    metavar="HOST.TOML",
    help="Settings that several feeds share; by default host.toml in DIRECTORY.",
)
@click.option(
    "--bypass",
    "stack",
    type=click.Choice(["none", *STACKS]),
    help="Start under this preloaded network stack, overriding bypass.stack.",
)
@click.option(
    "--bypass-library",
    "library",
    metavar="PATH",
    help="Path of the stack's library, if it is not found.",
)
@click.option(
    "--bypass-strict",
    "strict",
    is_flag=True,
    help="Refuse to start unless the stack accelerates the feed's sockets.",
)
@log_level
def run(
    paths: tuple[str, ...],
    quiet: bool,
    core: int | None,
    host_file: str | None,
    stack: str | None,
    library: str | None,
    strict: bool,
) -> None:
    """Receive the feed that FEED.TOML describes and publish it to local strategies.

    Starts every agent that the file asks for. On SIGINT, SIGTERM or SIGHUP the agents finish their
    work before the command ends; a signal that comes a second later has them end with what they
    have. Strategies attach with udpfast.Reader("ring:NAME").

    With several files, or a DIRECTORY of them, each feed is a process of its own: one that ends
    with an error is started again, and one signal stops them all. host.toml in DIRECTORY gives
    them cores. Strategies attach to all with udpfast.Reader("group:DIRECTORY'S NAME").

    SIGUSR1 to the process of a feed stops it in the same way, and whoever supervises it, its group
    or its systemd unit, starts it again with its file as it is then; strategies wait for that.

    Exit codes: 0 stopped; 1 the feed failed, or an agent did not finish its work; 2 wrong
    settings; 3 another process runs this instance, or this group; 4 stopped by SIGUSR1.
    """
    from udpfast.cli.group import is_group, run_group

    if is_group(paths, host_file):
        if core is not None or stack or library or strict:
            raise click.UsageError("--core and --bypass are for one FEED.TOML, not for several")
        sys.exit(run_group(paths, host_file, quiet))
    service = Service(os.environ)
    name = name_in_file(paths[0]) or Path(paths[0]).stem
    with _noting_failure(paths[0], name, service):
        config = _with_options(load_feed(paths[0]), core, stack, library, strict)
        enter_bypass(
            config.bypass, config.receive.rcvbuf_bytes, strict=config.agent.strict, quiet=quiet
        )
    _run_feed(paths[0], config, quiet, service)


@contextmanager
def _noting_failure(file: str, name: str, service: Service) -> Iterator[None]:
    # A start that fails leaves no files of its own that would tell of it.
    try:
        yield
    except click.UsageError:
        raise
    except WriterExistsError as error:  # that process runs the feed
        service.failed(str(error))
        say_error(f"udpfast: {error}")
        sys.exit(EXIT_TAKEN)
    except Exception as error:
        service.failed(sentence(error))
        if Path(file).exists():  # a name that was mistyped is no feed that should run
            note_run(name, "failed", sentence(error))
        raise


def _run_feed(file: str, config: FeedConfig, quiet: bool, service: Service) -> None:
    stopping = Stop()
    stopping.listen()
    again: list[int] = []

    def stop_for_again(number: int, frame: FrameType | None) -> None:
        again.append(number)
        stopping.set(number)

    signal.signal(signal.SIGUSR1, stop_for_again)
    with _noting_failure(file, config.name, service):
        subscriber = Subscriber(config)
        subscriber.start()
    forget_run(config.name)
    failure: BaseException | None = None
    try:
        _announce(subscriber, quiet)
        service.ready()
        failure = _keep_going(subscriber, service, stopping)
    finally:
        service.stopping()
        say_stop(stopping, config.name)
        orphaned = failure is None and parent_gone()
        if orphaned:
            # Nobody stopped the feed: its readers wait for the next supervisor's.
            text = f"its supervisor, process {orphaned}, has ended"
            say_warning(f"udpfast: {config.name}: {text}: it ends, too")
            subscriber.note_failure(text, again=False)
        try:
            subscriber.stop(stopping.is_hurried, again=bool(again or orphaned))
        except Exception as error:  # the loop's own, unless it is known already
            failure = failure or error
        if failure is None:
            forget_run(config.name)
    undone = _say_undone(subscriber)
    if failure is not None:
        service.failed(sentence(failure) if isinstance(failure, Exception) else repr(failure))
        raise failure
    if undone or orphaned:
        sys.exit(1)
    then = ", to be started again" if again else ""
    records = subscriber.counters()["feed"]["records"]
    say_info(
        f"udpfast: {config.name}: stopped in good order{then}; it published {records:,} records"
    )
    if again:
        sys.exit(EXIT_AGAIN)


def _say_undone(subscriber: Subscriber) -> bool:
    # An agent that did not finish left work undone, and no other message says so.
    undone = [
        companion for companion in subscriber.agents[1:] if companion.state is AgentState.FAILED
    ]
    for agent in undone:
        say_error(
            f"udpfast: {subscriber.name}: agent {agent.name} did not finish its work: "
            f"{agent.failure}"
        )
    return bool(undone)


def _announce(subscriber: Subscriber, quiet: bool) -> None:
    for note in subscriber.notes:
        say_warning(f"udpfast: {subscriber.name}: {note}")
    if quiet:
        return
    say_start(f"udpfast: {subscriber.name} at {subscriber.directory}")
    bypass = subscriber.bypass
    if bypass and bypass.stack != "none" and not bypass.missing:
        say_start(f"udpfast: {subscriber.name}: bypass {bypass.text}")
    print_environment()


def _keep_going(subscriber: Subscriber, service: Service, stopping: Stop) -> BaseException | None:
    """Watch the feed until it is stopped (None), or ends for good: by what."""

    def say(sentence: str) -> None:
        say_warning(f"udpfast: {subscriber.name}: {sentence}")

    keeper = FeedKeeper(subscriber, say)
    lines = SilentLines(realtime_ns())
    stalls = Stalls()
    said: dict[str, str] = {}
    while not stopping.wait(LOOK_S):
        now_ns = monotonic_ns()
        failure = keeper.look(now_ns)
        for event in subscriber.take_events():
            say(event)
        if failure is not None:
            return failure
        if service.status_due(now_ns):
            values = subscriber.counters()
            unix_ns = realtime_ns()
            for sentence in lines.look(values, unix_ns, subscriber.address_counters()):
                say(sentence)
            silent = lines.describe(values, unix_ns)
            service.status("; ".join([_status(subscriber, values), *silent]))
            for sentence in stalls.look(values, now_ns):
                say(sentence)
            say_removed(subscriber, said)
            _say_limits(subscriber.name, feed_counts(values), said)
        # A sign of life is a turn of the feed's loop, or that it waits for its lines.
        service.alive(now_ns, None if keeper.waiting else subscriber.agents[0].cycles)
    for event in subscriber.take_events():
        say(event)
    return None


def _say_limits(name: str, feed: dict[str, int], said: dict[str, str]) -> None:
    # Once, when it begins: `stat` has the count as it grows.
    for limit, reached in reached_limits(feed).items():
        if limit not in said:
            said[limit] = reached
            say_warning(f"udpfast: {name}: FULL: {reached}")


def say_removed(subscriber: Subscriber, said: dict[str, str]) -> None:
    """Say once that files of a feed that runs were removed: it goes on, but nobody finds it.

    And once that they were put back, if they were.
    """
    # The records of a store, and their names, lie in its own directory.
    files = ("counters", "names", "ring") if subscriber.config.output == "ring" else ("counters",)
    missing = [name for name in files if not (subscriber.directory / name).exists()]
    if not missing and said.pop("removed", ""):
        forget_run(subscriber.name)
        say_warning(f"udpfast: {subscriber.name}: its files are there again: it can be found")
    if missing and "removed" not in said:
        said["removed"] = (
            f"{' and '.join(missing)} in {subscriber.directory} were removed while the feed runs: "
            f"{'its readers end, and ' if 'ring' in missing else ''}no tool or strategy finds it "
            f"any more until it is started again. {shared_memory_removal()}".rstrip()
        )
        say_warning(f"udpfast: {subscriber.name}: {said['removed']}")
        note_run(subscriber.name, "removed", said["removed"])


def _status(subscriber: Subscriber, values: dict[str, dict[str, int]]) -> str:
    feed, *companions = subscriber.agents
    counted = values["feed"]["records"]
    readers = len(list_readers(subscriber.directory))
    parts = [f"{feed.state.name.lower()}, {counted:,} records, {readers} readers"]
    parts += [
        f"{companion.name} {companion.state.name.lower()}"
        + (f" ({companion.restarts} restarts)" if companion.restarts else "")
        for companion in companions
    ]
    return "; ".join(parts)


def _with_options(
    config: FeedConfig, core: int | None, stack: str | None, library: str | None, strict: bool
) -> FeedConfig:
    if core is not None:
        config = replace(config, agent=replace(config.agent, core=core))
    bypass = config.bypass
    chosen = replace(
        bypass,
        stack=bypass.stack if stack is None else stack,
        library=bypass.library if library is None else library,
        strict=bypass.strict or strict,
    )
    if chosen.stack == "none" and (library or strict):
        raise click.UsageError("--bypass-library and --bypass-strict need --bypass or bypass.stack")
    return replace(config, bypass=chosen)
