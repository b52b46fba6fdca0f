"""`udpfast.h` and a feed's image: a C program joins late with the books of a Python reader."""

import os
import random
import re
import shutil
import signal
import subprocess
import textwrap
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cases import nightly
from tests.client.instance import Instance, small_image
from tests.client.test_dead_writer import die, live
from tests.client.test_image_join import ALWAYS, NEVER
from tests.client.test_image_orders import STEPS, Strategy
from tests.client.test_late_books import FeedMarket, take
from tests.client.test_orders_header import begun, said
from tests.client.test_ring_header import (
    ABSENT,
    DAMAGED,
    ENDED,
    NOT_READY,
    REFUSED,
    REMOVED,
    SANITIZED,
    STRICT,
    CReader,
    Read,
    compiler,
    levels,
    program,
    read,
)
from tests.shared import ROOT
from tests.waiting import PATIENCE_S
from udpfast import Books, Reader
from udpfast.agents.feed.image_keeper import ImageKeeper
from udpfast.core.layout import CONTROL_DTYPES, GAP, ConnectionScope, ConnectionStatus, Kind
from udpfast.log.ring import Ring
from udpfast.market.state_bytes import ENTRY_HASH
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.image import Image, ImageView, note_image

__all__ = ["program", "read"]  # fixtures

OUTDATED = -37

Content = dict[tuple[str, str], tuple[bool, str]]


def content(books: Books) -> Content:
    """Return all books as they are compared; whatever a stale one holds, nobody relies on it."""
    return {
        (str(exchange), str(symbol)): (
            book.stale,
            ""
            if book.stale
            else f"{levels(book.bids())} :{levels(book.asks())}{' partial' * book.partial}",
        )
        for (exchange, symbol), book in books.items()
    }


def printed(lines: list[str]) -> Content:
    """Return the same from what the program prints."""
    found = {}
    for line in lines:
        if line.startswith("book "):
            head, bids, asks = line.split(" :")
            words = head.split(" name ")
            symbol, stale = words[2].rsplit(" ", 3)[:2]
            found[words[1], symbol] = (stale == "1", "" if stale == "1" else f"{bids} :{asks}")
    return found


def sound(books: Content) -> Content:
    return {name: book for name, book in books.items() if not book[0]}


def keeper_of(directory: Path, **fields: Any) -> ImageKeeper:
    keeper = ImageKeeper(small_image(**fields), directory)
    keeper.on_start()
    return keeper


@pytest.mark.parametrize("first", [0, *nightly(4, 8)])
def test_books_that_join_are_those_of_python_and_of_a_reader_who_was_there(
    read: Read, tmp_path: Path, first: int
) -> None:
    seen: Counter[bool] = Counter()
    for seed in range(first, first + 4):
        join_at_random(read, tmp_path / f"feed-{seed}", seed, seen)
    assert seen[False] > 5
    assert seen[True] > 5


def test_example_says_each_doubt_and_joins_again_after_a_lap(tmp_path: Path) -> None:
    late = tmp_path / "late"
    source = ROOT / "docs/examples/late.c"
    subprocess.run([compiler(), "-std=c11", *STRICT, "-O1", "-o", late, source], check=True)
    assert blocks_of_c()[-2] in source.read_text()
    instance = Instance(tmp_path / "feed", 1 << 16)
    keeper = keeper_of(instance.directory)
    instance.top(1.0, 2.0)
    instance.ring.flush()
    while keeper.work(ALWAYS):
        pass
    keeper.publish()
    process = subprocess.Popen([late, instance.address], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "joined before record 1\n"
    instance.append(Kind.GAP, np.array((5, 6, 2, 0, 1, 0), GAP).tobytes())
    connection = np.zeros((), CONTROL_DTYPES[Kind.CONNECTION])
    for status in (ConnectionStatus.DISCONNECTED, ConnectionStatus.READY):
        for scope in (ConnectionScope.LINE, ConnectionScope.CHANNEL):
            connection["status"], connection["scope"] = status, scope
            instance.append(Kind.CONNECTION, connection.tobytes())
    instance.ring.flush()
    assert [process.stdout.readline().rstrip() for _ in range(5)] == [
        "lost 2 messages", "line 0 is gone", "channel 0 is gone", "line 0 is back",
        "channel 0 is back",
    ]  # fmt: skip
    process.send_signal(signal.SIGSTOP)
    for _ in range(2_000):  # more than the ring holds
        instance.top(1.0, 2.0)
        keeper.work(ALWAYS)
    instance.ring.flush()
    while keeper.work(ALWAYS):
        pass
    keeper.publish()
    process.send_signal(signal.SIGCONT)
    lines = list(iter(process.stdout.readline, "joined before record 2006\n"))
    assert lines[-1].startswith("missed ")
    instance.ring.close()
    assert process.communicate(timeout=PATIENCE_S)[0] == (
        "the feed is gone\nstopped before record 2006\n"
    )


def join_at_random(read: Read, directory: Path, seed: int, seen: Counter[bool]) -> None:
    """Join a market some times; count the books by whether they were stale."""
    rng = random.Random(seed)
    market = FeedMarket(directory, seed)
    always, there = Reader(market.address, start="begin"), Books()
    keeper = keeper_of(market.instance.directory)
    late: list[CReader] = []
    for _ in range(40):
        market.go_on(restarts=False)
        while keeper.work(rng.choice([NEVER, ALWAYS])):
            pass
        take(always, there)
        expected = sound(content(there))
        for each in late[-2:]:  # they go on by the ring's own updates
            assert sound(printed(each.read())) == expected, f"seed {seed}"
        if rng.random() < 0.4:
            keeper.publish()
            late.append(read(market.address))
            joined = late[-1].read("join")
            assert joined[-1] == f"0 {always.index} "
            books = Books()
            with Reader(market.address, image=True) as reader:
                take(reader, books)
            found = content(books)
            assert printed(joined) == found, f"seed {seed}"
            assert sound(found) == expected, f"seed {seed}"
            seen.update(stale for stale, _ in found.values())
    market.close()


@pytest.mark.parametrize("first", [0, *nightly(4, 8)])
def test_objects_that_are_ahead_of_the_mark_get_no_record_twice(
    read: Read, tmp_path: Path, first: int
) -> None:
    """The keeper goes on while its image is copied: the mark is from before, objects from later."""
    seen: Counter[str] = Counter()
    for seed in range(first, first + 4):
        join_ahead(read, tmp_path / f"feed-{seed}", seed, seen)
    assert seen["joined"] > 10
    assert seen["sound"] > 5


def join_ahead(read: Read, directory: Path, seed: int, seen: Counter[str]) -> None:
    market = FeedMarket(directory, seed)
    market.abandon()
    market.instance = Instance(directory, 1 << 20)
    always, there = Reader(market.address, start="begin"), Books()
    keeper = keeper_of(directory, objects=64)  # each look at the image asks for all of them
    for _ in range(15):
        entries = []
        for _ in range(2):
            market.go_on(restarts=False)
            while keeper.work(NEVER):
                pass
            keeper.publish()
            with ImageView.attach(keeper_image(directory), ENTRY_HASH) as view:
                entries.append([view.entry(slot) for slot in range(view.slots)])
        replace_image(directory, [entries[0][0], *entries[1][1:]])
        take(always, there)
        joined = read(market.address).read("join")
        if joined[-1].startswith(f"{NOT_READY} "):
            assert "a session began while it was copied" in joined[-1]
            continue
        assert joined[-1] == f"0 {always.index} ", f"seed {seed}"
        assert sound(printed(joined)) == sound(content(there)), f"seed {seed}"
        seen["joined"] += 1
        seen["sound"] += len(sound(content(there)))
    market.close()


def keeper_image(directory: Path) -> Path:
    """Return where the keeper's own image is, also after another one took its place."""
    kept = directory / "kept"
    if not kept.exists():
        os.link(directory / "image", kept)
    return kept


def replace_image(directory: Path, entries: list[bytes | None]) -> None:
    """Put an image with these entries in the place of a feed's."""
    other = directory / "other"
    with Image.create(other, len(entries), 1 << 22, ENTRY_HASH) as image:
        for slot, entry in enumerate(entries):
            if entry is not None:
                assert image.put(slot, entry)
    other.replace(directory / "image")


def believed(line: str) -> str:
    """Return the orders of a line; of those in doubt only that they are, whatever they are."""
    return line if " 0 :" in line else line[: line.index(" 1 :") + 4]


@pytest.mark.parametrize("name", STEPS)
def test_orders_that_join_are_what_python_has(tmp_path: Path, read: Read, name: str) -> None:
    directory, steps = begun(tmp_path, name)
    keeper = keeper_of(directory, capacity_bytes=1 << 26)
    compared = 0
    for step, _ in enumerate(steps):
        while keeper.work(ALWAYS) > 0:
            pass
        if step % 60 != 7:
            continue
        keeper.publish()
        theirs = read(f"ring:{directory}", "tail", 4096)
        assert theirs.read("join")[-1].startswith("0 ")
        strategy = Strategy(directory, image=True)
        strategy.follow()
        found = {line for line in theirs.read("orders") if line.startswith("orders")}
        expected = set(said(strategy))
        assert {*map(believed, found)} == {*map(believed, expected)}, f"step {step}"
        compared += sum(" 0 :" in line for line in expected)
    assert compared > 3


# --- what is not as it should be ------------------------------------------------------------------


@pytest.fixture
def kept(instance: Instance) -> Iterator[ImageKeeper]:
    """Return the keeper of a feed with one book."""
    instance.append(Kind.SESSION, bytes(48), session=1)
    instance.book([(10.0, 1.0)], [(11.0, 1.0)])
    instance.ring.flush()
    keeper = keeper_of(instance.directory, objects=8)
    while keeper.work(ALWAYS):
        pass
    return keeper


def join(read: Read, instance: Instance) -> list[str]:
    return read(instance.address).read("join")


def test_join_without_an_image_says_so_and_the_reader_goes_on(
    read: Read, instance: Instance
) -> None:
    instance.top(1.0, 2.0)
    instance.ring.flush()
    reader = read(instance.address)
    said = reader.read("join 999999")[-1]  # at once: a feed that works says whether it keeps one
    assert said.startswith(f"{ABSENT} ")
    assert "set [image] enabled = true in the feed's file" in said
    instance.top(3.0, 4.0)
    instance.ring.flush()
    assert reader.read()[0].startswith(f"record {Kind.TOP_OF_BOOK:d} 1 ")


def test_join_waits_for_a_keeper_that_will_begin(read: Read, instance: Instance) -> None:
    note_image(instance.directory, kept=True)
    reader = read(instance.address)
    assert reader.read("join")[-1].startswith(f"{NOT_READY} ")
    made: list[ImageKeeper] = []
    keeper = threading.Timer(0.05, lambda: made.append(keeper_of(instance.directory, objects=8)))
    keeper.start()
    assert reader.read("join 999999")[-1].startswith("0 ")
    keeper.join()


def test_doubt_of_the_feed_is_that_of_the_books(
    read: Read, instance: Instance, kept: ImageKeeper
) -> None:
    assert printed(join(read, instance)) == {("binance-usdm", "BTCUSDT"): (True, "")}, (
        "nobody said that it is sound"
    )
    instance.append(Kind.RECOVERED, bytes(48), session=1, object_type=3, object_id=7)
    instance.book([(10.0, 1.0)], [(11.0, 1.0)], snapshot=True, stream=1)
    instance.ring.flush()
    assert sound(printed(join(read, instance))), "the ring behind the image says so"
    while kept.work(ALWAYS):
        pass
    gap = np.zeros((), GAP)
    gap["count"] = 1
    instance.append(Kind.GAP, gap.tobytes(), session=1)
    instance.ring.flush()
    assert not sound(printed(join(read, instance)))
    while kept.work(ALWAYS):
        pass
    assert not sound(printed(join(read, instance)))


def test_books_of_a_feed_that_ended_or_died_are_stale(
    read: Read, instance: Instance, kept: ImageKeeper
) -> None:
    instance.append(Kind.RECOVERED, bytes(48), session=1, object_type=3, object_id=7)
    instance.book([(10.0, 1.0)], [(11.0, 1.0)], snapshot=True, stream=1)
    instance.ring.flush()
    while kept.work(ALWAYS):
        pass
    assert sound(printed(join(read, instance)))
    instance.ring.close()
    reader = read(instance.address)
    joined = reader.read("join")
    assert joined[-1].startswith("0 ")
    assert printed(joined) == {("binance-usdm", "BTCUSDT"): (True, "")}
    assert reader.read()[-1].startswith(f"{ENDED} ")


def test_join_of_a_removed_instance_says_that_it_is_gone(read: Read, instance: Instance) -> None:
    instance.ring.flush()
    reader = read(instance.address)
    shutil.rmtree(instance.directory)
    code, _, said = reader.read("join")[-1].split(" ", 2)
    assert (int(code), "the instance was removed" in said) == (REMOVED, True)


def test_example_follows_two_feeds_in_order_through_a_stop_and_a_death(tmp_path: Path) -> None:
    target = tmp_path / "two_feeds"
    source = ROOT / "docs/examples/two_feeds.c"
    assert textwrap.indent(blocks_of_c()[-1], "    ") in source.read_text()
    subprocess.run([compiler(), "-std=c11", *STRICT, *SANITIZED, "-o", target, source], check=True)
    ones = [Kept(tmp_path / name) for name in ("one", "two")]
    words = [target, *(one.instance.address for one in ones)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    told = [line for _ in ones if (line := process.stdout.readline())]
    assert sorted(told) == [f"{one.instance.address} joined\n" for one in ones]

    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    for price in (1.0, 2.0, 3.0):
        for one in reversed(ones):  # the same times in both
            one.book(price)
    process.send_signal(signal.SIGCONT)
    expected = [one.line(price) for price in "123" for one in ones]
    first = process.stdout.readline()  # perhaps it had just looked into the other one in vain
    expected.remove(first)
    assert [process.stdout.readline() for _ in expected] == expected

    stopped, killed = ones
    stopped.instance.close()
    assert process.stdout.readline() == f"{stopped.instance.address} is gone\n"
    assert "the writer closed it" in process.stdout.readline()
    killed.book(4.0)
    assert process.stdout.readline() == killed.line("4")
    again = Kept(stopped.instance.directory)
    list(iter(process.stdout.readline, f"{again.instance.address} joined\n"))
    again.book(4.0)
    assert process.stdout.readline() == again.line("4")

    die(killed.instance)
    assert process.stdout.readline() == f"{killed.instance.address} is gone\n"
    again.book(5.0)
    assert process.stdout.readline() == again.line("5")
    next_one = Kept(killed.instance.directory)
    assert process.stdout.readline() == f"{next_one.instance.address} is back\n"
    next_one.book(6.0)
    list(iter(process.stdout.readline, next_one.line("6")))
    process.kill()
    assert process.communicate(timeout=PATIENCE_S)[0] == ""
    again.instance.close()
    next_one.instance.close()


def blocks_of_c() -> list[str]:
    """Return the blocks of C in docs/compiled.md."""
    return re.findall(r"```c\n(.*?)```", (ROOT / "docs/compiled.md").read_text(), re.DOTALL)


class Kept:
    """An instance with an image of one sound book."""

    def __init__(self, directory: Path) -> None:
        self.instance = Instance(directory)
        if self.instance.ring.restarted:
            self.instance.ring.announce_restart(1)
        live(self.instance)
        keeper = keeper_of(directory)
        while keeper.work(ALWAYS):
            pass
        keeper.publish()
        keeper.on_stop()

    def book(self, price: float) -> None:
        self.instance.book([(price, 1.0)], [(9.0, 1.0)], snapshot=True)
        self.instance.ring.flush()

    def line(self, price: str) -> str:
        return f"{self.instance.address} BTCUSDT {price} 9\n"


def test_image_of_an_earlier_ring_or_too_old_is_outdated(
    read: Read, instance: Instance, kept: ImageKeeper
) -> None:
    for _ in range(12_000):  # more than the ring holds
        instance.top(1.0, 2.0)
    instance.ring.flush()
    assert join(read, instance)[-1].startswith(f"{OUTDATED} ")
    assert "overwritten" in join(read, instance)[-1]
    instance.ring.close()
    (instance.directory / "ring").unlink()
    with Ring.create(instance.directory, 1 << 16, PAYLOAD_HASH):
        said = join(read, instance)[-1]
    assert said.startswith(f"{OUTDATED} ")
    assert "found that of an earlier one" in said


@pytest.mark.parametrize(("offset", "value", "code", "said"), [
    (0, b"X", REFUSED, "expected a file of udpfast, found other bytes"),
    (12, b"NAME", REFUSED, "expected kind IMAG, found 'NAME'"),
    (16, b"\1\1\1\1\1\1\1\1", REFUSED, "it is of another version of udpfast"),
    (128, b"\0" * 8, REFUSED, "expected slots that fit"),
    (128, b"\xff" * 8, REFUSED, "expected slots that fit"),
    (4096 + 8, b"\0" * 8, NOT_READY, "its keeper has not written it yet"),
    (4096, b"\xff" * 8, NOT_READY, "was replaced at each of 1000 attempts"),
    (4096 + 16, b"\xff" * 16, DAMAGED, "expected entry 0 inside"),
    (4096 + 48, b"\x08\0\0\0\0\0\0\0" * 2, DAMAGED, "expected a first entry that fits"),
    (4160 + 48, b"\x08\0\0\0\0\0\0\0" * 2, DAMAGED, "expected an object in entry 1"),
])  # fmt: skip
def test_damaged_image_is_refused_with_a_code(
    read: Read, instance: Instance, kept: ImageKeeper, offset: int, value: bytes, code: int,
    said: str,
) -> None:  # fmt: skip
    assert join(read, instance)[-1].startswith("0 ")
    with (instance.directory / "image").open("r+b") as file:
        file.seek(offset)
        file.write(value)
    found = join(read, instance)[-1]
    assert found.startswith(f"{code} "), found
    assert said in found


@pytest.mark.parametrize("seed", [0, 1, 2, *nightly(*range(3, 10))])
def test_random_bytes_in_an_image_never_lead_outside(read: Read, tmp_path: Path, seed: int) -> None:
    """The program is built with sanitizers: a read outside of its copies would end it."""
    rng = random.Random(seed)
    market = FeedMarket(tmp_path / "feed", seed)
    for _ in range(10):
        market.go_on(restarts=False)
    directory = market.instance.directory
    keeper = keeper_of(directory, objects=16)
    while keeper.work(NEVER):
        pass
    keeper.publish()
    with ImageView.attach(directory, ENTRY_HASH) as view:
        entries = [view.entry(slot) for slot in range(view.slots)]
    reader = read(market.address)
    codes: Counter[int] = Counter()
    for _ in range(30):
        broken = [bytearray(entry) for entry in entries if entry]
        for _ in range(rng.choice((1, 3, 20))):
            entry = rng.choice(broken)
            if entry:
                entry[rng.randrange(len(entry))] = rng.choice((0, 1, 0xFF, rng.randrange(256)))
            if rng.random() < 0.1:
                del entry[rng.randrange(len(entry) + 1) & ~7 :]
        replace_image(directory, [bytes(entry) for entry in broken])
        codes[int(reader.read("join")[-1].split()[0])] += 1
    assert set(codes) <= {0, NOT_READY, DAMAGED, OUTDATED}
    assert len(codes) > 1
    market.close()
