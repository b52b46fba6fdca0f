"""A venue's books on another host: capture, feed, relay, two lossy lines, feed, as processes."""

import contextlib
import json
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from lab.conformance.books import Followed, read_set
from tests.cases import nightly
from tests.shared import shared
from tests.waiting import PATIENCE_S, wait_until
from udpfast import Books, Reader
from udpfast.core.layout import Kind
from udpfast.errors import NotReadyError
from udpfast.monitor.status import read_status
from udpfast.monitor.troubles import feed_troubles
from udpfast.net.ports import free_ports

pytestmark = pytest.mark.system

LINES = ("microwave", "fibre")


class Lossy:
    """The ways between two hosts: each of their datagrams is lost with some chance."""

    def __init__(self, targets: list[tuple[int, int]], loss: float, seed: int) -> None:
        self.loss, self.lost = loss, 0
        self._rng = random.Random(seed)
        self._ways = {}
        for port, target in targets:
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
            sock.bind(("127.0.0.1", port))
            self._ways[sock] = ("127.0.0.1", target)
        self._ending = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            while not self._ending:
                for sock in select.select(list(self._ways), [], [], 0.05)[0]:
                    datagram = sock.recv(2048)
                    if self._rng.random() < self.loss:
                        self.lost += 1
                    else:
                        out.sendto(datagram, self._ways[sock])

    def close(self) -> None:
        self._ending = True
        self._thread.join()
        for sock in self._ways:
            sock.close()


def received(name: str, line: str) -> int:
    """Return how many datagrams a line has brought to a feed."""
    return read_status(name).counters[f"incremental.{line}"]["datagrams"]


class Chain:
    """The processes, and what a reader at each end knows."""

    def __init__(self, folder: Path, loss: float, near: str = "", line: str = "") -> None:
        self.folder = folder
        self.venue, *ports = free_ports(9)
        ways = [(ports[2 * line + channel], ports[4 + 2 * line + channel])
                for line in range(2) for channel in range(2)]  # fmt: skip
        self.lossy = Lossy(ways, loss, 1)
        self.processes: dict[str, subprocess.Popen[str]] = {}
        relayed = "".join(
            f'\n[[relay.lines]]\nname = "{name}"\nincremental = "127.0.0.1:{ways[2 * i][0]}"\n'
            f'snapshot = "127.0.0.1:{ways[2 * i + 1][0]}"\n{line}'
            for i, name in enumerate(LINES)
        )
        self.write(
            "near",
            'wire = {framing = "moldudp64", payload = "itch", streams_max = 2}\n'
            "image = {enabled = true, interval_ms = 1, capacity_bytes = 1_048_576, objects = 64}\n"
            f"books.orders_max = 10_000\n{near}\n"
            f'[[streams.lines]]\nname = "A"\naddress = "127.0.0.1:{self.venue}"{relayed}',
        )
        self.write(
            "far",
            f"objects.collect_bytes = {1 << 20}\n"
            "session = {inactivity_timeout_ms = 1000, doubt_when_silent = true}\n"
            + "".join(
                f'[[{channel}.lines]]\nname = "{name}"\n'
                f'address = "127.0.0.1:{ways[2 * i + j][1]}"\n'
                for j, channel in enumerate(("incremental", "snapshot"))
                for i, name in enumerate(LINES)
            ),
        )
        self.ends: dict[str, tuple[Reader, Followed]] = {}
        self.start("far", "run")
        self.start("near", "run")
        if near:
            self.await_session()

    def await_session(self) -> None:
        """Wait until the far end hears of a relay that has begun."""
        wait_until(lambda: any(record.kind == Kind.SESSION for record in self.read()))

    def write(self, name: str, text: str) -> None:
        (self.folder / f"{name}.toml").write_text(
            f'name = "{name}"\nring = {{capacity_bytes = {1 << 22}, names = 64}}\n'
            f"window.slab_cells = 512\nobjects.max = 64\n{text}\n"
        )

    def start(self, name: str, verb: str) -> None:
        self.processes[f"{verb} {name}"] = subprocess.Popen(
            [sys.executable, "-m", "udpfast", verb, str(self.folder / f"{name}.toml")],
            text=True,
        )
        if verb == "run":
            wait_until(lambda: self._attach(name), f"the feed {name}")

    def _attach(self, name: str) -> bool:
        with contextlib.suppress(FileNotFoundError, NotReadyError):
            self.ends[name] = Reader(f"ring:{name}", start="begin"), Followed(Books())
            return True
        return False

    def kill(self, what: str, how: signal.Signals = signal.SIGKILL) -> None:
        process = self.processes.pop(what)
        process.send_signal(how)
        process.wait(PATIENCE_S)

    def send(self, capture: Path, **options: Any) -> None:
        words = [f"--{key}={value}" for key, value in options.items()]
        subprocess.run(
            [sys.executable, "-m", "udpfast", "send", str(capture), "--snapshot", "",
             "--framing", "moldudp64", "--incremental", f"127.0.0.1:{self.venue}", *words],
            check=True, capture_output=True, timeout=PATIENCE_S,
        )  # fmt: skip

    def send_some(self, datagrams: list[Any], *, anew: bool = False) -> None:
        """Send datagrams of the venue, and wait until the feed has published what they say."""
        known = 0 if anew else received("near", "A")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            for _, datagram in datagrams:
                out.sendto(datagram.payload, ("127.0.0.1", self.venue))
                time.sleep(0.0005)
        wait_until(lambda: received("near", "A") == known + len(datagrams))
        self.read()

    def old(self) -> list[Any]:
        """Take what the far end has published; return what was sound there and is not so here."""
        found = []
        reader, followed = self.ends["far"]
        while reader.lag:
            followed.take(next(reader))
            self.read_end("near")
            newest = self.books("near")
            there = self.books("far")
            found += [
                (name, there[name], newest[name])
                for name in there.keys() & newest.keys()
                if there[name] is not None and there[name] != newest[name]
            ]
        return found

    def send_set(self, folder: Path) -> None:
        """Send what a set of captures has of a feed with losses, in its order."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            for line, datagram in read_set(folder, "feed")[1]:
                if line[1] < 2:
                    out.sendto(datagram.payload, ("127.0.0.1", self.venue))
                    time.sleep(0.0005)

    def look(self) -> None:
        """Take what both feeds have published, and what the readers themselves have to say."""
        for reader, followed in self.ends.values():
            reader._look()  # type: ignore[attr-defined]
            while reader.wait(0):
                followed.take(next(reader))

    def read(self) -> list[Any]:
        """Take what both feeds have published; return the records of the far end."""
        self.read_end("near")
        return self.read_end("far")

    def read_end(self, name: str) -> list[Any]:
        reader, followed = self.ends[name]
        found = []
        while reader.lag:
            found.append(next(reader))
            followed.take(found[-1])
        return found

    def books(self, name: str) -> dict[Any, Any]:
        """Return each book's levels at one end, None if it is in doubt."""
        followed = self.ends[name][1]
        return {
            key: None
            if key not in followed.books or followed.books[key].stale
            else [{price: row[:2] for price, row in side.items()} for side in sides]
            for key, sides in followed.levels.items()
        }

    def agree(self) -> bool:
        self.read()
        near = self.books("near")
        return bool(near) and near == self.books("far")

    def close(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(PATIENCE_S)
        self.lossy.close()
        for reader, _ in self.ends.values():
            reader.close()


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Chain]]:
    """Return a function that starts the processes."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    with contextlib.ExitStack() as stack:

        def start(*arguments: Any) -> Chain:
            made = Chain(tmp_path, *arguments)
            stack.callback(made.close)
            return made

        yield start


def test_books_of_a_venue_are_equal_over_two_lossy_lines(chain: Callable[..., Chain]) -> None:
    capture = shared("venues", "books", "itch_small", "clean.pcap.gz")
    world = chain(0.01, "relay.enabled = true")
    world.send(capture, rate=2000)
    wait_until(lambda: world.agree() and world.lossy.lost > 20, "equal books")
    assert None not in world.books("near").values()
    near, far = (world.ends[name][1] for name in ("near", "far"))
    assert repr(sorted(near.tops.items())) == repr(sorted(far.tops.items()))
    status = read_status("near")
    assert [agent.name for agent in status.agents] == ["feed", "image", "relay"]
    assert status.relay is not None
    assert status.relay["relay"]["updates"] > 1000
    assert status.relay["line fibre"]["unsent"] == 0


def test_what_is_in_doubt_at_a_feed_is_in_doubt_where_it_is_relayed(
    chain: Callable[..., Chain],
) -> None:
    folder = shared("venues", "books", "itch_small")
    world = chain(0.0, "relay.enabled = true")
    world.send_set(folder)
    wait_until(lambda: world.agree() and None in world.books("near").values())
    assert read_status("near").counters["incremental"]["gaps"] > 0


def test_relay_that_is_killed_goes_on_in_a_session_of_its_own(chain: Callable[..., Chain]) -> None:
    capture = shared("venues", "books", "itch_small", "clean.pcap.gz")
    world = chain(0.01)
    world.start("near", "relay")
    world.await_session()
    world.send(capture, rate=2000)
    wait_until(world.agree)
    world.kill("relay near")
    wait_until(lambda: world.read() is not None and not any(world.books("far").values()))
    world.start("near", "relay")
    world.await_session()
    wait_until(world.agree)
    assert None not in world.books("near").values()


WIDE, THIN = "", "bits_per_s = 1_000_000"


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ("once", WIDE),
        ("feed killed", THIN),
        *nightly(
            *(("once", THIN), ("feed killed", WIDE)),
            *product(("twice", "feed anew"), (WIDE, THIN)),
        ),
    ],
)
def test_no_old_book_is_sound_behind_a_relay_that_stood_still(
    chain: Callable[..., Chain], how: str, line: str
) -> None:
    datagrams = read_set(shared("venues", "books", "itch_small"), "clean")[1]
    third = len(datagrams) // 3
    world = chain(0.0, "", line)
    world.start("near", "relay")
    world.await_session()
    world.send_some(datagrams[:third])
    wait_until(world.agree)
    relay = world.processes["relay near"]
    for first in range(third, third * (3 if how == "twice" else 2), third):
        relay.send_signal(signal.SIGSTOP)
        world.send_some(datagrams[first : first + third])
        wait_until(lambda: world.read() is not None and not any(world.books("far").values()))
        if how in ("feed anew", "feed killed"):
            world.kill("run near", signal.SIGTERM if how == "feed anew" else signal.SIGKILL)
        if how == "feed anew":
            world.ends["near"][0].close()
            world.start("near", "run")
            wait_until(lambda: read_status("near").writer_pid == world.processes["run near"].pid)
            world.ends["near"][0].close()
            world.ends["near"] = Reader("ring:near", start="begin"), Followed(Books())
            world.send_some(datagrams[: 2 * third], anew=True)
        relay.send_signal(signal.SIGCONT)
        old: list[Any] = []
        if how == "feed killed":
            told = received("far", "fibre")
            wait_until(lambda told=told: received("far", "fibre") > told + 30)
            old += world.old()
            assert not any(world.books("far").values())
        else:
            wait_until(lambda old=old: old.extend(world.old()) or world.agree())
        assert old == []


def relayed_third(chain: Callable[..., Chain]) -> tuple[Chain, list[Any], int]:
    """Return a chain that has relayed a third of a market, its datagrams, and how many that are."""
    datagrams = read_set(shared("venues", "books", "itch_small"), "clean")[1]
    third = len(datagrams) // 3
    world = chain(0.0)
    world.start("near", "relay")
    world.await_session()
    world.send_some(datagrams[:third])
    wait_until(world.agree)
    return world, datagrams, third


def test_books_of_a_feed_that_stands_still_are_in_doubt_here_and_there(
    chain: Callable[..., Chain],
) -> None:
    world, datagrams, third = relayed_third(chain)
    feed = world.processes["run near"]
    feed.send_signal(signal.SIGSTOP)
    told = received("far", "fibre")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        for _, datagram in datagrams[third : 2 * third]:
            out.sendto(datagram.payload, ("127.0.0.1", world.venue))

    def doubted() -> bool:
        world.look()
        return not any([*world.books("near").values(), *world.books("far").values()])

    wait_until(doubted, "doubt at both ends")
    assert world.ends["near"][0].state == "stuck"
    wait_until(lambda: received("far", "fibre") > told + 10)  # the relay lives all the while
    assert doubted()
    assert any("stands still" in text for text in feed_troubles("near", read_status("near")))
    feed.send_signal(signal.SIGCONT)
    old: list[Any] = []

    def sound_again() -> bool:
        world.look()
        old.extend(world.old())
        return any(world.books("near").values()) and world.agree()  # in doubt they agree, too

    wait_until(sound_again, "sound books at both ends")
    assert old == []
    assert world.ends["near"][0].state == "alive"


@pytest.mark.nightly  # a second and a half of silence, twice
def test_no_old_book_is_sound_at_a_far_end_that_stood_still(chain: Callable[..., Chain]) -> None:
    world, datagrams, third = relayed_third(chain)
    far = world.processes["run far"]
    far.send_signal(signal.SIGSTOP)
    world.send_some(datagrams[third : 2 * third])
    wait_until(lambda: world.look() or not any(world.books("far").values()), "doubt")
    far.send_signal(signal.SIGCONT)
    old: list[Any] = []

    def sound_again() -> bool:
        old.extend(world.old())
        world.look()
        return any(world.books("far").values()) and world.agree()

    wait_until(sound_again, "sound books at the far end")
    assert old == []


def test_end_of_the_feed_puts_all_in_doubt_until_the_next_one(chain: Callable[..., Chain]) -> None:
    capture = shared("venues", "books", "itch_small", "clean.pcap.gz")
    world = chain(0.0)
    world.start("near", "relay")
    world.send(capture, rate=2000)
    wait_until(world.agree)
    world.kill("run near", signal.SIGTERM)
    wait_until(lambda: world.read() is not None and not any(world.books("far").values()))
    world.ends["near"][0].close()
    world.start("near", "run")
    world.await_session()
    world.send(capture, rate=2000)
    wait_until(world.agree)


def test_relay_ends_with_what_it_counted(chain: Callable[..., Chain], tmp_path: Path) -> None:
    world = chain(0.0)
    command = [sys.executable, "-m", "udpfast", "relay", str(tmp_path / "near.toml"), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    world.await_session()
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert json.loads(output.splitlines()[-1])["relay"]["sessions"] == 1
