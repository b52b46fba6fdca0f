"""The options of the data source: their names, and how their values are read."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping

from udpfast.errors import ConfigError

__all__ = ["OPTIONS", "flag_of", "list_of", "number_of"]

#: The meaning of each option; all values are texts, lists are separated by commas.
OPTIONS = {
    "path": "directory of the journal, or its name below $UDPFAST_JOURNALS",
    "table": "one of the export's tables; messages by default",
    "schema": "an SBE schema; table then names one of its messages or groups: Order, Order.fills",
    "framing": "with schema: the feed's framing, if a record holds all messages of a datagram",
    "columns": "read only these columns, in this order",
    "start": "read records published from this time on: 2026-08-21T09:30Z, or UNIX ns",
    "end": "read records published before this time",
    "kinds": "read only records of these kinds: BOOK,TRADES",
    "symbols": "read only records of these symbols; one with a comma in double quotes. One "
    "that the journal has not published is an error, except of a stream",
    "exchanges": "read only records of these exchanges, as symbols",
    "feed": "value of the column feed; by default the name of the recorded instance",
    "payloads": "true: fill the column payload of messages",
    "pushdown": "true: use the query's filters to select records",
    "piece_bytes": "approximate bytes of the journal per task; 33554432 by default",
    "skip_damage": "true: skip damaged records; by default they are an error",
    "from": "where a stream starts: begin (default) or tail",
    "max_records": "most records of a stream in one batch",
    "skip_loss": "true: a stream skips records that were removed; by default they are an error",
}


def list_of(options: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """Return an option that is a list; None: it was not given.

    A word that contains a comma is in double quotes, as in CSV: `"A,B",C`.

    Raises
    ------
    ConfigError
        A quote is not closed.
    """
    if name not in options:
        return None
    try:
        lines = list(csv.reader([options[name]], skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise ConfigError(
            f"{name} must be words separated by commas, those with a comma in double quotes, was "
            f"{options[name]!r}: {error}"
        ) from None
    return tuple(word.strip() for line in lines for word in line if word.strip())


def flag_of(options: Mapping[str, str], name: str) -> bool:
    """Return whether an option is true; raise `ConfigError` if it is neither true nor false."""
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name} must be true or false, was {text!r}")
    return text == "true"


def number_of(options: Mapping[str, str], name: str, least: int) -> int | None:
    """Return an option that is a number, or None; raise `ConfigError` if it is invalid."""
    if name not in options:
        return None
    if not re.fullmatch("[0-9]{1,18}", options[name]) or int(options[name]) < least:
        raise ConfigError(f"{name} must be a number of {least} or more, was {options[name]!r}")
    return int(options[name])
