"""Generate the tables of the documentation from the code: counters, keys, columns and options.

Usage: python scripts/generate_reference.py [--check]

The text between `<!-- NAME -->` and `<!-- /NAME -->` is replaced; the rest is written by hand. With
--check nothing is written, and the exit code is 1 if a file is not up to date.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from scripts.record_fields import (
    column_meaning,
    control_tables,
    enumeration_tables,
    header_table,
    update_tables,
)
from udpfast.config import FeedConfig, PublishConfig, Setting, describe, parse_feed, parse_publish
from udpfast.config.bus import StoreConfig
from udpfast.config.companions import RelayConfig, RelayLine
from udpfast.config.host import HostConfig
from udpfast.config.lines import ChannelConfig, LineConfig
from udpfast.config.servers import SnapshotServerConfig, UnitServer
from udpfast.core.counter import (
    CHANNEL_COUNTERS,
    FEED_COUNTERS,
    LINE_COUNTERS,
    VERDICTS,
    CounterInfo,
)
from udpfast.export.schema import SPARK_TYPES, TABLES, Column
from udpfast.monitor.memory import feed_memory
from udpfast.spark.options import OPTIONS

DOCS = Path(__file__).parent.parent / "docs"


def counter_table(counters: Iterable[CounterInfo]) -> str:
    """Return a table of counters."""
    rows = [f"| `{info.name}` | {info.unit} | {info.meaning} |" for info in counters]
    return "\n".join(["| counter | unit | what it counts |", "|---|---|---|", *rows])


def example_feed() -> FeedConfig:
    """Return a feed with every key: one entry per kind of list, with only what it must state."""
    line = LineConfig(name="A", address="239.1.1.1:9001")
    far_end = RelayLine(name="A", incremental="239.2.1.1:9001")
    unit = UnitServer(unit=1, server="10.0.0.1:9001")
    return FeedConfig(
        name="deribit",
        incremental=ChannelConfig(lines=(line,)),
        snapshot_server=SnapshotServerConfig(units=(unit,)),
        relay=RelayConfig(lines=(far_end,)),
    )


def example_publish() -> PublishConfig:
    """Return a publisher with one destination: it has every key."""
    return parse_publish({"incremental": [{"address": "239.1.1.1:9001"}]})


def example_store() -> StoreConfig:
    """Return a store of one host."""
    return StoreConfig(sequencer="one", port=7001)


def key_rows(settings: Iterable[Setting]) -> Iterator[str]:
    """Yield one row per key."""
    for setting in settings:
        key = re.sub(r"\[\d+\]", "[]", setting.key)
        takes = setting.takes.replace("|", "\\|")
        yield f"| `{key}` | {key_default(setting)} | {takes} | {setting.meaning} |"


def key_default(setting: Setting) -> str:
    """Return the default of a key as its file would say it; an example states what is required."""
    if not setting.is_default:
        return "required"
    return "absent" if setting.value is None else f"`{json.dumps(setting.value)}`"


def key_table(settings: Iterable[Setting]) -> str:
    """Return a table of configuration keys."""
    return "\n".join(
        ["| key | default | takes | meaning |", "|---|---|---|---|", *key_rows(settings)]
    )


def column_rows(columns: Iterable[Column], kinds: Iterable[str] = ()) -> Iterator[str]:
    """Yield a table with one row per column of records of some kinds."""
    yield from ("", "| column | type | what it says |", "|---|---|---|")
    for column in columns:
        yield f"| `{column.name}` | {SPARK_TYPES[column.type]} | {column_meaning(column, kinds)} |"
    yield ""


def column_tables() -> str:
    """Return every table of an export with its columns; those of most tables once, before them."""
    counts = Counter(column for table in TABLES.values() for column in table.columns)
    common = [column for column, count in counts.items() if count > len(TABLES) / 2]
    parts = ["### Common columns", "", "Of most tables, which name those that they lack."]
    parts += column_rows(common)
    for table in TABLES.values():
        parts += [f"### {table.name}", "", f"`DIR/{table.name}`: {table.doc}"]
        own = [column for column in table.columns if column not in common]
        lacking = [f"`{column.name}`" for column in common if column not in table.columns]
        if len(lacking) > len(common) / 2:
            parts += column_rows(table.columns, table.kinds)
            continue
        but = f", but not {', '.join(lacking)}" if lacking else ""
        and_ = ", and" if own else "."
        parts += ["", f"The [common columns](#common-columns){but}{and_}"]
        parts += column_rows(own, table.kinds) if own else [""]
    return "\n".join(parts)


def option_table() -> str:
    """Return a table of the data source's options."""
    rows = [f"| `{name}` | {text} |" for name, text in OPTIONS.items()]
    return "\n".join(["| option | what it says |", "|---|---|", *rows])


def memory_table() -> str:
    """Return a table of the memory of several kinds of feeds, with two lines and the defaults."""
    kinds = [
        ("`roq`", {"framing": "roq"}),
        ("`cme_mdp3` with books", {"framing": "cme_mdp3", "payload": "cme"}),
        ("the same, 8 streams", {"framing": "cme_mdp3", "payload": "cme", "streams_max": 8}),
        ("`moldudp64` with books of `itch`", {"framing": "moldudp64", "payload": "itch"}),
        ("`moldudp64`, messages alone", {"framing": "moldudp64", "payload": "none"}),
    ]
    lines = [{"name": name, "address": f"239.1.1.1:{port}"} for name, port in (("A", 1), ("B", 2))]
    rows = []
    for kind, wire in kinds:
        memory = feed_memory(
            parse_feed({"name": "x", "incremental": {"lines": lines}, "wire": wire})
        )
        sizes = [*(memory.files[name] for name in ("ring", "slab", "names")), memory.books]
        sizes += [memory.shared, memory.shared + memory.private]
        rows.append(f"| {kind} | " + " | ".join(str(-(-size >> 20)) for size in sizes) + " |")
    head = "| feed | ring | slab | names | books | /dev/shm | altogether |"
    return "\n".join([head, "|---|---|---|---|---|---|---|", *rows])


def first_sentence(path: Path) -> str:
    """Return the first sentence of a module's docstring or leading comment; "": it has none."""
    text = path.read_text(encoding="utf-8")
    said = re.match(r'"""(.*?)"""', text, re.S)
    comment = re.match(r"((?:#.*\n)+)", text)
    if said:
        words = said[1]
    elif comment and path.suffix == ".pxd":
        words = comment[1].replace("#", " ")
    else:
        return ""
    first = re.split(r"(?<=[.])\s|\n\s*\n", words.strip())[0]
    return re.sub(r"\s+", " ", first).replace("|", "\\|")


#: Modules of a folder that has a section of its own.
SECTION_MIN = 5


def module_list() -> str:
    """Return every module by its folder, with its first sentence."""
    root = DOCS.parent / "udpfast"
    found: dict[str, dict[str, str]] = {}
    for suffix in ("pxd", "pyx", "py"):  # the sentence of the Python face takes precedence
        for path in sorted(root.rglob(f"*.{suffix}")):
            if path.stem != "__init__":
                said = found.setdefault(str(path.parent.relative_to(root.parent)), {})
                said[path.stem] = first_sentence(path) or said.get(path.stem, "")
    # A section for two modules would be mostly heading: a small folder's are in that of its parent.
    for folder in [each for each, said in found.items() if len(said) < SECTION_MIN]:
        parent, _, name = folder.rpartition("/")
        if "/" in parent and parent in found:  # packages themselves stay
            small = found.pop(folder)
            found[parent] |= {f"{name}/{stem}": sentence for stem, sentence in small.items()}
    parts = []
    for folder, said in sorted(found.items()):
        rows = [f"| `{name}` | {sentence} |" for name, sentence in sorted(said.items())]
        parts += [f"## {folder}", "", "| module | what it says of itself |", "|---|---|", *rows, ""]
    return "\n".join(parts)


def pages() -> dict[str, dict[str, str]]:
    """Return every generated table by its page and its marker's name."""
    return {
        "bus.md": {"store keys": key_table(describe(example_store()))},
        "counters.md": {
            "verdicts": counter_table(VERDICTS),
            "line counters": counter_table(LINE_COUNTERS[len(VERDICTS) :]),
            "channel counters": counter_table(CHANNEL_COUNTERS),
            "feed counters": counter_table(FEED_COUNTERS),
        },
        "operating.md": {
            "host keys": key_table(describe(HostConfig())),
            "memory": memory_table(),
        },
        "records.md": {
            "record header": header_table(),
            "updates": update_tables(),
            "other records": control_tables(),
            "enumerations": enumeration_tables(),
        },
        "modules.md": {"modules": module_list()},
        "settings.md": {
            "feed keys": key_table(describe(example_feed())),
            "publish keys": key_table(describe(example_publish())),
        },
        "tables.md": {"columns": column_tables(), "options": option_table()},
    }


def generate(page: str, text: str, tables: dict[str, str]) -> str:
    """Return a page with all tables replaced."""
    for name, table in tables.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.S)
        if not pattern.search(text):
            raise SystemExit(f"{page} has no place for the table {name!r}")
        text = pattern.sub(lambda match, table=table: f"{match[1]}{table}\n{match[2]}", text)
    return text


def main() -> None:
    """Write the pages, or compare them."""
    for page, tables in pages().items():
        path = DOCS / page
        old = path.read_text(encoding="utf-8")
        new = generate(page, old, tables)
        if "--check" not in sys.argv[1:]:
            path.write_text(new, encoding="utf-8")
        elif new != old:
            raise SystemExit(
                f"{page} is not what the code says: run python scripts/generate_reference.py"
            )


if __name__ == "__main__":
    main()
