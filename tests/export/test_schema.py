"""The tables: the source of each column exists, and Spark has its type."""

import re

import pytest

from tests.shared import ROOT
from udpfast.core.layout import CONTROL_DTYPES, RECORD, Kind
from udpfast.export.hops import HOPS
from udpfast.export.schema import (
    SPARK_TYPES,
    TABLES,
    Table,
    arrow_schema,
    spark_schema,
    table_of,
)
from udpfast.market.columns import _word_list
from udpfast.market.updates import ROW_DTYPES, UPDATE_DTYPES
from udpfast.market.words import ENUMS

DTYPES = {**CONTROL_DTYPES, **UPDATE_DTYPES}
OWN_WORDS = ("Kind", "GapReason")


@pytest.fixture(params=TABLES.values(), ids=lambda table: table.name)
def table(request: pytest.FixtureRequest) -> Table:
    found: Table = request.param
    return found


def test_column_names_are_distinct(table: Table) -> None:
    assert len(set(table.column_names)) == len(table.column_names)


def test_hops_of_an_export_are_named() -> None:
    (hop,) = (column for column in TABLES["latency"].columns if column.name == "hop")
    assert set(re.findall(r"\w+_to_\w+", hop.doc)) == set(HOPS)
    glossary = (ROOT / "docs/glossary.md").read_text()
    assert [hop for hop in HOPS if f"`{hop}`" not in glossary] == []


def test_sources_are_fields_of_their_records(table: Table) -> None:
    for column in table.columns:
        part, _, field = column.source.partition(".")
        if part == "record":
            assert field in (RECORD.names or ()), column
        elif part in ("payload", "row"):
            dtypes = DTYPES if part == "payload" else ROW_DTYPES
            for kind in table.kinds:
                assert field in (dtypes[Kind[kind]].names or ()), column
        elif part == "event":
            kinds = [Kind[kind] for kind in table.kinds]
            assert any(field in (CONTROL_DTYPES[kind].names or ()) for kind in kinds), column


def test_words_are_known(table: Table) -> None:
    for column in table.columns:
        assert not column.words or column.words in OWN_WORDS or column.words in ENUMS, column


def test_types_are_spark_s(table: Table) -> None:
    schema = arrow_schema(table.name, partitions=True)
    assert tuple(schema.names) == table.column_names
    for field in schema:
        assert not str(field.type).startswith(("uint", "timestamp[ns", "dictionary")), field
    for column in table.columns:
        assert f"{column.name} {SPARK_TYPES[column.type]}" in spark_schema(table.name)


def test_records_join_by_feed_and_position(table: Table) -> None:
    if table.name != "latency":
        assert {"feed", "position"} <= set(table.column_names)


def test_table_of_unknown_name_says_which_there_are() -> None:
    with pytest.raises(ValueError, match=r"table .*messages, levels, .*'bars'"):
        table_of("bars")


def test_numbers_beyond_an_enumeration_stay_numbers() -> None:
    words = _word_list("Side")
    assert (words[0], words[1], words[37]) == (None, "Buy", "37")
    assert len(words) == 256
    assert _word_list("GapReason")[200] == "200"
