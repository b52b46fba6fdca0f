"""How the pipeline scales: the same export once, many times, on one core and on two.

    udpfast lab pipelinescale EXPORT --copies 1 --copies 5 --copies 25

Each copy is the export again, some time earlier and further down the journal, in files of its own:
more rows, more hours, the same instruments and lines. Prints for each job the seconds per number
of rows and master, with the JVM's and the workers' peak memory.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import parquet

from udpfast.export.schema import TABLES

from .program import program

__all__ = ["main", "repeat_export"]

#: What moves with a copy, by how much of it: times back, places on.
TIMES = ("received_ns", "published_ns", "exchange_time_ns", "minute_ns")
STAMPS = ("received_at", "minute")
PLACES = ("position", "index")


@program
@click.argument("export", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--copies", multiple=True, type=int, default=(1, 5, 25), show_default=True)
@click.option(
    "--master", "masters", multiple=True, default=("local[1]", "local[2]"), show_default=True
)
@click.option("--memory", default="4g", show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), help="For copies and results.")
@click.option("--json", "as_json", is_flag=True)
def main(
    export: Path,
    copies: tuple[int, ...],
    masters: tuple[str, ...],
    memory: str,
    directory: Path | None,
    as_json: bool,
) -> None:
    """Run the whole pipeline over each number of copies on each master."""
    found = []
    with tempfile.TemporaryDirectory(prefix="udpfast-scale-") as temporary:
        place = directory or Path(temporary)
        for count in copies:
            root = place / f"export-{count}"
            rows = repeat_export(export, root, count)
            for master in masters:
                out = place / f"gold-{count}-{re.sub(r'[^0-9a-z]+', '-', master)}"
                found.append(run(root, out, master, memory) | {"rows": rows, "copies": count})
                click.echo(summary(found[-1]), err=True)
            if directory is None:
                shutil.rmtree(root)
    if as_json:
        click.echo(json.dumps(found))
        return
    names = list(found[0]["jobs"])
    click.echo("rows            master    " + "".join(f"{name:>12}" for name in names) + "   peak")
    for one in found:
        seconds = "".join(f"{one['jobs'][name]:>12.1f}" for name in names)
        peak = f"{one['peak_bytes'] / 2**30:.1f} GiB"
        click.echo(f"{one['rows']:>13,}  {one['master']:<9}{seconds}   {peak}")


def summary(one: dict[str, Any]) -> str:
    """Return one run in a line."""
    return (
        f"{one['rows']:,} rows on {one['master']}: {one['seconds']:.1f} s, "
        f"{one['rows'] / one['seconds'] / 1e6:.2f} M rows/s, {one['peak_bytes'] / 2**30:.2f} GiB"
    )


def repeat_export(export: Path, root: Path, copies: int) -> int:
    """Write an export `copies` times over, each earlier than the one before; return its rows."""
    span_ns, span_bytes = extent(export)
    rows = 0
    for name, table in TABLES.items():
        source = export / table.name
        for path in sorted(source.glob("date=*/stream=*/session=*/*.parquet")):
            whole = parquet.read_table(path, partitioning=None)
            for copy in range(copies):
                # The last copy in time is the last in the journal: books end as they did.
                shifted = shift(whole, (copies - 1 - copy) * span_ns, copy * span_bytes)
                _, channel, session, file = path.parts[-4:]
                first = shifted["minute_ns" if name == "latency" else "published_ns"][0].as_py()
                day = datetime.datetime.fromtimestamp(first / 1e9, datetime.UTC).date()
                folder = root / table.name / f"date={day}" / channel / session
                folder.mkdir(parents=True, exist_ok=True)
                parquet.write_table(shifted, folder / f"copy-{copy:04}-{file}", compression="zstd")
                rows += len(shifted)
    (root / "_manifest").mkdir(exist_ok=True)
    return rows


def extent(export: Path) -> tuple[int, int]:
    """Return the time that an export spans, up to whole seconds, and the bytes of its journal."""
    messages = pa.concat_tables(
        parquet.read_table(path, columns=["received_ns", "position"], partitioning=None)
        for path in export.glob("messages/date=*/stream=*/session=*/*.parquet")
    )
    times, places = pc.min_max(messages["received_ns"]), pc.max(messages["position"])
    span = times["max"].as_py() - times["min"].as_py()
    return (span // 1_000_000_000 + 1) * 1_000_000_000, places.as_py() + (1 << 20)


def shift(table: pa.Table, back_ns: int, on_bytes: int) -> pa.Table:
    """Return rows some time earlier and further down the journal."""
    for place, field in enumerate(table.schema):
        column = table[field.name]
        if field.name in TIMES:
            column = pc.subtract(column, back_ns)
        elif field.name in STAMPS:
            column = pc.subtract(column, pa.scalar(back_ns // 1000, pa.duration("us")))
        elif field.name in PLACES:
            column = pc.add(column, on_bytes)
        table = table.set_column(place, field, column.cast(field.type))
    return table


def run(root: Path, out: Path, master: str, memory: str) -> dict[str, Any]:
    """Run the pipeline in a process of its own; return its times and peak memory."""
    command = [
        *(sys.executable, "-m", "udpfast", "spark", "run", str(root), str(out), "--json"),
        *("--master", master, "--memory", memory),
    ]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    peak = Peak(process.pid)
    code = process.wait()
    seconds = time.monotonic() - began
    if code:
        raise click.ClickException(f"{' '.join(command)} ended with exit code {code}")
    jobs = json.loads((out / "run.json").read_text())["jobs"]
    return {
        "master": master,
        "seconds": seconds,
        "jobs": {name: job["seconds"] for name, job in jobs.items()},
        "peak_bytes": peak.stop(),
    }


class Peak:
    """The most memory that a session of processes had at one time: Python, JVM and workers."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._peak = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Return the peak in bytes."""
        self._stopping.set()
        self._thread.join()
        return self._peak

    def _look(self) -> None:
        while not self._stopping.wait(0.5):
            self._peak = max(self._peak, sum(map(self._resident, Path("/proc").iterdir())))

    def _resident(self, process: Path) -> int:
        if not process.name.isdecimal():
            return 0
        try:
            # Behind the name in brackets: state, parent, group, session; resident pages are 22nd.
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0
        own = int(fields[3]) == self._session
        return int(fields[21]) * os.sysconf("SC_PAGE_SIZE") if own else 0
