"""Layouts as text: they can be read back, and other text is refused."""

import json

import numpy as np
import pytest

from tests.layouts import NEWER, OLDER
from udpfast.core.layout import RECORD, Kind
from udpfast.core.layouts import CONTROL_LAYOUTS, Layouts
from udpfast.market.updates import LAYOUTS


@pytest.mark.parametrize("layouts", [LAYOUTS, CONTROL_LAYOUTS, OLDER, NEWER])
def test_layouts_come_back_from_their_text(layouts: Layouts) -> None:
    found = Layouts.from_json(layouts.to_json("0.1.0"))
    assert found.hash == layouts.hash
    assert found.header == layouts.header
    assert (found.payloads, found.rows) == (layouts.payloads, layouts.rows)


def test_hash_tells_layouts_apart() -> None:
    assert len({each.hash for each in (LAYOUTS, CONTROL_LAYOUTS, OLDER, NEWER)}) == 4


def test_layouts_without_updates_are_of_a_raw_capture() -> None:
    assert CONTROL_LAYOUTS.raw
    assert not LAYOUTS.raw


_TEXT = json.loads(LAYOUTS.to_json("x"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        "[" * 100_000,
        LAYOUTS.to_json("x")[:300],
        json.dumps(_TEXT | {"header": [64]}),
        json.dumps(_TEXT | {"header": [10**30, ["a", "<u4", 0]]}),
        json.dumps(_TEXT | {"header": [64, ["a", "O", 0]]}),
        json.dumps(_TEXT | {"header": [64, ["a", "<u4", -8]]}),
        json.dumps(_TEXT | {"header": [64, ["a", "(i4,", 0]]}),
        json.dumps(_TEXT | {"payloads": {"book": [8, ["a", "<u4", 0]]}}),
        json.dumps(_TEXT | {"payloads": [1]}),
        json.dumps(_TEXT | {"rows": {str(int(Kind.GAP)): [8, ["a", "<u4", 0]]}}),
    ],
)
def test_text_that_is_no_layouts_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|Expecting"):
        Layouts.from_json(text)


@pytest.mark.parametrize(
    "name", ["length", "kind", "position", "index", "published_ns", "checksum"]
)
def test_layouts_whose_records_cannot_be_walked_along_are_refused(name: str) -> None:
    fields = {each: RECORD.fields[each] for each in RECORD.names if each != name}
    header = np.dtype(
        {
            "names": list(fields),
            "formats": [each[0] for each in fields.values()],
            "offsets": [each[1] for each in fields.values()],
            "itemsize": 64,
        }
    )
    text = Layouts(header, LAYOUTS.payloads, LAYOUTS.rows).to_json("x")
    with pytest.raises(ValueError, match=f"expected the header's {name}"):
        Layouts.from_json(text)
