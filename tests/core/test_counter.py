"""Every counter of `counter.pxd` has a label at the same index."""

import re

import pytest

from tests.shared import ROOT
from udpfast.core import counter

UNITS = {"count", "bytes", "ns", "code"}


def members(enum: str) -> list[str]:
    """Return the members of an enum of counter.pxd, in lower case, without prefix and _COUNT."""
    text = (ROOT / "udpfast/core/counter.pxd").read_text()
    body = re.search(rf"^cdef enum:  # {enum}\n((?:(?:    .*)?\n)+)", text, re.M)
    assert body, enum
    names = re.findall(r"^    ([A-Z]\w*)", body[1], re.M)
    return [name.partition("_")[2].lower() for name in names][:-1]


@pytest.mark.parametrize(
    ("enum", "labels"),
    [
        ("Verdict", counter.VERDICTS),
        ("LineCounter", counter.LINE_COUNTERS[len(counter.VERDICTS) :]),
        ("ChannelCounter", counter.CHANNEL_COUNTERS),
        ("FeedCounter", counter.FEED_COUNTERS),
    ],
)
def test_labels_are_the_members_in_order(
    enum: str, labels: tuple[counter.CounterInfo, ...]
) -> None:
    assert [info.name for info in labels] == members(enum)


def test_line_counters_begin_with_the_verdicts() -> None:
    assert counter.LINE_COUNTERS[: len(counter.VERDICTS)] == counter.VERDICTS


@pytest.mark.parametrize(
    "labels", [counter.LINE_COUNTERS, counter.CHANNEL_COUNTERS, counter.FEED_COUNTERS]
)
def test_labels_have_distinct_names_units_and_meanings(
    labels: tuple[counter.CounterInfo, ...],
) -> None:
    assert len({info.name for info in labels}) == len(labels)
    assert {info.unit for info in labels} <= UNITS
    assert all(info.meaning for info in labels)
    assert all(info.unit == "ns" for info in labels if info.name.endswith("_ns"))
    sizes = [info for info in labels if info.name.endswith("bytes")]
    assert all(info.unit == "bytes" for info in sizes if info not in counter.VERDICTS)
