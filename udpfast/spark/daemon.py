"""The process from which Spark forks its Python workers, with their imports already done.

Spark starts a worker each time it asks a source for its columns or partitions. Each worker would
import pyarrow, pandas and udpfast again, which takes more than a second of a core. Spark's own
daemon imports nothing, because a library may start threads, and a fork loses them. The one thread
that these libraries start handles forks. If there are other threads, the daemon keeps nothing, and
workers import as usual.
"""

import contextlib
import gc
import importlib
import os
import sys
from pathlib import Path

__all__ = ["main"]

#: Threads, by the name that the kernel shows, whose library takes care of forks.
SAFE = ("jemalloc_bg_thd",)
USED = ("pyarrow", "pandas", "pyspark.worker", "udpfast.spark.source", "udpfast.spark.stream")

_PLAIN = "UDPFAST_SPARK_PLAIN_DAEMON"


def main() -> None:
    """Import the libraries, then fork workers until Spark ends."""
    from pyspark.daemon import manager

    if _PLAIN not in os.environ:
        # A worker has one core: threads of NumPy's would share it.
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        for name in (*USED, *sys.argv[1:]):
            with contextlib.suppress(ImportError):  # the worker that needs it reports it
                importlib.import_module(name)
        names = [each.read_text().strip() for each in Path("/proc/self/task").glob("*/comm")]
        if sum(name not in SAFE for name in names) > 1:
            os.environ[_PLAIN] = "1"
            os.execv(sys.executable, [sys.executable, "-m", "udpfast.spark.daemon", *sys.argv[1:]])
        gc.freeze()
    manager()


if __name__ == "__main__":
    main()
