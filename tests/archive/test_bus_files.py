"""Files that the daemon of a bus shares with tools and apps."""

import os
import subprocess
from pathlib import Path

import pytest

from udpfast.archive.bus_files import describe_store, read_description


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_description_is_renewed_on_a_full_disk(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none", tmp_path],
        capture_output=True, check=False,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip("may not mount")
    try:
        for turn in range(2):
            describe_store(tmp_path, {"turn": turn, "said": ["a line"] * 100})
        with (
            pytest.raises(OSError, match="No space left"),
            (tmp_path / "ballast").open("wb") as file,
        ):
            while True:
                file.write(bytes(4096))
        for turn in range(2, 7):
            describe_store(tmp_path, {"turn": turn, "said": ["a line"] * (turn % 3)})
            assert read_description(tmp_path)["turn"] == turn
            assert {path.name for path in tmp_path.iterdir()} == {
                "bus.json", "bus.json.next", "ballast"}  # fmt: skip
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)
