"""Files that are written whole or not at all."""

from pathlib import Path

import pytest

from udpfast.shm.files import replacing


def fill(path: Path, content: bytes) -> None:
    """Write a file as a disk does that is full behind `content`, unless that ends with a stop."""
    with replacing(path) as file:
        file.write(content)
        file.flush()
        if not content.endswith(b"."):
            raise OSError(28, "No space left on device")


def test_replacing_leaves_what_was_there_and_nothing_else_if_it_fails(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    for before in (None, b"old."):
        if before is not None:
            fill(path, before)
        with pytest.raises(OSError, match="No space left"):
            fill(path, b"new")
        assert (path.read_bytes() if path.exists() else None) == before
        assert [each.name for each in tmp_path.iterdir()] == ([] if before is None else [path.name])


def test_replacing_keeps_link_and_mode_and_writes_to_a_device(tmp_path: Path) -> None:
    path, link = tmp_path / "page.html", tmp_path / "latest"
    path.write_bytes(b"old")
    path.chmod(0o640)
    link.symlink_to(path)
    fill(link, b"new.")
    assert link.is_symlink()
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new.", 0o640)
    fill(Path("/dev/null"), b"new.")
    assert Path("/dev/null").is_char_device()
