"""A Spark session with the settings that a pipeline over udpfast's tables needs.

This module avoids three traps. By default, workers run the first `python3` in PATH, which seldom
has pyarrow and udpfast. A laptop's host name often resolves to an address that the laptop does not
have. And if Java is missing, Spark prints forty lines; this module prints one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from udpfast.errors import UdpfastError
from udpfast.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "SparkMissingError",
    "SparkStartError",
    "archive_path",
    "archived",
    "check_workers",
    "is_local",
    "open_session",
    "settings_for",
]

#: Memory of the JVM of a local master, which is both driver and executor.
LOCAL_MEMORY = "4g"

#: Settings for every master. Times are shown in UTC, not in the viewer's time zone, and written so
#: that every reader takes them for UTC: Spark's own INT96 has no zone. Values of
#: partition directories keep the types of the tables' schema. Errors of the data source's options
#: are one sentence, which a Python traceback would hide.
EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}

#: For a JVM that lives for seconds: optimising its code would take longer than running it. So told,
#: Java keeps 48 MB for compiled code, which a few dozen jobs fill: from then on it would throw code
#: away and compile it again.
QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"

#: The same for queries: otherwise each would be generated as Java and compiled first, and the JVM
#: would be told with each column where in Python it was named. And each plan is written as text for
#: Spark's pages, which nobody sees here: the short text is enough.
INTERPRETED = {
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.ui.explainMode": "simple",
}

#: Log errors only.
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.python.daemon.module": "udpfast.spark.daemon",
}


class SparkMissingError(UdpfastError):
    """The extra `[spark]` is not installed."""


class SparkStartError(UdpfastError):
    """Spark could not start with these settings; most often there is no such master."""


def is_local(master: str) -> bool:
    """Return whether driver and executors are one JVM on this host."""
    return master.partition("[")[0] == "local"


def settings_for(master: str, memory: str = LOCAL_MEMORY, *, quick: bool = False) -> dict[str, str]:
    """Return the settings of `open_session` for a master.

    Parameters
    ----------
    master, memory, quick
        As for `open_session`.
    """
    if not is_local(master):
        return dict(EVERYWHERE)
    cores = master.partition("[")[2].rstrip("]").partition(",")[0]
    # Two partitions per core: the default of 200 would cost a local job more than its work.
    count = int(cores) if cores.isdecimal() else (os.cpu_count() or 1) if cores else 1
    options = f"-Dlog4j.configurationFile={LOG_SETTINGS}"
    return {
        **EVERYWHERE,
        **LOCAL,
        **(INTERPRETED if quick else {}),
        "spark.driver.extraJavaOptions": f"{options} {QUICK}" if quick else options,
        "spark.driver.memory": memory,
        "spark.sql.shuffle.partitions": str(2 * count),
    }


def open_session(
    master: str = "local[*]",
    *,
    name: str = "udpfast",
    memory: str = LOCAL_MEMORY,
    quick: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session on `master`, or the running session if there is one.

    Parameters
    ----------
    master : str, optional
        Spark's master: `local[N]`, `spark://HOST:PORT`, `yarn`, `k8s://...`. Remote executors need
        udpfast and pyarrow in the Python that `PYSPARK_PYTHON` names.
    name : str, optional
        Name of the application.
    memory : str, optional
        Memory of a local master's JVM, in Spark's notation ("4g").
    quick : bool, optional
        Start faster, but run at half the speed; for little data on a local master.
    settings : mapping, optional
        Further settings of Spark, which override the others.

    Raises
    ------
    SparkMissingError
        pyspark is not installed.
    JavaMissingError
        There is no Java of version 17 or newer.
    SparkStartError
        Spark refused the master or the settings, or its workers' Python has no udpfast.
    """
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkMissingError(
            "Spark is not installed: pip install 'udpfast[spark]' (0.9 GB, and Java 17)"
        ) from None
    if SparkSession.getActiveSession() is None:
        os.environ["JAVA_HOME"] = str(find_java())
    if is_local(master):
        _lead_workers()
        check_workers(os.environ["PYSPARK_PYTHON"])
    builder = SparkSession.builder.master(master).appName(name)
    own = settings_for(master, memory, quick=quick)
    if is_local(master):
        own["spark.driver.extraJavaOptions"] += archived(archive_path())
    for key, value in {**own, **(settings or {})}.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        lines = str(error).splitlines()  # in an error of Java, the second line has the reason
        reason = next((line[2:] for line in lines if line.startswith(": ")), lines[0])
        raise SparkStartError(
            f"Spark did not start with master {master!r} (local[N], spark://HOST:7077, yarn, "
            f"k8s://...; Spark's own messages are above): {reason}"
        ) from None
    _remember(session)
    return session


def _remember(session: SparkSession) -> None:
    # Each time that a column is made, py4j would ask Java what these are, and Java would look for
    # them in all of Spark's files.
    java: Any = session.sparkContext._jvm
    for name in ("functions", "org.apache.spark.sql.functions", "PythonUtils"):
        setattr(java, name, getattr(java, name))


def archive_path() -> Path:
    """Return where Java keeps Spark's classes once somebody made the archive (`archive`)."""
    import pyspark

    return Path(pyspark.__file__).with_name("udpfast.jsa")


def archived(archive: Path) -> str:
    """Return the options of Java to take classes from an archive, if there is one that fits it."""
    return f" -XX:SharedArchiveFile={archive} -Xlog:cds*=off" if archive.exists() else ""


@cache
def check_workers(python: str) -> None:
    """Check that the Python of this host's workers can import udpfast.

    Raises
    ------
    SparkStartError
        It cannot. Without this check every job would fail with forty lines.
    """
    import pyspark

    found = shutil.which(python)
    if found is not None and Path(found).absolute() == Path(sys.executable).absolute():
        return
    paths = [str(Path(pyspark.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    reason = "there is no such program"
    if found is not None:
        command = [found, "-c", "import udpfast.spark.source"]
        done = subprocess.run(
            command, env=environment, cwd="/", capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return
        reason = (done.stderr.splitlines() or [f"it ended with code {done.returncode}"])[-1]
    raise SparkStartError(
        f"Spark's workers run {python} ({found}), which cannot import udpfast: "
        f"{reason}; set PYSPARK_PYTHON={sys.executable} before the session starts"
    )


def _lead_workers() -> None:
    # Workers start with this process's environment: the same Python, and the same udpfast even if
    # it is a checkout that was never installed.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", os.environ["PYSPARK_PYTHON"])
    # Otherwise Spark resolves this host's name, which takes seconds if there is no answer.
    os.environ.setdefault("SPARK_LOCAL_IP", LOCAL["spark.driver.host"])
    root = str(Path(__file__).parents[2])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, *paths]))
