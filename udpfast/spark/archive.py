"""Have Java keep the classes that Spark loads: half the time of a session's start.

`python -m udpfast.spark.archive` runs jobs over nothing and writes the archive beside Spark, 190 MB
in half a minute. From then on every session on a local master uses it. Java leaves an archive alone
that another Java made, or of other files of Spark, and loads the classes as usual.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from udpfast.errors import UdpfastError
from udpfast.spark.session import archive_path, open_session, settings_for

__all__ = ["main"]

#: Jobs that together load nearly all classes of the others.
LOADING = ("losses", "races", "book")


def main() -> None:
    """Make the archive anew; a session that began before keeps the one that it has."""
    try:
        _make(archive_path())
    except (UdpfastError, ImportError, OSError) as error:
        sys.exit(f"udpfast: no archive of Spark's classes was made: {error}")


def _make(path: Path) -> None:
    # Java would crash with a part of an archive, and others may make one at the same time.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="udpfast-") as folder:
        made = Path(folder) / path.name
        key = "spark.driver.extraJavaOptions"
        options = settings_for("local", quick=True)[key]
        settings = {key: f"{options} -XX:ArchiveClassesAtExit={made} -Xlog:cds*=off"}
        session = open_session("local", memory="1g", quick=True, settings=settings)
        from udpfast.spark.bronze import Bronze
        from udpfast.spark.jobs import JOBS, Parameters
        from udpfast.spark.pipeline import gold, run_jobs

        jobs = [JOBS[name] for name in LOADING]
        for ran in run_jobs(Bronze(session, (folder,)), folder, jobs, Parameters()):
            session.read.parquet(gold(folder, ran.name)).toPandas()
        java = session.sparkContext._gateway.proc  # type: ignore[union-attr]
        session.stop()
        java.stdin.close()  # upon which it ends, as in every program, and writes the archive
        if java.wait() != 0:
            raise UdpfastError(f"Java ended with code {java.returncode}")
        made.replace(path)


if __name__ == "__main__":
    main()
