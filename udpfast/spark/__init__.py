"""Analysis of journals and exports on Spark: a session with safe settings, the jobs, their report.

This needs the extra `[spark]` and Java 17 or newer. Only `udpfast spark` imports this package, so
processes that receive and trade never load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from udpfast.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["open_session", "register"]


def register(spark: SparkSession) -> None:
    """Register the format "udpfast" with a session, in case Spark does not find it by itself.

    Spark finds it if it can import the package `pyspark_udpfast`, which udpfast installs.

    Raises
    ------
    SparkStartError
        Workers on this host run another Python, which has no udpfast.
    """
    from pyspark.sql.utils import is_remote

    from udpfast.spark.session import check_workers, is_local
    from udpfast.spark.source import UdpfastSource

    if not is_remote() and is_local(spark.sparkContext.master or ""):
        check_workers(spark.sparkContext.pythonExec)
    spark.dataSource.register(UdpfastSource)
