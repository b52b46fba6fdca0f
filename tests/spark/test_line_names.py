"""What lines are called in a report: as in the settings that the feed ran with."""

from pathlib import Path

from tests.export.market import make_journal
from udpfast.archive.feed_settings import write_feed
from udpfast.config import load_feed
from udpfast.export.exporter import Exporter
from udpfast.export.manifest import read_entries
from udpfast.export.segments import journal_parts
from udpfast.spark.line_names import read_lines
from udpfast.spark.shown import line_name

FEED = """
name = "market"
[[incremental.lines]]
name = "microwave"
address = "127.0.0.1:9001"
[[incremental.lines]]
name = "fibre"
address = "127.0.0.1:9002"
[[snapshot.lines]]
name = "slow"
address = "127.0.0.1:9003"
"""
NAMES = [["microwave", "fibre"], ["slow"]]


def test_lines_have_the_names_of_the_settings_in_journal_and_export(tmp_path: Path) -> None:
    journal, root = make_journal(tmp_path, 20), tmp_path / "export"
    (tmp_path / "feed.toml").write_text(FEED)
    write_feed(load_feed(tmp_path / "feed.toml"), journal)
    list(Exporter(journal, root, feed="east").run())
    assert read_lines([str(root)]) == read_lines([root.as_uri()]) == {"east": NAMES}
    assert read_entries(root)  # what an export was made of is still told by its own files alone
    (own,) = {part.name for part in journal_parts(journal)}
    assert read_lines([f"journal:{journal}"]) == {own: NAMES}


def test_lines_of_an_export_without_settings_have_numbers(tmp_path: Path) -> None:
    journal, root = make_journal(tmp_path, 20), tmp_path / "export"
    list(Exporter(journal, root).run())
    assert read_lines([str(root)]) == {}
    assert line_name({}, "east", 0, 1) == "line 1"
    names = {"east": NAMES}
    assert [line_name(names, "east", 0, line) for line in (0, 1, 2)] == [*NAMES[0], "line 2"]
    assert [line_name(names, "east", stream, 0) for stream in (1, 2)] == ["slow", "microwave"]
