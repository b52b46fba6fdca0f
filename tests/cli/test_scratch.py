"""The directories of commands: gone at their end, and those of killed ones at the next start."""

import os
import signal
from pathlib import Path

from udpfast.cli.scratch import scratch_directory


def killed_in(root: Path) -> Path:
    """Have a process make a directory and be killed there; return the directory."""
    before = set(root.iterdir())
    child = os.fork()
    if child == 0:
        with scratch_directory("udpfast-demo-", root) as directory:
            (directory / "ring").write_bytes(bytes(64))
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    (left,) = set(root.iterdir()) - before
    return left


def test_directory_is_gone_at_the_end(tmp_path: Path) -> None:
    with scratch_directory("udpfast-demo-", tmp_path) as directory:
        assert directory.is_dir()
        (directory / "file").write_text("x")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_command_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    with scratch_directory("udpfast-demo-", tmp_path) as living:
        others = {living}
        for name in ("udpfast-demo-by-hand", "udpfast-other-x", "demo"):
            others.add(tmp_path / name)
            (tmp_path / name).mkdir()
        (tmp_path / "udpfast-other-x" / "owner").touch()
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "owner").touch()
        (tmp_path / "udpfast-demo-link").symlink_to(outside)
        others |= {outside, tmp_path / "udpfast-demo-link"}
        left = killed_in(tmp_path)
        assert left not in others
        with scratch_directory("udpfast-demo-", tmp_path) as directory:
            assert set(tmp_path.iterdir()) == {*others, directory}
        assert (outside / "owner").exists()
