"""`udpfast_bus.h`: a C program sends and reads the same as Python, byte by byte."""

import mmap
import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import udpfast
from tests.bus.drive import Copy, lead, register, send, sequenced
from tests.client.test_store_source import Kept
from tests.shared import ROOT
from tests.test_header import compiler
from udpfast.archive.bus_files import describe_store, shared_directory
from udpfast.bus.outbox import Outbox
from udpfast.client.app import App
from udpfast.core.layout import Kind
from udpfast.errors import ConfigError, WriterExistsError

STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{udpfast.get_include()}")
SANITIZED = ("-g", "-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
DRIVER = ROOT / "tests/client/bus_driver.c"
FULL, TOO_LARGE, SUPERSEDED, LOST, CLOSED = -1, -2, -3, -4, -5
SYSTEM, ADDRESS, NOT_READY, BY_FEED, NAME_IN_USE, PLACE = -16, -17, -18, -19, -20, -22

Run = Callable[..., "Driver"]


class Driver:
    """The program `bus_driver`, which takes one request per line."""

    def __init__(self, program: Path, *words: object) -> None:
        command = [str(program), *map(str, words)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.opened = self.line()

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().rstrip("\n")

    def ask(self, request: object = "") -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{request}\n")
        self.process.stdin.flush()

    def send(self, size: int | str) -> tuple[int, str]:
        """Send a message; return its number, or the code and the problem."""
        self.ask(size)
        number, _, problem = self.line().partition(" ")
        return int(number), problem

    def read(self) -> list[str]:
        """Return the new records."""
        self.ask()
        return list(iter(self.line, "."))

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.communicate()

    def end(self) -> None:
        """End it, unless it was killed, so that sanitizers can report errors."""
        if self.process.returncode is not None:
            return
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait() == 0


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("driver") / "driver"
    subprocess.run([compiler(), *STRICT, *SANITIZED, "-o", target, DRIVER], check=True)
    return target


@pytest.fixture
def run(program: Path) -> Iterator[Run]:
    drivers: list[Driver] = []

    def start(*words: object) -> Driver:
        drivers.append(Driver(program, *words))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.end()


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """A store whose daemon has written the files that apps need."""
    made = Kept(tmp_path / "orders")
    made.live.introduce("S", shared_directory(made.store.log.directory), by_feed=False)
    describe_store(made.store.log.directory, {"host": "S", "by_feed": False})
    made.tell()
    return made


def test_what_c_accepted_is_what_a_courier_takes(run: Run, kept: Kept) -> None:
    driver = run("send", f"store:{kept.folder}", "algo", 64, 1 << 16)
    assert driver.opened == "open"
    sizes = [0, 1, 1388, 7, 100, *([1388] * 40)]
    assert [driver.send(size)[0] for size in sizes] == list(range(1, len(sizes) + 1))
    path = shared_directory(kept.store.log.directory) / "algo.outbox"
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open("r+b") as file:
        box = Outbox(mmap.mmap(file.fileno(), 0))
    assert box.name == "algo"
    seq = sequenced(box, 10)
    found = [record for record in seq.store.log.records(0, seq.store.end) if record[4] == Kind.BUS]
    assert [len(record[64 : int.from_bytes(record[:4], "little")]) for record in found] == sizes
    for number, record in enumerate(found, 1):
        assert int.from_bytes(record[40:48], "little") == number
        assert set(record[64 : int.from_bytes(record[:4], "little")]) <= {number}
        assert struct.unpack_from("<H", record, 50) == (7,)


def test_outbox_full_and_message_too_large_are_told_apart(run: Run, kept: Kept) -> None:
    driver = run("send", f"store:{kept.folder}", "algo", 4, 4096)
    assert driver.send(1389) == (TOO_LARGE, "a message must have at most 1388 bytes, has 1389")
    assert [driver.send(10)[0] for _ in range(4)] == [1, 2, 3, 4]
    assert driver.send(10) == (
        FULL, "the outbox is full: 4 messages, 40 bytes, are on their way (at most 4 and 4096)",
    )  # fmt: skip
    by_size = run("send", f"store:{kept.folder}", "other", 64, 4096)
    assert [by_size.send(1300)[0] for _ in range(4)] == [1, 2, 3, FULL]


@pytest.mark.parametrize(("state", "code", "said"), [
    (3, SUPERSEDED, "another process has taken over the name algo: 2 accepted messages are not"),
    (4, LOST, "not all of the 0 messages of algo that were in the stream are still there"),
])  # fmt: skip
def test_outbox_that_is_over_says_why(run: Run, kept: Kept, state: int, code: int, said) -> None:
    driver = run("send", f"store:{kept.folder}", "algo", 64, 4096)
    assert [driver.send(10)[0] for _ in range(2)] == [1, 2]
    path = shared_directory(kept.store.log.directory) / "algo.outbox"
    with path.open("r+b") as file:
        file.seek(304)  # OutboxHeader.state
        file.write(state.to_bytes(4, "little"))
    number, problem = driver.send(10)
    assert number == code
    assert said in problem
    driver.kill()
    for numbers in (1, 2), (3, 4):
        again = run("anew", f"store:{kept.folder}", "algo", 64, 4096)
        assert tuple(again.send(10)[0] for _ in range(2)) == numbers
        again.kill()
    assert [each.name for each in path.parent.glob("algo.outbox*")].count("algo.outbox") == 1
    assert len(list(path.parent.glob("algo.outbox*"))) == 2


def test_c_and_python_refuse_each_other_one_name_and_go_on_in_one_outbox(
    run: Run, kept: Kept
) -> None:
    address = f"store:{kept.folder}"
    driver = run("send", address, "algo", 64, 1 << 16)
    assert [driver.send(10)[0] for _ in range(3)] == [1, 2, 3]
    with pytest.raises(WriterExistsError, match=r"another app, .*, sends as 'algo'"):
        App(address, "algo")
    second = run("send", address, "algo", 64, 1 << 16)
    assert second.opened.startswith(f"{NAME_IN_USE} ")
    driver.kill()
    with App(address, "algo") as app:
        assert app.send(b"4") == 4
        assert run("send", address, "algo", 0, 0).opened.startswith(f"{NAME_IN_USE} ")
    again = run("send", address, "algo", 0, 0)
    assert again.send(1)[0] == 5


def test_outbox_says_whether_the_daemon_takes_what_it_holds(run: Run, kept: Kept) -> None:
    driver = run("send", f"store:{kept.folder}", "c", 64, 4096)
    assert [driver.send(10)[0] for _ in range(2)] == [1, 2]
    with App(f"store:{kept.folder}", "python") as app:
        for told, taken in (
            ({}, True),
            ({"ago_ns": 1_000_000_000}, False),  # it is silent
            ({"following": False}, False),  # it does not reach the host that writes the store
            ({"ago_ns": -3_600_000_000_000}, False),  # of before this boot
            ({}, True),
        ):
            kept.tell(**told)
            assert app.alive is taken
            assert app.reader.alive is (taken or "following" in told)
            assert driver.send("alive") == (int(taken), "2")
    assert driver.send("close")[0] == CLOSED
    assert driver.send("alive") == (0, "0")


def test_program_that_closed_its_outbox_or_was_forked_sends_nothing(run: Run, kept: Kept) -> None:
    program = run("send", f"store:{kept.folder}", "algo", 0, 0)
    assert program.send(3) == (1, "")
    code, problem = program.send("fork")
    assert code == CLOSED
    assert problem.endswith(
        "a forked child cannot send, only the process that opened the outbox can"
    )
    assert program.send(3) == (2, "")
    code, problem = program.send("close")
    assert code == CLOSED
    assert problem.endswith("algo.outbox: it is closed")
    assert run("send", f"store:{kept.folder}", "algo", 0, 0).send(3) == (3, "")


def test_store_that_no_app_can_send_to_is_refused(run: Run, kept: Kept, tmp_path: Path) -> None:
    fed = Kept(tmp_path / "fed")
    fed.live.introduce("S", shared_directory(fed.store.log.directory), by_feed=True)
    fed.tell()
    for words, code, said in (
        (("orders", "a"), ADDRESS, "address must be 'store:NAME'"),
        (("store:", "a"), ADDRESS, "address must be 'store:NAME'"),
        ((f"store:{kept.folder}", "../a"), ADDRESS, "name must be 1 to 31 printable bytes"),
        ((f"store:{kept.folder}", "a\x7f"), ADDRESS, "name must be 1 to 31 printable bytes"),
        ((f"store:{kept.folder}", "a" * 32), ADDRESS, "name must be 1 to 31 printable bytes"),
        ((f"store:{tmp_path}/nothing", "a"), NOT_READY, "no bus daemon has run here"),
        ((f"store:{fed.folder}", "a"), BY_FEED, "a feed writes this store"),
    ):
        opened = run("send", *words, 0, 0).opened
        assert opened.startswith(f"{code} "), opened
        assert said in opened
    assert run("send", f"store:{kept.folder}", "a", 3, 0).opened.startswith(f"{ADDRESS} slots")
    with pytest.raises(ConfigError, match="name must be 1 to 31 printable bytes"):
        App(f"store:{kept.folder}", "../a")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a store to another user")
def test_app_of_another_user_than_the_daemons_is_refused(run: Run, kept: Kept) -> None:
    os.chown(kept.folder, 12345, -1)
    opened = run("send", f"store:{kept.folder}", "a", 0, 0).opened
    assert opened.startswith(f"{SYSTEM} send as another user than the daemon's"), opened


def test_app_with_other_memory_than_the_daemons_is_told_or_goes_there(
    run: Run, kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = shared_directory(kept.store.log.directory)
    monkeypatch.setenv("UDPFAST_SHM", os.fspath(tmp_path / "elsewhere"))
    with pytest.raises(ConfigError, match=r"UDPFAST_SHM: .*daemon's directory"):
        App(f"store:{kept.folder}", "python")
    assert run("send", f"store:{kept.folder}", "c", 64, 4096).send(1)[0] == 1
    assert (there / "c.outbox").exists()
    assert not (tmp_path / "elsewhere").exists()


def test_store_by_name_lies_where_journals_do(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UDPFAST_JOURNALS", os.fspath(tmp_path))
    Kept(tmp_path / "orders").tell()
    assert run("read", "store:orders", "oldest").opened == "open"
    monkeypatch.delenv("UDPFAST_JOURNALS")
    assert "no bus daemon" in run("read", "store:orders-that-nobody-has", "oldest").opened


def test_reader_in_c_gets_messages_over_segments(run: Run, kept: Kept) -> None:
    reader = run("read", f"store:{kept.folder}", "oldest")
    assert reader.read() == []
    seq = lead(kept.store)
    register(seq, name="algo")
    for number in range(1, 4001):
        send(seq, number)
        if number % 500 == 0:
            kept.store.log.keep()
            kept.tell()
            assert reader.read() == [f"algo {each} {each} {each}"
                                     for each in range(number - 499, number + 1)]  # fmt: skip
    assert kept.store.log.count > 1


def test_reader_in_c_that_begins_in_the_middle_knows_the_senders(run: Run, kept: Kept) -> None:
    seq = lead(kept.store)
    register(seq, name="first")
    send(seq, 1)
    register(seq, name="second", nonce=2)
    position = kept.store.end
    send(seq, 1, 2, sender=2)
    kept.tell()
    address = f"store:{kept.folder}"
    assert run("read", address, position).read() == ["second 1 1 1", "second 2 2 2"]
    tail = run("read", address, "tail")
    assert tail.read() == []
    send(seq, 3, sender=2)
    kept.tell()
    assert tail.read() == ["second 3 3 3"]
    for place in (position + 8, kept.store.end + 8):
        assert run("read", address, place).opened.startswith(f"{PLACE} no record begins at {place}")


def test_reader_in_c_sees_of_a_gated_store_what_copies_have(run: Run, tmp_path: Path) -> None:
    kept = Kept(tmp_path / "a", gate=1, standbys=("one",))
    kept.tell()
    reader = run("read", f"store:{kept.folder}", "oldest")
    seq = lead(kept.store)
    register(seq)
    send(seq, 1, 3)
    kept.tell()
    assert reader.read() == []
    kept.store.acks["one"] = (kept.store.end, kept.store.end)
    send(seq, 4)
    kept.tell()
    assert reader.read() == ["a 1 1 1", "a 2 2 2", "a 3 3 3"]


def test_reader_in_c_is_told_what_was_taken_back(run: Run, tmp_path: Path) -> None:
    kept = Kept(tmp_path / "a")
    seq = lead(kept.store)
    register(seq)
    send(seq, 1, 3)
    other = Kept(tmp_path / "b", "one", create=False)
    carry(kept, other)
    ahead = kept.store.end
    send(seq, 4, 2)
    kept.tell()
    reader = run("read", f"store:{kept.folder}", "oldest")
    assert reader.read() == [f"a {number} {number} {number}" for number in range(1, 6)]
    follows = lead(other.store, promoted=True)
    kept.store.cut(ahead)
    send(follows, 4, 1)
    carry(other, kept)
    kept.tell()
    assert reader.read() == ["ROLLBACK 2", "a 4 4 4"]


def carry(source: Kept, copy: Kept) -> None:
    link = Copy(source.store, copy.store)
    for _ in range(3):
        link.pump()
        copy.store.log.keep()
        link.work(1_000_000)


def test_reader_in_c_is_told_what_was_removed(run: Run, kept: Kept) -> None:
    seq = lead(kept.store)
    register(seq)
    send(seq, 1)
    kept.tell()
    address = f"store:{kept.folder}"
    reader = run("read", address, "oldest")
    assert reader.read() == ["a 1 1 1"]
    read = kept.store.log.end_index
    for number in range(2, 12001):
        send(seq, number)
        kept.store.log.keep()
    while kept.store.log.count > 2:
        assert kept.store.log.remove_oldest()
    missed = kept.store.log.first()[1] - read
    kept.tell(cuts=2)  # as after a restart of the daemon: what was read is not taken back by that
    found = reader.read()
    assert missed > 0
    assert found[0] == f"MISSED {missed}"
    assert found[-1] == "a 12000 12000 12000"
    oldest = kept.store.log.first()[0]
    said = f"{PLACE} start must be position {oldest} or later, the oldest that is kept, was 0"
    assert run("read", address, 0).opened == said
