"""Whoever looks at a feed sees what the feed itself may do, and got, not what he could have."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.waiting import PATIENCE_S
from udpfast.cli.main import cli

USER = 65_534

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root, to be other users"
    ),
]


@pytest.fixture
def feed(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the file of a feed that a user without rights runs, and that asks for too much."""
    with tempfile.TemporaryDirectory(prefix="udpfast-test-") as name:
        folder = Path(name)
        os.chown(folder, USER, USER)
        monkeypatch.setenv("UDPFAST_SHM", str(folder / "shm"))
        monkeypatch.setenv("UDPFAST_JOURNALS", str(folder / "journals"))
        monkeypatch.setenv("UDPFAST_TRUST", str(USER))
        path = folder / "feed.toml"
        path.write_text(
            f'name = "test"\nring.capacity_bytes = {1 << 22}\n'
            f"objects.collect_bytes = {1 << 20}\nreceive.rcvbuf_bytes = {1 << 30}\n"
            f'[[incremental.lines]]\nname = "A"\naddress = "239.255.12.1:{port}"\n'
            'interface = "127.0.0.1"\n'
        )
        path.chmod(0o644)
        ids = [f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        process = subprocess.Popen(
            ["setpriv", *ids, sys.executable, "-m", "udpfast", "run", str(path)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        if "test at" not in process.stdout.readline():
            pytest.skip("that user cannot reach this environment")
        yield path
        process.terminate()
        process.wait(PATIENCE_S)
        process.stdout.close()


def test_stat_as_root_names_what_the_feeds_user_lacks(feed: Path) -> None:
    done = CliRunner().invoke(cli, ["stat", "--json"])
    host = json.loads(done.output)["host"]
    assert "net.core.rmem_max" in [each["name"] for each in host["findings"]]


def test_check_as_root_judges_for_the_feed_that_runs(feed: Path) -> None:
    done = CliRunner().invoke(cli, ["check", str(feed)])
    assert f"judged for the process of test, user {USER}" in done.output
    wrong = done.output.partition("could be better")[2]
    assert "net.core.rmem_max" in wrong
    assert "incremental.A 239.255.12.1" in wrong
    assert " SO_RCVBUF " in wrong
    assert os.geteuid() == 0


def test_check_says_that_it_judges_for_who_asks_if_no_feed_runs(tmp_path: Path, port: int) -> None:
    path = tmp_path / "feed.toml"
    path.write_text(
        f'name = "nosuch"\n[[incremental.lines]]\nname = "A"\naddress = "127.0.0.1:{port}"\n'
    )
    done = CliRunner().invoke(cli, ["check", str(path)])
    assert f"judged for this user, {os.geteuid()}, as no such feed runs" in done.output
