"""Tables whose older files lack a column, read by the lines of the page."""

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.export.market import make_journal
from tests.shared import ROOT
from udpfast.export.exporter import Exporter
from udpfast.export.schema import table_of

#: Columns that files of an earlier version do not have.
GAINED = {"doubt", "trade_id"}


def test_older_files_have_null_where_a_table_gained_a_column(tmp_path: Path) -> None:
    for library in ("duckdb", "polars"):
        pytest.importorskip(library, reason="not installed: see [dev]")
    root = tmp_path / "tables"
    assert all(exported.written for exported in Exporter(make_journal(tmp_path, 3), root).run())
    (newer,) = (root / "trades").rglob("*.parquet")
    whole = pq.ParquetFile(newer).read()
    older = whole.select([name for name in whole.column_names if name not in GAINED])
    pq.write_table(older, newer.with_name(f"0{newer.name}"))  # by its name the first
    (page,) = re.findall(
        r"### When tables gain a column.*?```python\n(.*?)```",
        (ROOT / "docs/spark.md").read_text(),
        re.S,
    )
    names: dict[str, Any] = {}
    exec(page.replace("DIR", str(root)), names)
    found = {
        "pyarrow": names["dataset"].to_table(),
        "duckdb": names["rows"].to_arrow_table(),
        "polars": names["scan"].collect().to_arrow(),
    }
    for library, table in found.items():
        assert set(table.column_names) == set(table_of("trades").column_names), library
        assert table.num_rows == 2 * whole.num_rows, library
        for name in GAINED:
            assert table[name].null_count == whole.num_rows + whole[name].null_count, library
