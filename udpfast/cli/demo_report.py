"""The report that ends `udpfast demo`, if Spark is installed."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import click

from udpfast.errors import UdpfastError
from udpfast.spark.java import JavaMissingError, find_java

__all__ = ["make_report", "what_a_report_lacks"]


def what_a_report_lacks() -> str | None:
    """Return in one line what a report needs and is not here; None if there is nothing."""
    for module in ("pyspark", "pyarrow", "bokeh"):
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed: pip install 'udpfast[spark]'"
    try:
        find_java()
    except JavaMissingError as error:
        return str(error)
    return None


def make_report(directory: Path) -> Path:
    """Run the pipeline over what was kept, keep its tables; return the page."""
    journal = directory.resolve() / "journal"
    click.echo("")
    command = [sys.executable, "-m", "udpfast", "spark", "run", str(journal), str(directory)]
    process = subprocess.run(
        [*command, "--bar-s", "1", "--quick"], stdout=subprocess.DEVNULL, check=False
    )
    if process.returncode != 0:
        raise UdpfastError(f"the pipeline ended with exit code {process.returncode}")
    shutil.rmtree(journal)  # half a gigabyte of raw datagrams; the export has its tables
    return directory / "report.html"
