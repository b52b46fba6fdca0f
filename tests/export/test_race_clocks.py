"""Races while clocks are set: only places and monotonic time count, never the wall clock."""

import random
from pathlib import Path

import numpy as np
import pytest

from tests.export.capture import (
    STEP_NS,
    Datagram,
    append,
    append_and_die,
    block_of,
    datagram,
    open_raw,
    raw_of,
)
from udpfast.core.layout import Kind
from udpfast.export.exporter import Exporter
from udpfast.export.manifest import read_entries
from udpfast.export.races import WAIT_NS, Races
from udpfast.export.scan import Scan
from udpfast.export.segments import Place
from udpfast.log.journal import Journal
from udpfast.log.segment import list_segments

BEGIN_NS = 1_800_000_000_000_000_000
COUNT = 1_500
NEVER = int(np.iinfo(np.int64).min)
S = 10**9


def stepped(step_s: float, first: int = 0, count: int = COUNT) -> list[Datagram]:
    """Return datagrams 20 ms apart; the wall clock is set at a third of COUNT and back at two."""
    return [
        (
            number,
            BEGIN_NS + number * STEP_NS + int(step_s * S) * (COUNT // 3 < number < COUNT * 2 // 3),
            number * STEP_NS,
        )
        for number in range(first, first + count)
    ]


def seqnos(scan: Scan, pieces: list) -> list[int]:
    """Return the numbers of the races in pieces of a raw capture."""
    return [
        seqno
        for piece in pieces
        for batch in scan.batches(piece)
        for seqno in batch.column("number").to_pylist()
    ]


@pytest.mark.parametrize("step_s", [0, 0.5, -0.5, -3, 30, -30, 3600, -3600])
def test_every_datagram_is_a_race_whoever_sets_the_clock(tmp_path: Path, step_s: float) -> None:
    journal = tmp_path / "journal"
    with open_raw(journal) as raw:
        append(raw, stepped(step_s))
    list(Exporter(journal, tmp_path / "root", tables=("races",)).run())
    entries = read_entries(tmp_path / "root")
    assert len(entries) == len(list_segments(journal / "raw")) > 2
    assert sum(entry.records for entry in entries) == COUNT
    assert not any(entry.missing for entry in entries)
    assert sum(entry.rows()["races"] for entry in entries) == COUNT
    scan = Scan(str(journal), "races")
    assert seqnos(scan, scan.pieces()) == list(range(COUNT))


@pytest.mark.parametrize("step_s", [0, -3, 30, -3600])
def test_stream_of_races_has_each_once_whoever_sets_the_clock(
    tmp_path: Path, step_s: float
) -> None:
    journal = tmp_path / "journal"
    scan = Scan(str(journal), "races")
    found: list[int] = []
    place = None

    def read() -> None:
        nonlocal place
        pieces = scan.pieces(place, streaming=True)
        found.extend(seqnos(scan, pieces))
        if pieces:
            place = Place(pieces[-1].end_position, pieces[-1].end_index, pieces[-1].journal)

    with open_raw(journal) as raw:
        for first in range(0, COUNT, 250):
            append(raw, stepped(step_s, first, 250))
            raw.sync(1)
            read()
            assert len(found) < first + 250
    read()
    assert found == list(range(COUNT))


def test_what_a_dead_writer_left_open_waits_for_the_next_one(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    append_and_die(journal, stepped(0, 0, 700))
    scan = Scan(str(journal), "races")
    assert scan.pieces(streaming=True) == []  # it did not live to seal any
    assert seqnos(scan, scan.pieces()) == list(range(700))  # who reads once has them all
    with open_raw(journal) as raw:
        append(raw, stepped(0, 700, 100))
    assert seqnos(scan, scan.pieces(streaming=True)) == list(range(800))


def races_of(entries: list[tuple[int, Kind, int, int, bytes]]) -> list[tuple[int, list[int]]]:
    """Return the number of each race, and the delays of two lines."""
    races = Races(0, 1 << 40)
    races.add(block_of(entries))
    return [(int(race["number"]), race["delays_ns"][:2].tolist()) for race in races.take()]


def test_clock_that_is_set_between_two_copies_invents_no_lead() -> None:
    for step_ns in (-3600 * S, 30 * S):
        entries = [(0, Kind.DATAGRAM, 0, 0, datagram(5, 0))]
        entries += [(1, Kind.DATAGRAM, step_ns, 2000, datagram(5, 2000))]
        assert races_of(entries) == [(5, [0, 2000])]


def test_same_numbers_beyond_a_second_or_behind_a_restart_are_another_race() -> None:
    later = WAIT_NS + 1
    once = [(0, Kind.DATAGRAM, 0, 0, datagram(5, 0))]
    for between, again_ns in (([], later), ([(0, Kind.RESTART, 0, 0, bytes(16))], 1000)):
        again = [
            (1, Kind.DATAGRAM, again_ns, again_ns, datagram(5, again_ns)),
            (0, Kind.DATAGRAM, again_ns + 7, again_ns + 7, datagram(5, again_ns + 7)),
        ]
        assert races_of(once + between + again) == [(5, [0, NEVER]), (5, [7, 0])]


def test_message_that_comes_again_is_completed_again() -> None:
    races = Races(0, 1 << 40)
    times = (0, 1000, 2 * S, 2 * S + 1000)
    entries = [
        (0, Kind.DATAGRAM, at, at, datagram(5, at, 512 if i % 2 == 0 else 9, i % 2, 1))
        for i, at in enumerate(times)
    ]
    races.add(block_of(entries))
    assert races.take()["completed"].tolist() == [0, 1, 0, 1]


def repeated(times: list[tuple[int, float]]) -> list[tuple[int, Kind, int, int, bytes]]:
    """Return copies of one datagram, by line and time in seconds."""
    found = []
    for line, at_s in times:
        at_ns = round(at_s * S)
        found.append((line, Kind.DATAGRAM, at_ns, at_ns, datagram(5, at_ns)))
    return found


def test_second_begins_with_the_first_copy_however_often_a_line_repeats_it() -> None:
    found = races_of(repeated([(0, 0), (0, 0.9), (1, 1.8), (0, 2.7)]))
    assert found == [(5, [0, NEVER]), (5, [900_000_000, 0])]
    assert races_of(repeated([(0, 0), (1, 1.0)])) == [(5, [0, S])]
    assert races_of(repeated([(0, 0), (1, 1.0 + 1e-9)])) == [(5, [0, NEVER]), (5, [NEVER, 0])]


@pytest.mark.parametrize("seed", range(6))
def test_races_are_the_same_wherever_segments_end(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    copies = sorted(
        (chance.random() * 12, chance.randrange(2), chance.randrange(4)) for _ in range(300)
    )
    found = []
    for size in (1 << 18, 1 << 22):
        journal = tmp_path / f"{size}"
        with Journal.open(raw_of(journal), name="raced", segment_bytes=size) as raw:
            for at_s, line, seqno in copies:
                at_ns = round(at_s * S)
                content = datagram(seqno, at_ns, 9_000)
                times = {"received_ns": BEGIN_NS + at_ns, "published_ns": BEGIN_NS + at_ns}
                raw.append(Kind.DATAGRAM, content, line=line, **times)
        scan = Scan(str(journal), "races")
        found.append(
            [
                (row["number"], row["winner"], row["received_ns"], row["delays_ns"])
                for piece in scan.pieces()
                for batch in scan.batches(piece)
                for row in batch.to_pylist()
            ]
        )
    assert len(list_segments(tmp_path / f"{1 << 18}" / "raw")) > 5
    assert found[0] == found[1]
