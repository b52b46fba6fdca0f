"""Damaged journals: killed writers, cut files, flipped bits, page writes that were lost.

    udpfast lab journalcheck
    udpfast lab journalcheck --corners 100 --flips 100 --seed 7

Cuts are made at every 512 bytes of the last MiB. A failure names the seed and the case.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import click

from udpfast.core.layout import Kind, LappedReason
from udpfast.errors import RegionError
from udpfast.log.journal import Journal
from udpfast.log.journal_cursor import JournalCursor
from udpfast.log.journal_state import journal_state
from udpfast.log.ring import Ring
from udpfast.log.segment import list_segments, segment_path
from udpfast.market.updates import PAYLOAD_HASH

from .journal_corners import check_clocks, check_corners, check_live_copies
from .journal_exports import check_follows, check_sources
from .journals import content, expect
from .program import program

__all__ = ["check_bit_flips", "check_cuts", "check_dropped_pages", "check_kills"]

SEGMENT = 1 << 18
RECORDS = 6000
_SECTOR = 512
_MEBIBYTE = 1 << 20
#: The ring of a recorder that is killed has room for all records that are ever written to it.
_KILL_RING = 1 << 26
_KILL_RECORDS = 800_000
_KILL_STARTING = 0.2  # of the kills hit a recorder that starts
_KILL_PATIENCE_S = 10.0
#: What is checked, how often by default, and in words.
COUNTS = {
    "corners": 10_000,
    "clocks": 1_000,
    "copies": 1_000,
    "sources": 2_000,
    "follows": 500,
    "cuts": _MEBIBYTE // _SECTOR,
    "flips": 10_000,
    "images": 1_000,
    "kills": 200,
}
WORDS = {
    "corners": "journals with damaged, lost and foreign files",
    "clocks": "journals whose clock was set",
    "copies": "copies of journals that are written, and journals begun anew",
    "sources": "damaged journals as Spark reads them, batch and stream",
    "follows": "exports of damaged journals that were followed and killed",
    "cuts": "cuts at every 512 bytes of the last MiB",
    "flips": "bit flips",
    "images": "power cuts with lost page writes",
    "kills": "kills -9 of the recorder",
}


def write(directory: Path, records: int, synced: int, as_synced: Path | None = None) -> None:
    """Make a journal as a killed writer leaves it, in a process that ends while it writes.

    Its segments are complete, but only those from before the sync are sealed. `as_synced` gets a
    copy of the files that the disk had then.
    """
    child = os.fork()
    if child:
        expect(os.waitpid(child, 0)[1] == 0, "the writer came to its end")
        return
    try:
        journal = Journal.open(directory, segment_bytes=SEGMENT)
        for number in range(records):
            journal.append(
                Kind.MESSAGE, content(number), received_ns=number, published_ns=number + 1
            )
            if number + 1 == synced:
                journal.sync(number)
                if as_synced is not None:
                    shutil.copytree(directory, as_synced)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def read(directory: Path) -> tuple[list[int], int]:
    """Return the numbers of a journal's records, and how many are reported missing.

    Every record must be one that was written, complete and in order.
    """
    numbers: list[int] = []
    with JournalCursor.attach(directory, follow=False) as cursor:
        while not cursor.ended:
            headers = cursor.headers[: cursor.poll()]
            written, places = headers["received_ns"].tolist(), headers["index"].tolist()
            for i, (number, place) in enumerate(zip(written, places, strict=True)):
                expect(cursor.payload(i) == content(number), f"record {number} is whole")
                expect(place == number, f"record {number} is in its place")
                expect(not numbers or number > numbers[-1], f"record {number} comes in order")
                numbers.append(number)
        return numbers, cursor.missed_total


def reopen(directory: Path) -> Journal:
    """Open a damaged journal for writing, as the next writer does."""
    return Journal.open(directory, segment_bytes=SEGMENT)


def _copy(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    return shutil.copytree(source, target)


def _goes_on(directory: Path, prefix: int) -> None:
    # The next writer keeps the prefix, and its records follow it.
    with reopen(directory) as journal:
        expect(journal.index == RECORDS, f"it goes on behind {RECORDS}, not {journal.index}")
        for number in range(RECORDS, RECORDS + 3):
            journal.append(Kind.MESSAGE, content(number), received_ns=number, published_ns=number)
    numbers, missed = read(directory)
    expect(numbers[:prefix] == list(range(prefix)), f"{prefix} records are kept")
    expect(numbers[-3:] == list(range(RECORDS, RECORDS + 3)), "the next writer's records follow")
    expect(len(numbers) + missed == RECORDS + 3, "the others are said to be missing")


def check_cuts(work: Path, cuts: int, seed: int) -> int:
    """Cut the last segments at multiples of 512 bytes, from the end of what was written back."""
    whole, cut = work / "whole", work / "cut"
    write(whole, RECORDS, 0)
    numbers = list_segments(whole)
    ends = _used(whole)
    total = sum(ends)
    step = max(_SECTOR, _MEBIBYTE // cuts // _SECTOR * _SECTOR)
    done = 0
    for behind in range(0, min(_MEBIBYTE, total), step):
        if done == cuts:
            break
        _copy(whole, cut)
        kept = total - behind
        for number, used in zip(numbers, ends, strict=True):
            path = segment_path(cut, number)
            if kept <= 0:
                path.unlink()
            elif kept < used:
                with path.open("r+b") as file:
                    file.truncate(kept // _SECTOR * _SECTOR)
            kept -= used
        found, missed = read(cut)
        expect(found == list(range(len(found))), f"a prefix, cut {behind} bytes")
        expect(
            len(found) + missed == RECORDS, f"the rest is said to be missing, cut {behind} bytes"
        )
        _goes_on(cut, len(found))
        done += 1
    return done


def _used(directory: Path) -> list[int]:
    # Size of each segment's file up to its last record.
    sizes = []
    for number in list_segments(directory):
        sizes.append(len(segment_path(directory, number).read_bytes().rstrip(b"\0")) + 7 & ~7)
    return sizes


def check_bit_flips(work: Path, flips: int, seed: int) -> int:
    """Flip one random bit of a journal, half of which is sealed; all records read are correct."""
    whole = work / "whole"
    write(whole, RECORDS, RECORDS // 2)
    draw = random.Random(seed)
    numbers, used = list_segments(whole), _used(whole)
    for case in range(flips):
        at = draw.randrange(len(numbers))
        path = segment_path(whole, numbers[at])
        offset, bit = draw.randrange(used[at]), draw.randrange(8)
        _flip(path, offset, bit)
        found, missed = read(whole)
        where = f"{path.name} byte {offset} bit {bit} (seed {seed}, case {case})"
        # The reader continues after the damage, and counts the missing records.
        expect(len(found) + missed == RECORDS, f"a count at {where}")
        if case % 50 == 0:
            opened = _copy(whole, work / "opened")
            with reopen(opened) as journal:
                expect(journal.index == RECORDS, f"it goes on behind what was written, {where}")
            found, missed = read(opened)
            expect(len(found) + missed == RECORDS, f"a count behind {where}")
        _flip(path, offset, bit)
    found, missed = read(whole)
    expect((found, missed) == (list(range(RECORDS)), 0), "all is as it was")
    return flips


def _flip(path: Path, offset: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


def check_dropped_pages(work: Path, images: int, seed: int) -> int:
    """Lose page writes that were not synced, as a power cut does, and write some by half."""
    draw = random.Random(seed)
    before, after, image = work / "before", work / "after", work / "image"
    for case in range(images):
        shutil.rmtree(before, ignore_errors=True)
        shutil.rmtree(after, ignore_errors=True)
        synced = draw.randrange(1, 1500)
        records = synced + draw.randrange(1, 1500)
        write(after, records, synced, before)
        position = journal_state(before).synced_position
        _copy(after, image)
        for number in list_segments(image):
            _lose_pages(segment_path(before, number), segment_path(image, number), draw)
        what = f"seed {seed}, case {case}: {synced} of {records} synced"
        found, missed = read(image)
        expect(found[:synced] == list(range(synced)), f"what was synced is there, {what}")
        expect(len(found) + missed == records, f"what was lost is said, {what}")
        with reopen(image) as journal:
            expect(journal.index == records, f"goes on behind what was written, {what}")
            expect(journal.position >= position, f"not before the synced position, {what}")
        expect(read(image) == (found, missed), f"the same records after opening, {what}")
    return images


def _lose_pages(before: Path, image: Path, draw: random.Random) -> None:
    # Each page is the old one or the new one; a new segment may be missing entirely.
    if not before.exists():
        if draw.random() < 0.3:
            image.unlink()
            return
        old = b""
    else:
        old = before.read_bytes()
    new = image.read_bytes()
    share = draw.choice((0.1, 0.5, 0.9))
    with image.open("r+b") as file:
        for at in range(0, len(new), 4096):
            if new[at : at + 4096] == old[at : at + 4096]:
                continue
            if draw.random() < share:
                torn = draw.choice((0, 0, 512, 2048))
                page = new[at : at + torn] + (old[at + torn : at + 4096] or bytes(4096 - torn))
                file.seek(at)
                file.write(page)


def check_kills(work: Path, kills: int, seed: int) -> int:
    """Kill a recorder with -9 at random moments, start it again, and lose nothing.

    Most are killed while they record, some while they start. Their ring is written meanwhile, but
    nothing in it is overwritten, so every record must be in the journal, once.
    """
    draw = random.Random(seed)
    instance, directory = work / "instance", work / "journal"
    instance.mkdir(mode=0o700)
    ring = Ring.create(instance / "ring", _KILL_RING, PAYLOAD_HASH)
    number = 0
    for case in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-m", "udpfast", "lab", "journalcheck", "--child", str(work)]
        )
        began = _progress(directory)
        starting = draw.random() < _KILL_STARTING
        until = time.monotonic() + (draw.random() * 0.3 if starting else _KILL_PATIENCE_S)
        visible = 0
        try:
            while time.monotonic() < until:
                if number < _KILL_RECORDS * (case + 1) // kills:
                    for _ in range(draw.randrange(1, 30)):
                        _publish(ring, number)
                        number += 1
                    ring.flush()
                if not starting and _progress(directory) != began:
                    starting, until = True, time.monotonic() + draw.random() * 0.05
                visible = _progress(directory)[1] if draw.random() < 0.1 else visible
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        if list_segments(directory) if directory.exists() else []:
            numbers = _recorded(directory)
            what = f"seed {seed}, kill {case}"
            expect(numbers == list(range(len(numbers))), f"every record once and in order, {what}")
            expect(len(numbers) >= visible, f"{visible} records were visible, {what}")
    ring.close()
    subprocess.run(
        [sys.executable, "-m", "udpfast", "lab", "journalcheck", "--child", str(work)], check=True
    )
    expect(_recorded(directory) == list(range(number)), f"all {number} records, seed {seed}")
    return kills


def _progress(directory: Path) -> tuple[int, int]:
    # Number of writers so far, and of records that a reader can see.
    try:
        state = journal_state(directory)
    except (FileNotFoundError, RegionError):
        return 0, 0
    return state.epoch, state.index


def _publish(ring: Ring, number: int) -> None:
    ring.append(Kind.MESSAGE, number.to_bytes(8, "little"), received_ns=number, published_ns=1)


def _recorded(directory: Path) -> list[int]:
    numbers = []
    with JournalCursor.attach(directory, follow=False, limit=65_536) as cursor:
        while not cursor.ended:
            count = cursor.poll()
            kinds = cursor.headers["kind"][:count]
            expect((kinds == Kind.MESSAGE).all(), f"no {LappedReason.READER.name} lap")
            numbers += cursor.headers["received_ns"][:count].tolist()
        expect(cursor.missed_total == 0, "nothing is missing")
    return numbers


def _child(work: Path) -> None:
    """Record until the ring is closed, or until it is killed."""
    from udpfast.agents.feed.recorder import Recorder
    from udpfast.config import RecordConfig
    from udpfast.core.agent import AgentRunner

    config = RecordConfig(
        directory=str(work / "journal"), segment_bytes=SEGMENT, sync_ms=5, idle="yield"
    )
    runner = AgentRunner(Recorder(config, work / "instance", "kills"), idle="yield")
    runner.start()
    runner.join()


CHECKS = {
    "corners": check_corners,
    "clocks": check_clocks,
    "copies": check_live_copies,
    "sources": check_sources,
    "follows": check_follows,
    "cuts": check_cuts,
    "flips": check_bit_flips,
    "images": check_dropped_pages,
    "kills": check_kills,
}


def _counts(function: Callable[..., None]) -> Callable[..., None]:
    for name in reversed(CHECKS):
        words = f"{WORDS[name]}; {COUNTS[name]} if no check is asked for."
        function = click.option(f"--{name}", type=int, help=words)(function)
    return function


@program
@_counts
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--child", type=click.Path(path_type=Path), hidden=True)
def main(seed: int, child: Path | None, **wanted: int | None) -> None:
    """Run the requested checks, or all of them in full; or be the recorder that is killed."""
    if child:
        _child(child)
        return
    if all(count is None for count in wanted.values()):
        wanted = dict(COUNTS)
    for name, check in CHECKS.items():
        count = wanted[name]
        if not count:
            continue
        with tempfile.TemporaryDirectory() as work:
            began = time.monotonic()
            done = check(Path(work), count, seed)
            click.echo(f"{done:,} {WORDS[name]}: passed in {time.monotonic() - began:.0f} s")
