"""The tables of the benchmark of the reports make sense: jobs and queries by hand find the same."""

from typing import TYPE_CHECKING

import pytest

from bench.bench_reports import FILES, compare, job_rows, make_export, query_rows, view_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from udpfast.spark.bronze import Bronze

ROWS = 200 * FILES


@pytest.fixture(scope="module")
def bronze(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> "Bronze":
    root = tmp_path_factory.mktemp("reports")
    make_export(root, ROWS)
    return view_tables(spark, str(root))


# What each of these answers is in several tables, which must fit each other.
@pytest.mark.parametrize("name", ["book", "losses"])
def test_job_and_query_by_hand_find_the_same(bronze: "Bronze", name: str) -> None:
    rows = compare(job_rows(bronze, name), query_rows(bronze, name))
    assert rows >= {"book": 12, "losses": 3}[name]
