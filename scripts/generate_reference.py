"""Write the tables of docs/operating.md from the code: every counter, every key.

Usage: python scripts/generate_reference.py [--check]

The text between `<!-- NAME -->` and `<!-- /NAME -->` is replaced; the rest is written by hand.
With --check nothing is written, and the exit code is 1 if the file is not what it would be.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from udpfast.config import FeedConfig, PublishConfig, Setting, describe, parse_feed, parse_publish
from udpfast.core.counter import (
    CHANNEL_COUNTERS,
    FEED_COUNTERS,
    LINE_COUNTERS,
    VERDICTS,
    CounterInfo,
)

PAGE = Path(__file__).parent.parent / "docs" / "operating.md"
REQUIRED = re.compile(r"(^|\.)(name|address)$")


def counter_table(counters: Iterable[CounterInfo]) -> str:
    """Return a table of counters."""
    rows = [f"| `{info.name}` | {info.unit} | {info.meaning} |" for info in counters]
    return "\n".join(["| counter | unit | what it counts |", "|---|---|---|", *rows])


def example_feed() -> FeedConfig:
    """Return a feed with one incremental line: it has every key."""
    return parse_feed(
        {"name": "deribit", "incremental": {"lines": [{"name": "A", "address": "239.1.1.1:9001"}]}}
    )


def example_publish() -> PublishConfig:
    """Return a publisher with one destination: it has every key."""
    return parse_publish({"incremental": [{"address": "239.1.1.1:9001"}]})


def key_rows(settings: Iterable[Setting]) -> Iterator[str]:
    """Yield one row per key."""
    for setting in settings:
        key = re.sub(r"\[\d+\]", "[]", setting.key)
        default = "required" if REQUIRED.search(key) else f"`{setting.value!r}`"
        yield f"| `{key}` | {default} | {setting.reason} |"


def key_table(settings: Iterable[Setting]) -> str:
    """Return a table of configuration keys."""
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *key_rows(settings)])


def tables() -> dict[str, str]:
    """Return every generated table by its marker's name."""
    return {
        "verdicts": counter_table(VERDICTS),
        "line counters": counter_table(LINE_COUNTERS[len(VERDICTS) :]),
        "channel counters": counter_table(CHANNEL_COUNTERS),
        "feed counters": counter_table(FEED_COUNTERS),
        "feed keys": key_table(describe(example_feed())),
        "publish keys": key_table(describe(example_publish())),
    }


def generate(text: str) -> str:
    """Return the page with all tables replaced."""
    for name, table in tables().items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.S)
        if not pattern.search(text):
            raise SystemExit(f"{PAGE.name} has no place for the table {name!r}")
        text = pattern.sub(lambda match, table=table: f"{match[1]}{table}\n{match[2]}", text)
    return text


def main() -> None:
    """Write the page, or compare it."""
    old = PAGE.read_text(encoding="utf-8")
    new = generate(old)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(new, encoding="utf-8")
    elif new != old:
        raise SystemExit(
            f"{PAGE.name} is not what the code says: run python scripts/generate_reference.py"
        )


if __name__ == "__main__":
    main()
