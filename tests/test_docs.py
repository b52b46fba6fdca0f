"""The documentation says what the code says."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, get_args, get_origin

import pytest
from click.testing import CliRunner

from scripts.generate_reference import example_feed, example_publish, key_default, pages
from scripts.record_fields import column_meaning
from tests.shared import ROOT
from tests.sources import files
from udpfast import OrderBook
from udpfast.cli import check as check_module
from udpfast.config import FeedConfig, PublishConfig, Setting, describe
from udpfast.config.settings import Struct, fields_of
from udpfast.core.counter import CHANNEL_COUNTERS, FEED_COUNTERS, LINE_COUNTERS
from udpfast.core.layout import GapReason, ObjectStatus, SessionReason
from udpfast.market.tables import Column
from udpfast.wire.facts import FACTS, Heartbeat


def test_generated_tables_are_what_the_code_says():
    result = subprocess.run(
        [sys.executable, "scripts/generate_reference.py", "--check"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_no_cell_of_a_table_is_empty():
    tables = [table for page in pages().values() for table in page.values()]
    rows = [row for table in tables for row in table.splitlines()]
    assert [row for row in rows if re.search(r"\|\s*\|", row)] == []


def test_no_column_of_a_table_lacks_its_header():
    found = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        headers = re.findall(r"^(\|.*\|)\n\|[-:|]+\|$", path.read_text(encoding="utf-8"), re.M)
        found += [f"{path.name}: {header}" for header in headers if re.search(r"\|\s*\|", header)]
    assert found == []


def test_empty_cell_of_a_table_has_its_meaning_above_the_table():
    found = []
    for path in (*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))):
        prose = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
        above = ""
        for block in re.split(r"\n\s*\n|(?<=-->)\n(?=\|)", prose):
            rows = re.findall(r"^\|.*\| *\|.*$", block, re.M)
            if rows and "An empty cell means " not in above.splitlines()[-1]:
                found += [f"{path.name}: {row}" for row in rows]
            above = block
    assert found == []


def test_column_without_a_meaning_is_refused():
    assert column_meaning(Column("lost", "long", "payload.count"), ["GAP"]) == "lost messages"
    with pytest.raises(SystemExit, match="says nothing of the column 'lost'"):
        column_meaning(Column("lost", "long", "payload.lost"), ["GAP"])


def test_page_of_records_names_the_columns_that_show_a_field():
    records = pages()["records.md"]
    header, other = records["record header"], records["other records"]
    updates = records["updates"]
    for table, row in (
        (header, "| `flight_ns` | int32 | `sent_ns` |"),
        (header, "| `checksum` | uint32 | none |"),
        (updates, "| `exchange_time_utc` | int64 | `exchange_time_ns` |"),
        (updates, "| `row_count` | uint32 | `rows`, `row_count` in frames |"),
        (updates, "| `min_price` | float64 | `tick_size_steps` |"),
        (other, "| `first` | uint64 | `first_number` |"),
        (other, "| `old_id` | uint64 | `old_session` |"),
        (other, "| `flags` | uint32 | `back`, `flags` in frames |"),
    ):
        assert row in table


def test_default_of_a_key_is_what_its_file_would_say():
    for value, said in (
        (False, "`false`"),
        (None, "absent"),
        ((), "`[]`"),
        ("", '`""`'),
        (("native", "flatbuffers"), '`["native", "flatbuffers"]`'),
        (0.5, "`0.5`"),
    ):
        assert key_default(Setting("window.parity", value, True, "")) == said
    assert key_default(Setting("incremental.lines[0].name", "A", False, "")) == "required"


def keys_of(struct: type[Struct], table: str, seen: set[type[Struct]]) -> Iterator[str]:
    """Yield every key of a struct; of lists of one kind, only the first with its entries' keys."""
    for field in fields_of(struct):
        inner = field.type
        while get_origin(inner) is Annotated:
            inner = inner.__origin__
        entry = get_args(inner)[0] if get_origin(inner) is tuple else None
        if isinstance(inner, type) and issubclass(inner, Struct):
            yield from keys_of(inner, f"{table}{field.name}.", seen)
        elif isinstance(entry, type) and issubclass(entry, Struct) and entry not in seen:
            yield from keys_of(entry, f"{table}{field.name}[].", seen)
            seen.add(entry)
        else:
            yield table + field.name


@pytest.mark.parametrize(
    ("table", "struct"), [("feed keys", FeedConfig), ("publish keys", PublishConfig)]
)
def test_page_of_settings_has_every_key(table: str, struct: type[Struct]) -> None:
    listed = re.findall(r"^\| `(.*?)`", pages()["settings.md"][table], re.M)
    assert listed == list(keys_of(struct, "", set()))


def test_page_of_settings_has_the_keys_that_check_shows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(check_module, "inspect_host", lambda use: [])
    monkeypatch.setattr(check_module, "inspect_feed", lambda config: [])
    path = tmp_path / "feed.toml"
    path.write_text(
        'name = "far"\n[[incremental.lines]]\nname = "A"\naddress = "127.0.0.1:9001"\n'
        '[relay]\nenabled = true\n[[relay.lines]]\nname = "W"\nincremental = "10.0.0.1:9001"\n'
    )
    output = CliRunner().invoke(check_module.check, [str(path), "--json"]).output
    keys = {re.sub(r"\[\d+\]", "[]", key) for key in json.loads(output)["settings"]}
    page = (ROOT / "docs/settings.md").read_text()
    assert "relay.lines[].interface" in keys
    lists = {"snapshot_server.units"}  # empty in this file: the page has the keys of an entry
    assert [key for key in keys - lists if f"| `{key}` |" not in page] == []


def test_no_key_or_counter_has_the_description_of_another():
    settings = [*describe(example_feed()), *describe(example_publish())]
    described = {(setting.key.rpartition(".")[2], setting.reason) for setting in settings}
    for counters in (FEED_COUNTERS, CHANNEL_COUNTERS, LINE_COUNTERS):
        described |= {(counter.name, counter.meaning) for counter in counters}
    twice = {text: name for name, text in described}
    assert [name for name, text in described if text and twice[text] != name] == []


def test_readme_best_prices_are_unpacked_as_the_book_gives_them():
    names = re.search(r"^ *(.*) = book\.best\(\)$", (ROOT / "README.md").read_text(), re.M)
    assert names is not None
    assert len(names[1].split(", ")) == len(OrderBook().best())


def test_readme_names_every_page():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    names = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert {name for name in names if f"(docs/{name})" not in readme} == set()


def test_ranges_of_the_readme_are_those_of_the_page_of_benchmarks():
    measured = (ROOT / "README.md").read_text().partition("## Measured")[2]
    ranges = re.findall(r"\d[\d.]* to \d[\d.]* times", measured.partition("\n## ")[0])
    page = (ROOT / "docs/benchmarks.md").read_text()
    assert ranges and [each for each in ranges if each not in page] == []
    p1, p9 = ranges[0].removesuffix(" times"), ranges[2].removesuffix(" times")
    assert re.search(
        rf"range over all: P1 {p1};.*P9's p50 with stamps {p9} ", " ".join(page.split())
    )


def test_no_example_takes_a_book_behind_one_poll_for_the_newest():
    texts = {
        path: path.read_text() for path in [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/*.ipynb")]
    }
    assert [
        path.name for path, text in texts.items() if re.search(r"^books\.poll\(", text, re.M)
    ] == []


def test_page_of_shared_memory_names_every_reason_and_status_of_doubts():
    page = (ROOT / "docs/shared-memory.md").read_text()
    for kind, words in (("GAP", GapReason), ("SESSION", SessionReason), ("STALE", ObjectStatus)):
        (row,) = (
            line for line in page.splitlines() if line.startswith(f"| {kind}") and "u32" in line
        )
        for word in words:
            assert re.search(rf"\b{word.value} {word.name}\b", row), (kind, word)


def test_page_of_shared_memory_names_every_file_of_an_instance():
    text = "".join(path.read_text() for path in files("udpfast/shm", ".py", ".pyx"))
    text += (ROOT / "udpfast/agents/feed/engine.pyx").read_text()
    named = set(re.findall(r'(?:directory|path) / "(\w+)"', text))
    assert {"ring", "image", "relay"} <= named
    page = (ROOT / "docs/shared-memory.md").read_text()
    assert [name for name in named if not re.search(rf"^\| `{name}[`/]", page, re.M)] == []


def test_page_of_framings_says_of_each_what_its_facts_say():
    page = (ROOT / "docs/framings.md").read_text()
    table = page.partition("## The list")[2].partition("\n\n`udpfast/wire/facts.py`")[0]
    said = {}
    for row in table.strip().splitlines()[2:]:
        names, _, *cells, delimiter = (cell.strip() for cell in row.strip("|").split("|"))
        delimited = not delimiter.startswith(("not", "the datagram"))
        said |= dict.fromkeys(re.findall(r"`(\w+)`", names), (*cells, delimited))
    numbers = {
        Heartbeat.NONE: ("",),
        Heartbeat.NEXT: ("is the next", "lies between two numbers"),
        Heartbeat.LAST: ("is the last",),
        Heartbeat.TAKES: ("takes a number",),
    }
    assert list(said) == [each.name for each in FACTS]
    for each in FACTS:
        counted, bits, session, stream, heartbeat, delimited = said[each.name]
        assert (counted, bits) == (each.numbers.value, str(each.number_bits)), each.name
        assert (session, stream) == (each.session, each.stream), each.name
        assert heartbeat in numbers[each.heartbeat], each.name
        assert delimited == each.delimited, each.name


def test_page_for_strategies_names_what_cython_finds_in_each_module():
    page = (ROOT / "docs/compiled.md").read_text()
    rows = page.partition("| cimport from | what |\n|---|---|\n")[2].partition("\n\n")[0]
    for row in rows.splitlines():
        modules, what = row.strip("| ").split(" | ")
        declared = "".join(
            (ROOT / f"{module.replace('.', '/')}.pxd").read_text()
            for module in re.findall(r"`(udpfast\.[\w.]+)`", modules)
        )
        for name in re.findall(r"`([A-Z]\w+|[a-z]+_\w+)\b[^`]*`", what):
            assert name == "None" or re.search(rf"\b{name}", declared), (modules, name)


def test_architecture_names_who_decides() -> None:
    text = (ROOT / "docs/ARCHITECTURE.md").read_text()
    rows = text.partition("### Who decides")[2].partition("\n## ")[0]
    found = re.findall(r"`(\w+/[\w/]+)`: ((?:`\w+`(?: \([^)]*\))?(?:, )?)+)", rows)
    assert len(found) > 12
    for module, names in found:
        paths = [ROOT / "udpfast" / f"{module}{suffix}" for suffix in (".py", ".pyx", ".pxd")]
        code = "".join(path.read_text() for path in paths if path.exists())
        missing = [name for name in re.findall(r"`(\w+)`", names) if f"{name}(" not in code]
        assert not missing, (module, missing)
