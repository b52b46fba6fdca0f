"""Replay of a journal's records: a summary of them, or a ring that has them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from udpfast.agents.feed.replay_source import ClockSteps, Place, end_now, said_missed
from udpfast.agents.feed.republisher import Republisher
from udpfast.archive.feed_settings import read_feed
from udpfast.cli.replay_output import Output
from udpfast.cli.replay_progress import Progress
from udpfast.cli.replay_target import Pacer
from udpfast.client.reader import Reader
from udpfast.config import RingConfig
from udpfast.log.journal_cursor import JournalCursor
from udpfast.log.record_hash import RecordHash
from udpfast.market.updates import LAYOUTS
from udpfast.shm.instance import instance_directory

__all__ = ["replay_records"]

BATCH = 4096
#: Records that are published together, at most.
STEP = 256


def replay_records(
    journal: Path,
    target: str,
    pacer: Pacer,
    start: Place | None,
    end: Place | None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Read a journal's records, or publish them in a ring; return what they are."""
    end = end or end_now(journal)
    if not target:
        return _read(journal, start, end, progress)
    feed = read_feed(journal)
    ring = RingConfig() if feed is None else feed.ring
    directory = instance_directory(target.removeprefix("ring:"), create=True)
    republisher = Republisher(directory, ring.capacity_bytes)
    try:
        if progress is not None:
            progress.publish(directory, counted=False)
        with JournalCursor.attach(
            journal,
            start or "begin",
            end,
            follow=False,
            limit=BATCH,
            layouts=LAYOUTS,
        ) as cursor:
            return _publish(cursor, republisher, pacer)
    finally:
        republisher.close()


def _publish(cursor: JournalCursor, republisher: Republisher, pacer: Pacer) -> dict[str, Any]:
    content, clock = RecordHash(), ClockSteps()
    missed = latest_ns = 0
    while not cursor.ended:
        count = cursor.poll()
        headers = cursor.headers[:count]
        if cursor.missed:
            republisher.say_missed(cursor.missed, latest_ns)
        missed += cursor.missed + said_missed(cursor, count)
        at = 0
        while at < count:
            stop = pacer.due(headers["published_ns"], at, STEP)
            republisher.take(cursor, at, stop)
            at = stop
        if count:
            latest_ns = int(headers["published_ns"][-1])
        content.add(headers, cursor.offsets, cursor.payloads)
        clock.note(headers["published_ns"])
    found = {"records": content.records, "missed": missed, "sha256": content.hexdigest()}
    return found | clock.result()


def _read(
    journal: Path, start: Place | None, end: Place | None, progress: Progress | None
) -> dict[str, Any]:
    output = Output()
    with Reader(f"journal:{journal.resolve()}", start=start, end=end) as reader:
        output.begin(reader)
        output.read_journal(progress)
    return output.result() | {"missed": output.missed} | output.clock.result()
