"""A moved or restored directory of a store is refused until `udpfast bus adopt` accepts it."""

import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.agents.test_bus_host import running, settings, stream
from tests.waiting import wait_until
from udpfast.agents.bus.bus_host import BusHost
from udpfast.cli.main import cli
from udpfast.client.app import App
from udpfast.config.bus import BusConfig
from udpfast.errors import RegionError
from udpfast.log.journal_state import journal_identity
from udpfast.net.ports import free_port


def written(folder: Path, config: BusConfig, count: int = 50) -> Path:
    """Write a store on S alone, stop its daemon cleanly, and return its directory."""
    path = folder / "S" / "orders"
    with running(config, "S", folder, begin=["orders"]) as daemon:
        wait_until(lambda: daemon.parts[0].node.sequencer, "the sequencer")
        with App(f"store:{path}", "app") as app:
            for number in range(count):
                app.send(b"%d" % number)
            stream(app, count)
    return path


def copy_in_place(path: Path) -> Path:
    """Replace a directory by a copy of it, as a move to another disk does."""
    original = path.with_name("original")
    path.rename(original)
    subprocess.run(["cp", "-a", original, path], check=True)
    return original


def adopt(path: Path) -> str:
    done = CliRunner().invoke(cli, ["bus", "adopt", f"store:{path}"])
    assert done.exit_code == 0, done.output
    return done.output


def test_directory_that_was_copied_is_refused_and_keeps_its_identity(tmp_path: Path) -> None:
    config = settings(tmp_path, free_port())
    path = written(tmp_path, config)
    copy_in_place(path)
    before = {each.name: each.read_bytes() for each in path.iterdir() if each.is_file()}
    with pytest.raises(RegionError, match=r"found a copy of it.*`udpfast bus adopt store:"):
        BusHost(config, "S", tmp_path / "S")
    after = {each.name: each.read_bytes() for each in path.iterdir() if each.is_file()}
    assert {name: data for name, data in after.items() if name in before} == before


def test_directory_that_was_adopted_continues_the_same_store(tmp_path: Path) -> None:
    config = settings(tmp_path, free_port())
    path = written(tmp_path, config)
    original = copy_in_place(path)
    known = journal_identity(original)
    said = adopt(path)
    assert "is where this host has the store now" in said
    assert "nobody writes it until you run `udpfast bus promote`" in said
    assert journal_identity(path) == known
    with running(config, "S", tmp_path) as daemon:
        assert daemon.parts[0].store.identity == known
        assert daemon.parts[0].store.log.end_index > 50


def test_backup_that_was_adopted_does_not_write_before_others_were_asked(tmp_path: Path) -> None:
    config = settings(tmp_path, free_port())
    path = written(tmp_path, config)
    shutil.copytree(path, tmp_path / "backup")
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "backup", path)
    adopt(path)
    with running(config, "S", tmp_path) as daemon:
        end = daemon.parts[0].store.end
        wait_until(lambda: daemon.parts[0].store.said, "its word")
        assert not daemon.parts[0].store.writer
        assert daemon.parts[0].store.end == end


def test_directory_that_was_renamed_goes_on_with_what_its_apps_sent(tmp_path: Path) -> None:
    config = settings(tmp_path, free_port())
    path = written(tmp_path, config)
    app = App(f"store:{path}", "app")  # its daemon does not run
    app.send(b"kept in the outbox")
    (tmp_path / "S").rename(tmp_path / "moved")
    moved = tmp_path / "moved" / "orders"
    known = journal_identity(moved)
    daemon = BusHost(config, "S", tmp_path / "moved")
    assert any("took 1 outboxes" in line for line in daemon.parts[0].store.said)
    assert daemon.parts[0].store.identity == known
    daemon.parts[0]._look(0)
    assert list(daemon.parts[0].outboxes) == ["app.outbox"]
    daemon.parts[0].end()
    app.close()


@pytest.mark.parametrize("what", ["the original", "nothing", "no address"])
def test_adopt_refuses_what_is_no_copy(tmp_path: Path, what: str) -> None:
    path = tmp_path / "S" / "orders"
    if what == "the original":
        written(tmp_path, settings(tmp_path, free_port()))
    address = f"store:{path}" if what != "no address" else "orders"
    done = CliRunner().invoke(cli, ["bus", "adopt", address])
    assert done.exit_code != 0
