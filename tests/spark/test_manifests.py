"""What an export's manifest says of what the export cannot say, wherever it lies; without Spark."""

import shutil
from pathlib import Path

import pytest

from tests.export.market import make_journal
from udpfast.cli.spark import Losses, export_journal
from udpfast.export.exporter import Exporter
from udpfast.export.segments import journal_head
from udpfast.log.segment import segment_path
from udpfast.spark.manifests import manifest_doubts


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_journal(tmp_path_factory.mktemp("market"), 2)


@pytest.fixture(params=["{}", "file://{}"], ids=["path", "uri"])
def form(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def test_whole_export_leaves_no_doubt(journal: Path, tmp_path: Path, form: str) -> None:
    list(Exporter(journal, tmp_path).run())
    assert list(manifest_doubts(form.format(tmp_path))) == []


def test_tables_that_say_what_is_missing_are_missed(
    journal: Path, tmp_path: Path, form: str
) -> None:
    list(Exporter(journal, tmp_path, tables=["messages", "gaps"]).run())
    root = form.format(tmp_path)
    assert list(manifest_doubts(root)) == [
        f"{root} was exported without events, which says what is missing: losses may be unknown."
    ]


def test_files_that_were_not_copied_are_missed(journal: Path, tmp_path: Path, form: str) -> None:
    list(Exporter(journal, tmp_path).run())
    shutil.rmtree(tmp_path / "gaps")
    (cut, *_) = (tmp_path / "levels").rglob("*.parquet")
    cut.write_bytes(cut.read_bytes()[:-1])
    root = form.format(tmp_path)
    (said,) = manifest_doubts(root)
    assert said == (
        f"{root} lacks files that its manifest lists, or has them in another size (of gaps and "
        "levels): their rows are missing."
    )


def test_export_without_a_manifest_is_in_doubt(journal: Path, tmp_path: Path, form: str) -> None:
    list(Exporter(journal, tmp_path).run())
    shutil.rmtree(tmp_path / "_manifest")
    root = form.format(tmp_path)
    assert list(manifest_doubts(root)) == [
        f"{root} has no manifest, so parts of it may be missing."
    ]


def test_journal_that_lacks_a_segment_counts_what_damage_took(
    journal: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "journal"
    shutil.copytree(journal, copy)
    for taken in (0, journal_head(copy).index):
        losses = Losses()
        root = tmp_path / f"{taken}"
        export_journal(copy, root, losses)
        assert losses.damaged == taken
        said = (
            f"{copy} has {taken:,} records in no segment any more: what they held is in no answer."
        )
        assert losses.doubts == [said][:taken]
        with segment_path(copy, 1).open("r+b") as file:
            file.write(b"\xff" * 64)


def test_records_that_damage_took_are_counted_whichever_jobs_run(
    journal: Path, tmp_path: Path, form: str
) -> None:
    copy = tmp_path / "journal"
    shutil.copytree(journal, copy)
    with segment_path(copy, 1).open("r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * 64)
    losses = Losses()
    export_journal(copy, tmp_path / "root", losses)
    root = form.format(tmp_path / "root")
    assert losses.damaged == 1
    assert list(manifest_doubts(root)) == [
        f"{root} lacks 1 record of damaged journals: what they held is in no answer."
    ]
    assert losses.doubts == list(manifest_doubts(str(tmp_path / "root")))


def test_journal_that_lacks_names_counts_the_records_that_they_are_of(
    journal: Path, tmp_path: Path, form: str
) -> None:
    copy = tmp_path / "journal"
    shutil.copytree(journal, copy)
    for path in copy.glob("*.names"):
        path.unlink()
    losses = Losses()
    export_journal(copy, tmp_path / "root", losses)
    assert losses.damaged == journal_head(copy).index
    (said,) = manifest_doubts(form.format(tmp_path / "root"))
    assert losses.doubts == list(manifest_doubts(str(tmp_path / "root")))
    assert f"lacks names of {losses.damaged:,} records" in said
