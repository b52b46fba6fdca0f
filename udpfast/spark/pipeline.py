"""Bronze to gold: run jobs over exports, once or as a stream, and write a table for each.

    OUT/gold/JOB/      a table per job, Parquet
    OUT/silver/TABLE/  the typed tables, if they were requested
    OUT/run.json       which jobs ran, on which sources, and how long each took
    OUT/checkpoints/   the progress of each stream, with its sources in of.json

The driver holds no data that grows: executors write the tables, and the driver reads back only the
numbers of rows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from pyarrow.fs import FileSystem, FileType

from udpfast.errors import ConfigError, did_you_mean
from udpfast.spark.gold import Gold, open_file_system
from udpfast.spark.jobs import JOBS, Job, Parameters
from udpfast.spark.silver import SILVER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from udpfast.spark.bronze import Bronze

__all__ = [
    "Ran",
    "begin_run",
    "chosen_jobs",
    "run_jobs",
    "stream_jobs",
    "write_run",
    "write_silver",
]


#: Most characters of a reason: Spark's first line may contain a whole query plan.
REASON_MAX = 400

#: More partitions than a result has: `coalesce` moves no row.
ALL_PARTITIONS = 2**31 - 1


class Ran(Struct, frozen=True):
    """The result of a job: rows of its table, seconds that it took, and why it failed, if so."""

    name: str
    rows: int
    seconds: float
    failure: str = ""


def chosen_jobs(names: Sequence[str]) -> list[Job]:
    """Return the jobs with these names; all jobs if there are none.

    Raises
    ------
    ConfigError
        There is no job of that name; the message lists the jobs.
    """
    for name in names:
        if name not in JOBS:
            raise ConfigError(
                f"job must be one of {', '.join(JOBS)}, was {name!r}{did_you_mean(name, JOBS)}"
            )
    return [JOBS[name] for name in names or JOBS]


def run_jobs(
    bronze: Bronze, out: str, jobs: Sequence[Job], parameters: Parameters
) -> Iterator[Ran]:
    """Run jobs one after the other over the existing data; yield each when it is done.

    Jobs that need the same reduction, or the same result in `Bronze.found`, share it. A job that
    fails has no table and reports why; the others run.
    """
    bronze = replace(bronze, found={})
    reduced: dict[Any, DataFrame] = {}
    last = {job.reduce: at for at, job in enumerate(jobs)}  # which job needs it last
    try:
        for at, job in enumerate(jobs):
            began = time.perf_counter()
            bronze.spark.sparkContext.setJobDescription(job.name)
            failure = ""
            try:
                if job.reduce not in reduced:
                    # Some tables read it more than once: `races` takes half the time.
                    reduced[job.reduce] = job.reduce(bronze, parameters).persist()
                table = job.finish(reduced[job.reduce], bronze, parameters)
                table.write.mode("overwrite").parquet(gold(out, job.name))
            except Exception as error:  # any error must only cost this job's table
                failure = reason_of(error)
                remove_table(out, job.name)
            if last[job.reduce] == at and job.reduce in reduced:
                reduced.pop(job.reduce).unpersist()
            yield Ran(job.name, Gold(out).count(job.name), time.perf_counter() - began, failure)
    finally:
        for whole in reduced.values():
            whole.unpersist()


def stream_jobs(
    bronze: Bronze,
    out: str,
    jobs: Sequence[Job],
    parameters: Parameters,
    *,
    every_s: float | None = None,
) -> Iterator[Ran]:
    """Run the same jobs as streams; yield each when its stream has ended.

    Every batch rewrites the table from everything seen so far, so a batch that is repeated after a
    crash writes the same table twice. A stream keeps the reduction in its checkpoint: as many rows
    as there are keys, not as many as were read.

    Parameters
    ----------
    bronze : Bronze
        The tables to read.
    out : str
        Directory or URI of the results.
    jobs : sequence of Job
        The jobs to run.
    parameters : Parameters
        Must equal those of the checkpoint, if there is one, because its sums depend on them.
    every_s : float, optional
        Seconds from batch to batch, until interrupted; by default the stream processes the
        existing data and ends.
    """
    stream = replace(bronze, streaming=True)
    began = time.perf_counter()
    trigger: dict[str, Any] = (
        {"availableNow": True} if every_s is None else {"processingTime": f"{every_s} seconds"}
    )
    queries = {
        job.name: job.reduce(stream, parameters)
        .writeStream.queryName(job.name)
        .outputMode("complete")
        .option("checkpointLocation", f"{out}/checkpoints/{job.name}")
        .trigger(**trigger)
        .foreachBatch(writer(job, stream, out, parameters))
        .start()
        for job in jobs
    }
    try:
        for name, query in queries.items():
            failure = ""
            try:
                query.awaitTermination()
            except Exception as error:  # the others continue; the next run repeats this batch
                failure = reason_of(error)
            yield Ran(name, Gold(out).count(name), time.perf_counter() - began, failure)
    finally:
        for query in queries.values():
            query.stop()


def writer(
    job: Job, bronze: Bronze, out: str, parameters: Parameters
) -> Callable[[DataFrame, int], None]:
    """Return the function that writes a job's table after each batch of its stream."""

    def write(whole: DataFrame, _: int) -> None:
        # A stream's result may be read once per action, and a table may read it twice. Spark says
        # of it by which columns it is sorted, with ids that its own columns do not have, and fails
        # where a table joins the kept result with itself. `coalesce` promises no order.
        whole = whole.coalesce(ALL_PARTITIONS).persist()
        try:
            table = job.finish(whole, bronze, parameters)
            table.write.mode("overwrite").parquet(gold(out, job.name))
        finally:
            whole.unpersist()

    return write


def write_silver(bronze: Bronze, out: str) -> Iterator[Ran]:
    """Write the typed tables; yield each as it is done."""
    for name, make in SILVER.items():
        began = time.perf_counter()
        bronze.spark.sparkContext.setJobDescription(f"silver {name}")
        make(bronze).write.mode("overwrite").parquet(f"{out}/silver/{name}")
        count = Gold(out).count(name, "silver")
        yield Ran(f"silver {name}", count, time.perf_counter() - began)


def reason_of(error: Exception) -> str:
    """Return why a job failed in one line, the first of the many that a JVM prints."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = next((line for line in lines if line), "")
    return f"{type(error).__name__}: {said}"[:REASON_MAX]


def remove_table(out: str, name: str) -> None:
    """Remove a job's table, so that an earlier run's is not mistaken for this one's."""
    files, path = open_file_system(out)
    if files.get_file_info(f"{path}/gold/{name}").type != FileType.NotFound:
        files.delete_dir(f"{path}/gold/{name}")


def gold(out: str, name: str) -> str:
    """Return the path of a job's table."""
    return f"{out}/gold/{name}"


def begin_run(out: str, about: dict[str, Any], *, stream: bool) -> None:
    """Prepare a directory for a run, so that it holds only results of the same sources.

    Tables of an earlier run with other sources or another time range are removed, so that the
    report does not mix them. A stream needs a directory of its own.

    Parameters
    ----------
    out : str
        Directory or URI of the results.
    about : dict
        Description of the run; `of` names its sources.
    stream : bool
        Whether the run is a stream.

    Raises
    ------
    ConfigError
        The directory has a stream of other sources, or with other parameters.
    """
    files, path = open_file_system(out)
    of, parameters = about["of"], about["parameters"]
    own = {"of": of, "parameters": parameters}
    name = f"{path}/checkpoints/of.json"
    there = files.get_file_info(f"{path}/checkpoints").type != FileType.NotFound
    if there and _read_json(files, name) != own:
        raise ConfigError(f"OUT {out!r} holds the stream of other sources or parameters: choose "
                          f"another OUT, or remove {out}/checkpoints")  # fmt: skip
    if stream and not there:
        files.create_dir(f"{path}/checkpoints", recursive=True)
        _write_json(files, name, own)
    before = _read_json(files, f"{path}/run.json")
    if before is None or before.get("of") == of:
        return
    _write_json(files, f"{path}/run.json", {**about, "jobs": {}})
    for folder in [*(f"gold/{each}" for each in JOBS), *(f"silver/{each}" for each in SILVER)]:
        if files.get_file_info(f"{path}/{folder}").type != FileType.NotFound:
            files.delete_dir(f"{path}/{folder}")


def _read_json(files: FileSystem, name: str) -> dict[str, Any] | None:
    if files.get_file_info(name).type == FileType.NotFound:
        return None
    with files.open_input_stream(name) as file:
        found: dict[str, Any] = json.loads(file.read())
    return found


def _write_json(files: FileSystem, name: str, content: dict[str, Any]) -> None:
    with files.open_output_stream(name) as file:
        file.write(json.dumps(content, indent=1).encode())


def write_run(out: str, ran: Sequence[Ran], about: dict[str, Any]) -> None:
    """Write run.json; jobs that did not run this time keep their entries."""
    files, path = open_file_system(out)
    known = (_read_json(files, f"{path}/run.json") or {"jobs": {}})["jobs"]
    for one in ran:
        question = JOBS[one.name].question
        seconds = round(one.seconds, 3)
        known[one.name] = {"question": question, "rows": one.rows, "seconds": seconds}
        if one.failure:
            known[one.name]["failure"] = one.failure
    jobs = {name: known[name] for name in JOBS if name in known}
    _write_json(files, f"{path}/run.json", {**about, "jobs": jobs})
