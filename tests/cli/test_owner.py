"""Root mends what another user keeps: its files stay that user's, who goes on with them."""

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.test_bus_adopt import copy_in_place
from tests.shm.test_access import OWNER, as_user, needs_root
from udpfast.archive.bus_files import Live
from udpfast.cli.main import cli
from udpfast.core.layout import Kind
from udpfast.log.journal import Journal
from udpfast.log.segment import segment_path

pytestmark = needs_root


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a directory of OWNER, on whose journals root looks."""
    with tempfile.TemporaryDirectory(prefix="udpfast-test-") as name:
        path = Path(name)
        os.chown(path, OWNER, OWNER)
        monkeypatch.setenv("UDPFAST_SHM", str(path / "shm"))
        monkeypatch.setenv("UDPFAST_TRUST", str(OWNER))
        yield path


def write(directory: Path) -> None:
    """Append a record, as a recorder does."""
    with Journal.open(directory, segment_bytes=1 << 18) as journal:
        journal.append(Kind.MESSAGE, b"x" * 100)


def strangers(folder: Path) -> list[str]:
    """Return the files below a directory that are not OWNER's alone."""
    return [
        str(path)
        for path in folder.rglob("*")
        if (path.lstat().st_uid, path.lstat().st_gid) != (OWNER, OWNER)
        or (path.is_file() and stat.S_IMODE(path.lstat().st_mode) & 0o077)
    ]


@pytest.mark.parametrize("harm", ["lost", "damaged", "torn", "foreign"])
def test_journal_that_root_repaired_is_still_its_owners(folder: Path, harm: str) -> None:
    directory = folder / "journal"
    for _ in range(2):
        assert as_user(OWNER, 0, lambda: write(directory)) == ""
    if harm == "lost":
        (directory / "journal").unlink()
    elif harm == "damaged":
        with (directory / "journal").open("r+b") as file:
            file.seek(0)
            file.write(b"\xff" * 8192)
    elif harm == "torn":
        path = segment_path(directory, 2)
        with path.open("r+b") as file:
            file.seek(path.stat().st_size - 4096)
            file.write(b"\xff" * 4096)
    else:
        path = segment_path(directory, 3)
        path.write_bytes(b"none of it")
        os.chown(path, OWNER, OWNER)
        path.chmod(0o600)
    CliRunner().invoke(cli, ["verify", str(directory), "--repair"], catch_exceptions=False)
    assert strangers(folder) == []
    assert as_user(OWNER, 0, lambda: write(directory)) == ""
    assert os.geteuid() == 0


def test_store_that_root_adopted_is_still_its_owners(folder: Path) -> None:
    path = folder / "orders"

    def begin() -> None:
        (folder / "shm").mkdir(0o700)
        path.mkdir(0o700)
        Live(path, create=True)
        write(path)

    assert as_user(OWNER, 0, begin) == ""
    copy_in_place(path)
    done = CliRunner().invoke(cli, ["bus", "adopt", f"store:{path}"], catch_exceptions=False)
    assert done.exit_code == 0
    assert strangers(folder) == []
