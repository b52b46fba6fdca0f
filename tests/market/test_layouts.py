"""A payload is its layout: all else that names a kind follows from `updates.pxd`."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from scripts import generate_layouts
from tests.shared import ROOT
from tests.sources import files
from udpfast.core.layout import Kind
from udpfast.export.schema import TABLES
from udpfast.market import updates

SOURCE = generate_layouts.source()

NEXT = 1 + max(each.kind or 0 for each in generate_layouts.read_layouts(SOURCE))

#: As the walk-through has it.
AUCTION = re.search(
    r"^   cdef packed struct Auction.*?(?=^   ```)",
    (ROOT / "docs/walk-through.md").read_text(encoding="utf-8"),
    re.M | re.S,
)

#: What maps payloads to the types of another library, which has types for some of them.
ADAPTERS = {"udpfast/client/nautilus.py"}

#: What a kind's name stands in by hand, but for its layout: decoders, the simulated market that
#: encodes for them, tables that were thought out, and their names as those of kinds.
DECODERS = re.compile(
    r"udpfast/(payload/(iex|roq|sbe)/|market/publish\w*\.pxd|agents/market/market_"
    r"|market/tables\.py|client/kinds\.py)"
)


def tree(directory: Path) -> Path:
    """Return a copy of what the generator changes."""
    for path in generate_layouts.outputs(SOURCE, ROOT):
        copy = directory / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return directory


def test_all_that_follows_from_the_layouts_is_up_to_date() -> None:
    for path, text in generate_layouts.outputs(SOURCE, ROOT).items():
        assert path.read_text(encoding="utf-8") == text, f"make layouts: {path.name}"


def walked() -> str:
    """Return the layouts and the walk-through's, under a name and a number that are free."""
    assert AUCTION is not None
    struct = AUCTION[0].replace("\n   ", "\n")[3:].replace("Auction:  # 27:", f"Walk:  # {NEXT}:")
    return f"{SOURCE}\n{struct}\n"


def test_layout_of_which_nothing_is_said_is_named_before_anything_is_compiled() -> None:
    assert list(generate_layouts.unsaid(generate_layouts.read_layouts(SOURCE))) == []
    assert list(generate_layouts.unsaid(generate_layouts.read_layouts(walked()))) == [
        "KINDS['WALK']",
        *("OWN['WALK']['reference_price']", "OWN['WALK']['paired_quantity']"),
        *("OWN['WALK']['imbalance_quantity']", "OWN['WALK']['side']"),
    ]


def test_payload_of_the_walk_through_needs_its_layout_alone(tmp_path: Path) -> None:
    added = walked()
    assert generate_layouts.read_layouts(added)[-1].constant == "WALK"
    written = {
        path.name: text for path, text in generate_layouts.outputs(added, tree(tmp_path)).items()
    }
    assert f"    KIND_WALK = {NEXT}\n" in written["update_kinds.pxd"]
    assert "    WALK = KIND_WALK\n" in written["layout.pyx"]
    assert f"    WALK = {NEXT}\n" in written["layout.pyi"]
    assert "WALK: np.dtype[np.void]\n" in written["updates.pyi"]
    assert f'    {NEXT}: ("WALK", ""),\n' in written["updates.pyx"]
    assert "        return sizeof(Walk)\n" in written["update_sizes.pxd"]


@pytest.mark.parametrize("number", [NEXT - 1, NEXT + 1, 48])
def test_kind_that_is_not_the_next_one_is_refused(number: int) -> None:
    wrong = SOURCE + f"\ncdef packed struct Walk:  # {number}: 88 bytes\n    UpdateHeader header\n"
    with pytest.raises(SystemExit, match="expected kinds 16, 17"):
        generate_layouts.read_layouts(wrong)


@pytest.mark.parametrize("name", ["MarketStatus", "ReferenceData", "GatewaySettings"])
def test_nothing_but_layout_and_decoders_names_a_payload(name: str) -> None:
    snake = generate_layouts.snake(name)
    named = re.compile(rf"\b(?:{name}|(?:KIND_)?{snake.upper()}|{snake})\b")
    made = {str(path.relative_to(ROOT)) for path in generate_layouts.outputs(SOURCE, ROOT)}
    found = {
        str(path.relative_to(ROOT))
        for path in files("udpfast", ".py", ".pyx", ".pxd", ".pyi")
        if named.search(path.read_text(encoding="utf-8"))
    }
    others = {path for path in found - made - ADAPTERS if not DECODERS.match(path)}
    assert others == {str(generate_layouts.SOURCES[-1])}


def test_every_kind_of_update_has_a_dtype_and_a_table() -> None:
    kinds = [kind for kind in Kind if Kind.BOOK <= kind < Kind.BUS]
    assert list(updates.UPDATE_DTYPES) == kinds
    tabled = {kind for table in TABLES.values() for kind in table.kinds}
    assert {kind.name for kind in kinds} <= tabled


def test_table_that_follows_from_a_layout_has_a_column_for_each_field() -> None:
    columns = {column.name: column for column in TABLES["gateway_settings"].columns}
    fields = np.dtype(updates.GATEWAY_SETTINGS).names or ()
    own = fields[fields.index("supports") :]
    assert {name for name in own if not name.startswith("reserved")} <= set(columns)
    assert columns["ts_interval"].words == "Interval"
    assert columns["mbp_tick_size_multiplier"].type == "double"
