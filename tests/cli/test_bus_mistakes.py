"""A mistake with `udpfast bus` gives one line that explains it, and changes nothing."""

import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.agents.test_bus_host import running, settings
from tests.waiting import wait_until
from udpfast.agents.bus.bus_host import BusHost
from udpfast.archive.bus_files import shared_directory
from udpfast.cli.main import cli
from udpfast.cli.service import EXIT_TAKEN
from udpfast.client.app import App
from udpfast.config.bus import BusConfig, load_bus
from udpfast.errors import ConfigError, NotReadyError, RegionError
from udpfast.net.ports import free_port


@pytest.fixture
def ended(tmp_path: Path) -> BusConfig:
    """Return the settings of a bus whose two hosts have run below `tmp_path` and ended."""
    config = settings(tmp_path, free_port())
    with running(config, "S", tmp_path) as writer, running(config, "one", tmp_path) as other:
        wait_until(lambda: other.parts[0].store.end, "the copy")
        wait_until(lambda: other.parts[0].store.end == writer.parts[0].store.end, "all of it")
    return config


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "--host", "nine"), "expected one of three, S, one, found 'nine'"),
        (("run", "--host", "three"), "expected a host of a store or composite, found 'three'"),
        (("promote", "orders", "--host", "three"), "a host of orders (S, one), found 'three'"),
        (("promote", "order", "--host", "one"), "expected one of orders, found 'order'"),
        (("promote", "orders", "--host", "one"), "the daemon of one to run here, found none"),
    ],
)
def test_host_or_store_that_is_none_is_one_line(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    settings(tmp_path, free_port())
    file = tmp_path / "bus.toml"
    file.write_text(file.read_text().replace("[hosts]\n", '[hosts]\nthree = "127.0.0.3"\n'))
    command = ["bus", words[0], str(file), *words[1:], "--directory", str(tmp_path / "d")]
    done = CliRunner().invoke(cli, command, standalone_mode=False)
    assert said in str(done.exception)
    assert not (tmp_path / "d").exists()


def test_second_daemon_names_the_first_and_ends_as_a_second_feed_does(tmp_path: Path) -> None:
    config = settings(tmp_path, free_port())
    words = ["bus", "run", str(tmp_path / "bus.toml"), "--host", "S", "--directory"]
    with running(config, "S", tmp_path):
        path = tmp_path / "S" / "orders"
        wait_until((path / "bus.json").exists, "its word")
        done = CliRunner().invoke(cli, [*words, str(tmp_path / "S")])
    assert done.exit_code == EXIT_TAKEN
    assert done.stderr.partition(" ")[2] == (
        f"ERROR udpfast: {path}: process {os.getpid()} writes this store: only one process can\n"
    )


def test_directory_of_another_host_or_store_is_refused_and_stays(
    ended: BusConfig, tmp_path: Path
) -> None:
    path = tmp_path / "one" / "orders"
    before = content(path)
    (tmp_path / "S").rename(tmp_path / "before")
    (tmp_path / "one").rename(tmp_path / "S")
    with pytest.raises(
        ConfigError, match="expected S's copy of orders, found one's copy of orders"
    ):
        BusHost(ended, "S", tmp_path / "S")
    assert content(tmp_path / "S" / "orders") == before
    file = tmp_path / "bus.toml"
    file.write_text(file.read_text().replace("orders", "trades"))
    shutil.copytree(tmp_path / "before" / "orders", tmp_path / "before" / "trades")
    with pytest.raises(ConfigError, match="expected S's copy of trades, found S's copy of orders"):
        BusHost(load_bus(file), "S", tmp_path / "before")


@pytest.mark.parametrize("content", [b"", b"x" * 100, bytes(8192), b"\xff" * 8192])
def test_outbox_that_is_none_is_said_by_app_and_daemon(
    content: bytes, ended: BusConfig, tmp_path: Path
) -> None:
    store = tmp_path / "S" / "orders"
    outbox = shared_directory(store) / "algo.outbox"
    outbox.write_bytes(content)
    with pytest.raises(RegionError, match=r"algo\.outbox: expected an outbox, found a file that"):
        App(f"store:{store}", "algo")
    with running(ended, "S", tmp_path) as daemon:
        said = daemon.parts[0].store.said
        wait_until(lambda: any("is not a valid outbox" in line for line in said), "the word")
    assert outbox.read_bytes() == content


def test_damaged_files_are_said_or_made_anew(ended: BusConfig, tmp_path: Path) -> None:
    store = tmp_path / "S" / "orders"
    stat = ["bus", "stat", str(tmp_path / "bus.toml"), "--directory", str(tmp_path / "S")]
    for name, expected in (
        ("bus.live", "expected 4096 bytes"),
        ("bus.json", "the state of a store"),
    ):
        whole = (store / name).read_bytes()
        (store / name).write_bytes(b"{")
        done = CliRunner().invoke(cli, stat)
        (store / name).write_bytes(whole)
        assert done.exit_code == 1
        assert expected in done.output
    for name in ("bus.live", "bus.json", "bus.boot"):
        (store / name).write_bytes(b"\xff")
    (store / "00000001.segment").write_bytes((store / "00000001.segment").read_bytes()[:4096])
    with running(ended, "S", tmp_path) as daemon:
        said = daemon.parts[0].store.said
        assert any("records from position 0 on are damaged" in line for line in said), said
        wait_until(
            lambda: "waits: " in CliRunner().invoke(cli, stat).output, "what the daemon says"
        )


@pytest.mark.parametrize("address", [None, 5, "", "x", "ring:x", "store:", "store:/a\0b"])
def test_app_of_no_address_is_refused(address: object) -> None:
    with pytest.raises(ConfigError, match="address must be 'store:NAME' or 'store:/path', was "):
        App(address, "a")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", [None, 5, b"a", "", "a/b", "a\0b", "a\nb", "\x7f", "a\udc80", "a" * 32, "é" * 16]
)
def test_app_whose_name_no_sender_can_have_is_refused(name: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"name must be 1 to 31 printable bytes .*, was "):
        App(f"store:{tmp_path}", name)  # type: ignore[arg-type]


@pytest.mark.parametrize("place", ["", "nothing"])
def test_app_where_no_daemon_has_run_is_refused(place: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(NotReadyError, match=r"expected a store whose daemon .* found none"):
        App(f"store:{tmp_path / place}", "a")
