"""`udpfast bus check` refuses what `bus run` would refuse, and shows how a store is kept."""

from pathlib import Path

from click.testing import CliRunner

from udpfast.cli.main import cli

STORE = '[hosts]\nS = "127.0.0.1"\n[stores.deribit]\nsequencer = "S"\nport = 9400\n'


def check(folder: Path, more: str) -> str:
    file = folder / "bus.toml"
    file.write_text(STORE + more)
    done = CliRunner().invoke(cli, ["bus", "check", str(file)])
    return done.output + str(done.exception or "")


def test_feed_whose_file_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "stores.deribit.feed: expected the settings of a feed" in check(
        tmp_path, 'feed = "deribit.toml"\n'
    )


def test_release_of_each_store_is_shown(tmp_path: Path) -> None:
    assert "deribit: port 9400, gate 0, release disk, away_ms 5000" in check(tmp_path, "")
    assert "deribit: port 9400, gate 0, release all" in check(tmp_path, 'release = "all"\n')
