"""What has to be said of each kind of update by hand: whoever adds one finds the places here."""

import re
from pathlib import Path

import pytest

from udpfast.client import conflate
from udpfast.core.layout import Kind
from udpfast.payload.roq.event import MESSAGE_NAMES

ROOT = Path(__file__).parents[2]
#: An update may say less than all: what is kept of it is put together.
PARTS = {Kind.BOOK, Kind.ORDERS, Kind.STATISTICS, Kind.CUSTOM_METRICS}
#: It says what happened: a newer one does not contain it.
EVENTS = {Kind.TRADES}
#: It says all: the newest one is enough.
WHOLE = {
    Kind.TOP_OF_BOOK,
    Kind.REFERENCE_DATA,
    Kind.MARKET_STATUS,
    Kind.GATEWAY_STATUS,
    Kind.GATEWAY_SETTINGS,
    Kind.EXTERNAL_LATENCY,
}
#: Nothing repeats it, so nobody waits for its snapshot.
WITHOUT_SNAPSHOTS = {Kind.TOP_OF_BOOK, Kind.TRADES, Kind.EXTERNAL_LATENCY}


def named(path: str, begin: str, end: str) -> set[Kind]:
    """Return the kinds that the text of a module names between two of its words."""
    _, text = (ROOT / path).read_text().split(begin, 1)
    return {Kind[name] for name in re.findall(r"KIND_([A-Z_]+)", text.split(end, 1)[0])}


def test_each_kind_is_an_event_whole_or_a_part() -> None:
    kinds = {kind for kind in Kind if 16 <= kind < 48}
    assert kinds == PARTS | EVENTS | WHOLE
    assert len(kinds) == len(PARTS) + len(EVENTS) + len(WHOLE)


def test_latest_leaves_out_only_what_a_newer_record_contains() -> None:
    # A book is put together by `Latest.books`.
    assert set(vars(conflate)["_CHANGES"]) == (PARTS | EVENTS) - {Kind.BOOK}


@pytest.mark.parametrize(
    ("path", "begin", "end", "kinds"),
    [
        ("udpfast/market/state.pyx", "cdef bint parts = header.kind in (", ")", PARTS),
        ("udpfast/market/state_bytes.pyx", "value.record.kind not in (", ")", PARTS - {Kind.BOOK}),
        # A relay sends orders in messages of its own.
        ("udpfast/agents/relay/relay_types.pxd", "bint has_parts(", "\n\n", PARTS - {Kind.ORDERS}),
        ("udpfast/agents/relay/relay_types.pxd", "bint has_snapshots(", "\n\n", WITHOUT_SNAPSHOTS),
    ],
)
def test_lists_of_kinds_agree(path: str, begin: str, end: str, kinds: set[Kind]) -> None:
    assert named(path, begin, end) == kinds


def test_page_of_the_protocol_has_each_message_of_roq() -> None:
    page = (ROOT / "docs/protocol.md").read_text()
    for kind, message in MESSAGE_NAMES.items():
        assert re.search(rf"^\| {message} \| [^|]+ \| {kind.name} \|$", page, re.MULTILINE), message
