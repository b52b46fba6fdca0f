"""What Spark finds in the copy of a composite with feeds' stores is what it finds in each store."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.client.fed_composite import FEEDS, FedComposite
from tests.client.test_fed_copy import books_of, finish, market
from tests.spark.test_jobs import table
from udpfast.cli.main import cli
from udpfast.spark.bronze import Bronze


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> FedComposite:
    made = FedComposite(tmp_path_factory.mktemp("fed"))
    market(made, seed=5)
    return made


def books_in(rows: list[dict[str, Any]], feed: str) -> dict[tuple[str, str], Any]:
    """Of the job `book`: whether each book of a feed is stale, and its best bid."""
    own = sorted((row for row in rows if row["feed"] == feed), key=lambda row: row["price"])
    return {(row["exchange"], row["symbol"]): (row["stale"], row["price"]) for row in own}


@pytest.mark.nightly  # what copies hold is tested without Spark, and jobs without copies
def test_books_and_senders_of_a_copy_are_those_of_its_inputs(
    spark, both: FedComposite, tmp_path: Path
) -> None:
    copy = finish(both)
    run = CliRunner().invoke(cli, ["export", str(copy), str(tmp_path)])
    assert run.exit_code == 0, run.output
    bronze = Bronze(spark, (str(tmp_path),))
    rows = table(bronze, "book")
    assert {row["feed"] for row in rows} == {f"order/{name}" for name in FEEDS}
    assert {row["stale"] for row in rows} == {False, True}
    for name in FEEDS:
        own = books_of(f"store:{both.folder / name}")
        assert books_in(rows, f"order/{name}") == {
            key: (book.stale, book.best()[0]) for key, book in own.items()
        }
    (sender,) = table(bronze, "bus")
    assert (sender["feed"], sender["session"], sender["name"]) == ("order", "s1", "a")
    assert sender["messages"] == both.sent and sender["whole"]
