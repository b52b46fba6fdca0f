"""What was kept, on Spark: a session that knows its traps, the jobs, and their report.

Wants the extra `[spark]` and Java 17 or newer. Nothing of udpfast imports this package but
`udpfast spark`: who receives and trades never loads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from udpfast.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["open_session", "register"]


def register(spark: SparkSession) -> None:
    """Have a session know the format "udpfast", also where Spark does not find it by itself.

    It does where the package `pyspark_udpfast`, which is installed with udpfast, can be imported.

    Raises
    ------
    SparkStartError
        Workers of this host run another Python, which has no udpfast.
    """
    from pyspark.sql.utils import is_remote

    from udpfast.spark.session import check_workers, is_local
    from udpfast.spark.source import UdpfastSource

    if not is_remote() and is_local(spark.sparkContext.master or ""):
        check_workers(spark.sparkContext.pythonExec)
    spark.dataSource.register(UdpfastSource)
