"""The options of the data source: what there are, and what their texts mean."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping

from udpfast.errors import ConfigError

__all__ = ["OPTIONS", "flag_of", "list_of", "number_of", "unix_ns"]

#: What each option says; all are texts, lists with commas between.
OPTIONS = {
    "path": "the journal: its directory, or its name below $UDPFAST_JOURNALS",
    "table": "of the export's tables; messages by default",
    "schema": "an SBE schema: table is one of its messages or groups then, Order or Order.fills",
    "framing": "with schema: of the feed, if a record has all that one datagram carried",
    "columns": "only these, in this order",
    "start": "published from then on: 2026-08-21T09:30Z, or UNIX ns",
    "end": "published before then",
    "kinds": "only records of these kinds: BOOK,TRADES",
    "symbols": "only of these symbols",
    "exchanges": "only of these exchanges",
    "feed": "what the column feed says; else the name of the instance recorded",
    "payloads": "true: fill the column payload of messages",
    "pushdown": "true: let filters of the query choose records",
    "piece_bytes": "of the journal, about, for one task; 33554432 by default",
    "skip_damage": "true: go on behind damaged records; else they are an error",
    "from": "a stream's first record: begin (by default), or tail",
    "max_records": "a stream's records in one batch, at most",
    "skip_loss": "true: a stream goes on behind records that were removed; else that is an error",
}


def unix_ns(text: str, what: str) -> int:
    """Return a time that people write, as UNIX ns."""
    if re.fullmatch("-?[0-9]{1,19}", text) and -(1 << 63) <= int(text) < 1 << 63:
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ConfigError(
            f"{what} must be UNIX ns, or a time with its zone (2026-08-21T09:30Z), was {text!r}"
        )
    since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000


def list_of(options: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """Return a list; None: it was not given."""
    if name not in options:
        return None
    return tuple(word.strip() for word in options[name].split(",") if word.strip())


def flag_of(options: Mapping[str, str], name: str) -> bool:
    """Return whether an option is true; it is not unless it was given."""
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name} must be true or false, was {text!r}")
    return text == "true"


def number_of(options: Mapping[str, str], name: str, least: int) -> int | None:
    """Return a number; None: it was not given."""
    if name not in options:
        return None
    if not re.fullmatch("[0-9]{1,18}", options[name]) or int(options[name]) < least:
        raise ConfigError(f"{name} must be a number of {least} or more, was {options[name]!r}")
    return int(options[name])
