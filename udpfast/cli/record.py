"""`udpfast record`: keep what an instance publishes until a signal comes or the ring is closed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from udpfast.agents.feed.recorder import Recorder
from udpfast.cli.copy_composite import copy_composite
from udpfast.cli.options import IntRange, log_level, say_stop
from udpfast.config import RecordConfig
from udpfast.core.agent import AgentRunner
from udpfast.core.log import say_info, say_warning
from udpfast.core.stop import Stop
from udpfast.errors import ConfigError
from udpfast.log.journal_state import journal_state
from udpfast.shm.instance import instance_directory, journal_directory

__all__ = ["record"]

LOOK_S = 0.1
COMPOSITE = "composite:"


@click.command(epilog="Example: udpfast record tutorial --sync interval --full oldest")
@click.argument("name")
@click.argument("directory", required=False)
@click.option(
    "--what",
    type=click.Choice(["records", "raw", "both"]),
    default="records",
    show_default=True,
    help="What to keep: records that strategies read, every datagram as received (raw), or "
    "both. raw needs record.what in the feed's file.",
)
@click.option(
    "--segment-bytes", type=IntRange(1 << 18, 1 << 30), help="Bytes of records in one file."
)
@click.option("--segment-s", type=IntRange(min=0), help="Seconds after which a new file begins.")
@click.option(
    "--sync", type=click.Choice(["none", "interval", "batch"]), help="When to sync to the disk."
)
@click.option("--sync-ms", type=IntRange(1, 3_600_000), help="Milliseconds between two syncs.")
@click.option(
    "--full",
    type=click.Choice(["stop", "oldest", "drop"]),
    help="What to do when the disk is full.",
)
@click.option("--keep-bytes", type=IntRange(min=0), help="Bytes of disk to use at most.")
@click.option("--core", type=IntRange(min=0), help="Processor to pin the recorder to.")
@click.option(
    "--end", is_flag=True, help="Composite only: stop at its present end instead of following it."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
@log_level
def record(name: str, directory: str | None, end: bool, as_json: bool, **options: Any) -> None:
    """Record what instance NAME publishes in the journal DIRECTORY; by default the one of its name.

    NAME may be composite:NAME of a bus: its records are then copied into a journal, by default
    below its order log, where `udpfast export composite:NAME` looks for it.

    Continues where an earlier recorder ended, even if it was killed; records missed in between are
    marked in the journal as LAPPED. It ends when the feed has ended in good order; one that was
    killed is waited for. To record every run, set `enabled = true` in the table [record] of the
    feed's file, which has the same options: `udpfast run` then keeps a recorder running, and tools
    say if it does not work.
    """
    chosen = {key: value for key, value in options.items() if value is not None}
    if name.startswith("store:"):
        raise ConfigError(f"{name} needs no recording: a store is a journal already")
    if name.startswith(COMPOSITE):
        given = {key: value for key, value in chosen.items() if (key, value) != ("what", "records")}
        copied = copy_composite(name.removeprefix(COMPOSITE), directory, given, end=end)
        report(replace(RecordConfig(), directory=str(copied)), {}, as_json)
        return
    if end:
        raise ConfigError(
            "--end works only with composite:NAME: a ring has no end while it is written"
        )
    stopping = Stop()
    stopping.listen()
    config = replace(RecordConfig(), directory=directory or name, **chosen)
    recorder = Recorder(config, instance_directory(name), Path(name).name)
    runner = AgentRunner(recorder, core=config.core, idle=config.idle)
    stopping.call(runner.stop)
    runner.start()
    for recording in recorder.recordings:
        found = recording.journal.recovery
        say_info(
            f"udpfast: {recording.journal.directory}: from record {found.index:,}"
            + (f", behind {found.cut_bytes:,} bytes that were cut" if found.cut_bytes else "")
        )
        if recording.missed_before:
            say_warning(
                f"udpfast: {recording.missed_before:,} records came while no recorder ran, and are "
                "missing"
            )
        for note in found.notes:
            say_warning(f"udpfast: {note}")
    while not runner.join(LOOK_S):
        pass
    say_stop(stopping, name)
    before = {str(each.journal.directory): each.missed_before for each in recorder.recordings}
    report(config, before, as_json)


def report(config: RecordConfig, before: Mapping[str, int], as_json: bool) -> None:
    """Say what the journals hold now.

    Parameters
    ----------
    config : RecordConfig
    before : mapping of str to int
        By directory: records that were missed before this recorder began.
    as_json : bool
    """
    target = journal_directory(config.directory)
    found = {}
    for directory in [target] * (config.what != "raw") + [target / "raw"] * (
        config.what != "records"
    ):
        state = journal_state(directory)
        found[str(directory)] = {
            "records": state.index,
            "bytes": state.position,
            "synced_records": state.synced_index,
            "lapped": state.lapped,
            "missed_before": before.get(str(directory), 0),
            "dropped": state.dropped,
        }
    if as_json:
        click.echo(json.dumps(found))
        return
    for path, values in found.items():
        say_info(
            f"udpfast: {path}: {values['records']:,} records, {values['bytes']:,} bytes, "
            f"{values['synced_records']:,} records on the disk"
        )
        earlier = values["missed_before"]
        missed = {
            "came while no recorder ran": earlier,
            # The journal counts since its first recorder.
            "were overwritten before they were read": values["lapped"] - earlier,
            "found no room on the disk": values["dropped"],
        }
        for what, count in missed.items():
            if count:
                say_warning(f"udpfast: {path}: not recorded: {count:,} that {what}")
