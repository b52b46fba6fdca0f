"""Stores of a bus: found without its file, read whether their daemons live or not."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.agents.test_bus_host import running, settings, stream
from tests.waiting import wait_until
from udpfast.archive.bus_files import Live, list_stores, read_description, shared_directory
from udpfast.bus.outbox import Outbox
from udpfast.cli.top_host import host_lines, store_lines
from udpfast.cli.top_words import plain
from udpfast.client.app import App
from udpfast.monitor.host import HostFacts, read_host_facts
from udpfast.monitor.stores import StoreStatus, read_store, read_stores
from udpfast.monitor.troubles import describe_troubles, store_troubles
from udpfast.net.ports import free_port
from udpfast.shm.lock import process_start


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    # Only one of the two hosts has its stores where those lie that are called by a name.
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path / "S"))


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """Return the directory of a store whose daemon has ended, and whose copy never ran."""
    store = tmp_path / "S" / "orders"
    with running(settings(tmp_path, free_port()), "S", tmp_path, begin=["orders"]) as daemon:
        wait_until(lambda: daemon.parts[0].store.end, "the store")
        with App(f"store:{store}", "algo", slots=4, capacity_bytes=1 << 16) as app:
            app.send(b"x")  # and kept, as long as the copy does not have it
            stream(app, 1)
    return store


def outbox_of(store: Path, name: str = "algo") -> Path:
    return shared_directory(store) / f"{name}.outbox"


def host_of(*stores: Path) -> HostFacts:
    facts = read_host_facts()
    assert set(facts.stores.found) | set(facts.stores.unreadable) == {str(each) for each in stores}
    return facts


def test_stores_of_all_hosts_are_found_without_their_file(tmp_path: Path) -> None:
    config = settings(tmp_path, free_port())
    assert list_stores() == []
    with running(config, "S", tmp_path) as writer, running(config, "one", tmp_path):
        expected = [tmp_path / host / "orders" for host in ("S", "one")]
        wait_until(lambda: list_stores() == expected, "both stores")
        own, copy = expected

        def copied() -> bool:
            found = read_stores(list_stores()).found
            replica = found[str(own)].consumers.get("one")
            return replica is not None and replica.connected and replica.lag_bytes == 0

        wait_until(copied, "the copy")
        found = read_stores(list_stores())
        assert found.unreadable == {}
        assert found.found[str(own)].alive and found.found[str(own)].writer
        wait_until(lambda: read_store(copy).writer_host == "S", "the copy's word")
        assert found.found[str(own)].end == writer.parts[0].store.end
    # Without shared memory, as after the host began anew, those that have a name are found.
    (tmp_path / "shm").rename(tmp_path / "gone")
    assert list_stores() == [own]
    assert (read_store(own).alive, read_store(own).ended) == (False, True)


def test_outbox_is_seen_filling_while_no_daemon_runs(left: Path) -> None:
    with App(f"store:{left}", "algo") as app:
        for _ in range(3):
            app.send(b"x")
        found = read_store(left)
        assert not found.alive
        outbox = found.outboxes["algo"]
        assert (outbox.waiting, outbox.slots, outbox.full) == (4, 4, 1.0)
        assert outbox.capacity_bytes == 1 << 16
        assert outbox.accepted == app.counts()["accepted"] == 4
        assert "outbox of algo is 100 % full" in "\n".join(describe_troubles(host_of(left)))


def replaced(key: str, value: object) -> Callable[[dict[str, Any]], bytes]:
    return lambda said: json.dumps(said | {key: value}).encode()


DAMAGES: list[Callable[[dict[str, Any]], bytes]] = [
    lambda said: b"",
    lambda said: b"{",
    lambda said: b"[1, 2]",
    lambda said: b"[" * 100_000,
    lambda said: b"\xff\xfe",
    lambda said: json.dumps({key: said[key] for key in list(said)[:5]}).encode(),
    replaced("end", "\x1b[2J"),
    replaced("end", 1.5),
    replaced("consumers", {"one": 3}),
    replaced("readers", [{"name": None}]),
]


def test_damaged_description_is_said_and_hides_nothing_else(left: Path) -> None:
    said = read_description(left)
    for damage in DAMAGES:
        (left / "bus.json").write_bytes(damage(said))
        facts = host_of(left)
        assert "bus.json" in facts.stores.unreadable[str(left)]
        assert facts.journals.found[str(left)].state == "closed"
        text = plain(host_lines(facts, {}))
        assert "bus.json" in text
        assert text.isascii() and "\x1b" not in text


def test_end_that_the_records_of_a_dead_daemon_do_not_have_is_its_word(left: Path) -> None:
    said = read_description(left)
    wait_until(lambda: not Live(left).is_alive(), "its silence")
    for end in (-8, 3, 1 << 40, 1 << 70):
        gone = said | {"ended": False, "pid_start": said["pid_start"] - 1}
        (left / "bus.json").write_bytes(replaced("end", end)(gone))
        facts = host_of(left)
        if facts.stores.found:
            assert "did not end in good order" in "\n".join(describe_troubles(facts))
        else:
            assert "bus.json" in facts.stores.unreadable[str(left)]


@pytest.mark.parametrize("before", [True, False], ids=["another ran", "the first one"])
def test_daemon_that_has_just_begun_is_not_called_dead_or_still(left: Path, before: bool) -> None:
    said = read_description(left)
    wait_until(lambda: not Live(left).is_alive(), "its silence")
    if not before:
        (left / "bus.live").unlink()
    with subprocess.Popen(["sleep", "60"]) as daemon:
        try:
            began = {"pid": daemon.pid, "pid_start": process_start(daemon.pid), "ended": False}
            (left / "bus.json").write_text(json.dumps(said | began))
            facts = host_of(left)
            store = facts.stores.found[str(left)]
            assert (store.alive, store.stuck, store.starting) == (False, False, True)
            assert describe_troubles(facts) == []
            assert f"its daemon {daemon.pid} is starting" in plain(store_lines(store))
        finally:
            daemon.kill()


def test_daemon_that_says_that_it_lives_while_it_is_looked_at_stands_not_still(
    left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = read_description(left)
    (left / "bus.json").write_bytes(replaced("ended", False)(said))
    silences = iter([5.0, *[0.0] * 9])
    monkeypatch.setattr(Live, "silent_s", lambda _live: next(silences))
    store = read_store(left)
    assert (store.alive, store.stuck, store.silent_s) == (False, True, 5.0)
    store = read_store(left)
    assert (store.alive, store.stuck, store.silent_s) == (True, False, 0.0)


def test_daemon_that_only_stands_still_is_not_called_dead(left: Path) -> None:
    said = read_description(left)
    wait_until(lambda: not Live(left).is_alive(), "its silence")
    (left / "bus.json").write_bytes(replaced("ended", False)(said))
    facts = host_of(left)
    store = facts.stores.found[str(left)]
    assert (store.alive, store.stuck, store.pid) == (False, True, os.getpid())
    (trouble,) = describe_troubles(facts)
    assert trouble.startswith(
        f"store orders on S: its daemon stands still: its process {os.getpid()} is there, and has "
        "said nothing for "
    )
    assert "STUCK" in plain(host_lines(facts, {}))
    assert f"(its daemon {os.getpid()} has stood still for " in plain(store_lines(store))


def test_what_a_copy_lacks_is_said_to_be_at_most_so_much(left: Path) -> None:
    # It may have had more than it had reported when it was killed.
    store = replace(read_store(left), alive=True, away=["one"], unprotected=4_669)
    assert any(text.startswith("up to 4,669 records are unpro") for text in store_troubles(store))


def test_damaged_live_file_and_outbox_are_said(left: Path) -> None:
    path = outbox_of(left)
    header = path.read_bytes()
    for content in (b"", header[:100], header + b"x", b"\xff" * len(header)):
        path.write_bytes(content)
        assert read_store(left).outboxes == {}
        assert "expected an outbox" in read_store(left).unreadable[path.name]
    assert any(path.name in line for line in describe_troubles(host_of(left)))
    path.unlink()
    assert read_store(left).unreadable == {}
    (left / "bus.live").write_bytes(b"x")
    assert "bus.live" in host_of(left).stores.unreadable[str(left)]
    (left / "bus.live").unlink()
    found = read_store(left)
    assert (found.alive, found.silent_s) == (False, None)


def test_store_that_others_may_write_is_refused(left: Path) -> None:
    left.chmod(0o777)
    assert "only its owner may write" in host_of(left).stores.unreadable[str(left)]


def test_names_of_senders_and_what_was_said_change_nothing_in_a_terminal(left: Path) -> None:
    evil = "\x1b]0;owned\x07\u202e\x9b31m"
    path = outbox_of(left, "evil")
    memory = bytearray(Outbox.size_bytes(4, 1 << 16))
    Outbox.create(memory, "evil", "S", 1, 4, 1 << 16)
    memory[:32] = evil.encode().ljust(32, b"\0")
    path.write_bytes(memory)
    said = read_description(left)
    said |= {"host": evil, "problem": f"{evil}\nsecond line", "said": [evil], "writer_host": evil}
    said["consumers"] = {evil: {"connected": True}}
    (left / "bus.json").write_text(json.dumps(said))
    found: StoreStatus = read_store(left)
    assert evil in found.outboxes
    for text in (plain(store_lines(found)), plain(host_lines(host_of(left), {}))):
        assert "owned" in text
        assert all(line.isprintable() for line in text.split("\n"))
        assert "\nsecond line" not in text


def test_store_that_is_removed_between_two_looks_is_said(left: Path) -> None:
    places = list_stores()
    left.rename(left.with_name("elsewhere"))
    found = read_stores(places)
    assert (found.found, list(found.unreadable)) == ({}, [str(left)])


def test_note_of_a_store_that_is_none_is_passed_over(left: Path, tmp_path: Path) -> None:
    shared = shared_directory(left)
    for content in (b"", b"\xff", b"a\0b", b"relative", b"/nowhere"):
        (shared / "store").write_bytes(content)
        assert list_stores() == [left]  # by its name
