"""Stores that a group may read: daemons, apps and readers of several users; needs root."""

import os
import signal
import stat
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.waiting import PATIENCE_S, wait_until
from udpfast.agents.bus.bus_host import BusHost
from udpfast.agents.feed.feed_store import FeedStore
from udpfast.archive.bus_files import read_description, shared_directory
from udpfast.archive.store import StoreLog
from udpfast.cli.main import cli
from udpfast.client.app import App
from udpfast.client.reader import Reader
from udpfast.config import parse_feed
from udpfast.config.bus import load_bus
from udpfast.core.layout import Kind
from udpfast.errors import ConfigError, UdpfastError
from udpfast.log.journal import Journal
from udpfast.log.readers import list_readers
from udpfast.net.ports import free_port

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be other users"),
]

OWNER, MEMBER, STRANGER, GROUP = 12_340, 12_341, 12_343, 12_350
HOSTS = {"S": "127.0.0.1", "one": "127.0.0.2"}
#: Enough messages for more than two segments of 256 KiB.
MESSAGES = 600


def become(uid: int, group: int) -> None:
    """Become another user."""
    os.setgroups([group] if group else [])
    os.setgid(uid)
    os.setuid(uid)


def as_user(uid: int, group: int, what: Callable[[], object]) -> str:
    """Call a function in a process of another user; return the text of its exception, or ""."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        text = ""
        try:
            become(uid, group)
            what()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
            traceback.print_exc()
        os.write(write_end, text.encode())
        os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as pipe:  # noqa: PTH123 - a descriptor
        text = pipe.read().decode()
    os.waitpid(pid, 0)
    return text


class Bus:
    """Two hosts, each with its own roots, whose daemons belong to one user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = free_port(), free_port()
        self.daemons: dict[str, int] = {}

    def write(self, group: str) -> None:
        """Write bus.toml."""
        access = f'[access]\ngroup = "{group}"\n' if group else ""
        hosts = "".join(f'{name} = "{address}"\n' for name, address in HOSTS.items())
        (self.folder / "bus.toml").write_text(
            f"{access}[hosts]\n{hosts}"
            f'[stores.orders]\nsequencer = "S"\nreplicas = ["one"]\nport = {self.ports[0]}\n'
            "segment_bytes = 262144\n"
            f'[composites.algo]\ninputs = ["orders"]\nhost = "S"\nreplicas = ["one"]\n'
            f"port = {self.ports[1]}\n"
        )

    def roots(self, host: str) -> None:
        """Use the directories of a host in this process."""
        os.environ["UDPFAST_JOURNALS"] = str(self.folder / host / "journals")
        os.environ["UDPFAST_SHM"] = str(self.folder / host / "shm")

    def store(self, host: str) -> Path:
        return self.folder / host / "journals" / "orders"

    def start(self, *hosts: str) -> None:
        for host in hosts:
            pid = os.fork()
            if pid == 0:
                self._run(host)
                os._exit(0)
            self.daemons[host] = pid
        for host in hosts:
            for store in (self.store(host), self.store(host).parent / "algo"):
                pid = self.daemons[host]
                wait_until(lambda pid=pid, store=store: is_of(store, pid), f"{store}")

    def _run(self, host: str) -> None:
        try:
            os.umask(0)  # new files have exactly the requested mode
            become(OWNER, GROUP)
            self.roots(host)
            daemon = BusHost(load_bus(self.folder / "bus.toml"), host)
            signal.signal(signal.SIGTERM, lambda *_: daemon.stop())
            daemon.run()
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def stop(self) -> None:
        for pid in self.daemons.values():
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
        self.daemons.clear()


def is_of(store: Path, pid: int) -> bool:
    """Whether the daemon of this process has reported a store."""
    try:
        said = read_description(store)
    except FileNotFoundError:
        return False
    return bool(said["pid"] == pid and said["end"])


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bus]:
    """Return a bus whose directories other users can reach."""
    for name in ("UDPFAST_JOURNALS", "UDPFAST_SHM", "UDPFAST_TRUST"):
        monkeypatch.setenv(name, "")
    # `tmp_path` does not work: every new run of pytest takes the permissions of others away again.
    with tempfile.TemporaryDirectory(prefix="udpfast-test-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        for host in HOSTS:
            (folder / host).mkdir()
            (folder / host).chmod(0o711)
            os.chown(folder / host, OWNER, OWNER)
        made = Bus(folder)
        yield made
        made.stop()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def read_all(address: str, count: int) -> list[int]:
    """Wait for some messages, and return their numbers."""
    found: list[int] = []
    with Reader(address, start="begin", name="member") as reader:

        def enough() -> bool:
            while reader.wait(0):
                record = next(reader)
                found.extend([record.number] * (record.kind is Kind.BUS))
            return len(found) >= count

        wait_until(enough, f"{count} messages in {address}")
    return found


def send(count: int) -> None:
    with App("store:orders", "algo", slots=1024, capacity_bytes=1 << 20) as app:
        for _ in range(count):
            app.send(bytes(1000), timeout=PATIENCE_S)
        wait_until(lambda: app.counts()["freed"] == app.counts()["accepted"], "the copies")


def test_member_of_the_group_reads_stores_and_composites_on_every_host(bus: Bus) -> None:
    bus.write(str(GROUP))
    bus.start(*HOSTS)
    bus.roots("S")
    assert as_user(OWNER, GROUP, lambda: send(MESSAGES)) == ""
    os.environ["UDPFAST_TRUST"] = str(OWNER)
    for host in HOSTS:
        bus.roots(host)
        shared = shared_directory(bus.store(host))

        def read(shared: Path = shared) -> None:
            for address in ("store:orders", "composite:algo"):
                assert read_all(address, MESSAGES) == list(range(1, MESSAGES + 1))
            with Reader("store:orders", name="mine"):
                assert "mine" in [info.name for info in list_readers(shared)]

        assert as_user(MEMBER, GROUP, read) == ""
        assert len(list(bus.store(host).glob("0*.segment"))) > 2
        for directory in (bus.store(host), bus.store(host).parent / "algo"):
            assert (mode(directory), directory.stat().st_gid) == (0o2750, GROUP)
            modes = {path.name: mode(path) for path in directory.iterdir()}
            assert modes.pop("bus.lock") == 0o600
            assert {found for name, found in modes.items() if name.startswith(".")} == {0o600}
            others = {found for name, found in modes.items() if not name.startswith(".")}
            assert others == {0o640}, modes
        assert mode(shared / "readers") == 0o3770
        assert (mode(shared), mode(shared / "wake")) == (0o2750, 0o640)
        assert mode(bus.store(host).parent) == mode(shared.parent) == 0o711
    bus.roots("S")
    assert mode(shared_directory(bus.store("S")) / "algo.outbox") == 0o600


def test_who_may_read_cannot_send_and_a_stranger_cannot_read(bus: Bus) -> None:
    bus.write(str(GROUP))
    bus.start("S", "one")
    bus.roots("S")
    refused = as_user(MEMBER, GROUP, lambda: Reader("store:orders"))
    assert "RegionError" in refused and "UDPFAST_TRUST" in refused
    os.environ["UDPFAST_TRUST"] = str(OWNER)
    refused = as_user(MEMBER, GROUP, lambda: App("store:orders", "mine"))
    expected = f"expected to run as the daemon's user, {OWNER}, found {MEMBER}"
    assert f"PermissionError: [Errno 1] {expected}" in refused
    for address in ("store:orders", "composite:algo"):
        refused = as_user(STRANGER, 0, lambda address=address: Reader(address))
        assert "PermissionError" in refused
        assert "access.group" in refused
    for name in ("bus.live", "00000001.segment", "journal"):
        path = bus.store("S") / name
        refused = as_user(MEMBER, GROUP, lambda path=path: os.open(path, os.O_RDWR))
        assert "PermissionError" in refused


def test_tools_of_a_member_show_and_verify_a_store(bus: Bus) -> None:
    bus.write(str(GROUP))
    bus.start(*HOSTS)
    bus.roots("one")
    os.environ["UDPFAST_TRUST"] = str(OWNER)

    commands = [
        ["bus", "stat", str(bus.folder / "bus.toml")],
        ["verify", "store:orders"],
        ["tail", "store:orders", "--begin", "--count", "1"],
    ]

    def tools() -> None:
        for command in commands:
            done = CliRunner().invoke(cli, command)
            assert done.exit_code == 0, (done.output, done.exception)

    tools()  # as root, too, which also loads modules that others may not reach
    assert as_user(MEMBER, GROUP, tools) == ""


def test_group_that_comes_later_reads_what_is_there_and_one_that_goes_nothing(bus: Bus) -> None:
    bus.write("")
    bus.start(*HOSTS)
    bus.roots("S")
    assert as_user(OWNER, GROUP, lambda: send(MESSAGES)) == ""
    assert mode(bus.store("S")) == 0o700
    bus.stop()
    bus.write(str(GROUP))
    bus.start(*HOSTS)
    os.environ["UDPFAST_TRUST"] = str(OWNER)
    bus.roots("S")
    assert as_user(MEMBER, GROUP, lambda: read_all("store:orders", MESSAGES)) == ""
    bus.stop()
    bus.write("")
    bus.start(*HOSTS)
    bus.roots("S")
    assert mode(bus.store("S")) == mode(shared_directory(bus.store("S"))) == 0o700
    assert "PermissionError" in as_user(MEMBER, GROUP, lambda: Reader("store:orders"))


@pytest.mark.parametrize("group", ["no-such-group", "0"])
def test_group_that_is_not_there_or_not_ones_own_is_said(bus: Bus, group: str) -> None:
    bus.write(group)
    bus.roots("S")

    def start() -> None:
        BusHost(load_bus(bus.folder / "bus.toml"), "S")

    refused = as_user(OWNER, GROUP, start)
    if group == "0":
        assert "access.group: expected a group that this user belongs to, found '0'" in refused
    else:
        assert "ConfigError: access.group: expected a group, found 'no-such-group'" in refused
        assert not (bus.folder / "S" / "journals").exists()
        assert not (bus.folder / "S" / "shm").exists()


def test_records_set_aside_are_read_as_they_were(bus: Bus) -> None:
    bus.roots("S")

    def cut() -> None:
        log = StoreLog("orders", "orders", segment_bytes=1 << 18, create=True, group=str(GROUP))
        log.roll()
        log.cut(0)
        log.keep()
        log.roll()
        modes = {path.name: mode(path) for path in log.directory.glob("*segment*")}
        assert set(modes.values()) == {0o640}, modes
        assert {path.stat().st_gid for path in log.directory.iterdir()} <= {GROUP, OWNER}
        log.close()

    assert as_user(OWNER, GROUP, cut) == ""


def test_feed_has_the_group_of_its_own_settings(bus: Bus) -> None:
    bus.roots("S")
    line = {"name": "A", "address": "127.0.0.1:0"}
    tables = {"name": "feed", "output": "store", "incremental": {"lines": [line]},
              "access": {"group": str(GROUP)}}  # fmt: skip

    def keep() -> None:
        store = FeedStore(parse_feed(tables))
        assert mode(store.disk.directory) == 0o2750
        assert mode(store.disk.directory / "bus.live") == 0o640
        store.close()

    assert as_user(OWNER, GROUP, keep) == ""


def test_journal_beside_stores_of_a_group_is_its_owners_alone(bus: Bus) -> None:
    bus.roots("S")

    def record() -> None:
        StoreLog("orders", "orders", create=True, group=str(GROUP)).close()
        journal = Journal.open("feed")
        assert mode(journal.directory) == 0o700
        assert {mode(path) for path in journal.directory.iterdir()} == {0o600}
        journal.close()

    assert as_user(OWNER, GROUP, record) == ""


def test_outbox_of_another_user_does_not_end_the_daemon(bus: Bus) -> None:
    bus.write("")
    bus.start(*HOSTS)
    bus.roots("S")
    path = shared_directory(bus.store("S")) / "roots.outbox"
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    with pytest.raises((PermissionError, UdpfastError, ConfigError)):
        App(f"store:{bus.store('S')}", "roots")
    wait_until(
        lambda: "cannot open an outbox" in (bus.store("S") / "bus.json").read_text(), "the word"
    )
    assert as_user(OWNER, GROUP, lambda: send(1)) == ""
