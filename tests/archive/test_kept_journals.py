"""This version reads the journals of earlier ones: every field that both know."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.archive.make_kept import KEPT, said
from udpfast.cli.main import cli
from udpfast.market.updates import LAYOUTS


def unpacked(archive: Path, directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    subprocess.run(["tar", "-xf", archive, "-C", directory], check=True)
    return directory


def shared_fields(known: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name in known}


ARCHIVES = sorted(KEPT.glob("*.tar.gz"))


def test_this_version_keeps_a_journal_too() -> None:
    names = {archive.name for archive in ARCHIVES}
    assert f"{LAYOUTS.hash:016x}.tar.gz" in names, "python -m tests.archive.make_kept makes it"


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive.name[:16])
@pytest.mark.parametrize("part", [".", "raw"])
def test_kept_journal_says_what_it_said(archive: Path, part: str, tmp_path: Path) -> None:
    journal = unpacked(archive, tmp_path) / part
    expected = json.loads((KEPT / f"{archive.name[:16]}.json").read_text("utf-8"))[part]
    found = said(journal)
    assert len(found) == len(expected) > 0
    for then, now in zip(expected, found, strict=True):
        for what in ("kind", "exchange", "symbol", "bytes"):
            assert now[what] == then[what], then
        pairs = [
            (then["header"], now["header"]),
            (then.get("payload", {}), now.get("payload", {})),
            *zip(then.get("rows", []), now.get("rows", []), strict=True),
        ]
        for before, after in pairs:
            assert shared_fields(before, after) == shared_fields(after, before), then


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive.name[:16])
def test_kept_journal_is_verified_and_exported(archive: Path, tmp_path: Path) -> None:
    journal = unpacked(archive, tmp_path / "journal")
    result = CliRunner().invoke(cli, ["verify", str(journal)])
    assert result.exit_code == 0, result.output
    for options in ([], ["--follow"]):
        out = tmp_path / f"export{len(options)}"
        result = CliRunner().invoke(cli, ["export", str(journal), str(out), *options])
        assert result.exit_code == 0, result.output
    files = [sorted(out.rglob("*.parquet")) for out in tmp_path.glob("export?")]
    assert [file.name for file in files[0]] == [file.name for file in files[1]] != []
