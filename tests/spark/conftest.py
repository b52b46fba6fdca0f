"""One Spark session for every test of a worker: it takes eight seconds to start."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from udpfast.spark.java import JavaMissingError, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Whoever cannot have Java says so: a pipeline that nobody tested shall not look tested.
ALLOWED = "UDPFAST_WITHOUT_SPARK"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies here."""
    for item in items:
        if item.path.parent.name == "spark":
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def installed() -> None:
    """Fail where Spark or Java is missing, and may not be."""
    try:
        import pyspark  # noqa: F401

        find_java()
    except (ImportError, JavaMissingError) as error:
        if os.environ.get(ALLOWED):
            pytest.skip(f"{error}; {ALLOWED} is set")
        pytest.fail(f"{error} (set {ALLOWED}=1 to leave these tests out)")


@pytest.fixture(scope="session")
def spark(installed: None) -> Iterator["SparkSession"]:
    """Return a session on two cores."""
    from udpfast.spark.session import open_session

    # As few partitions as show what is divided: a stream keeps the state of each in files.
    settings = {"spark.sql.shuffle.partitions": "2"}
    session = open_session("local[2]", memory="2g", quick=True, settings=settings)
    yield session
    session.stop()
