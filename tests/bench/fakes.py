"""Benchmarks that measure nothing, and a host that has nothing: what the harness makes of them."""

import dataclasses
import io
import json
from collections.abc import Iterator
from typing import Any

from bench.host import Fingerprint
from bench.result import Row, Writer
from bench.runner import run_all
from bench.trials import Benchmark, Settings

HOST = Fingerprint(
    kernel="6.1",
    distribution="Debian",
    cpu="EPYC",
    virtual="yes",
    cores=2,
    governor="absent",
    isolated="none",
    clocksource="tsc",
    memory_bytes=1 << 33,
    rmem_max=212_992,
    python="CPython 3.11.7",
    compiler="gcc 12.2.0",
    flags="-O3",
    commit="0123456789ab",
    dirty=False,
    version="0.1.0",
    date="2026-11-21T10:00:00+00:00",
)

ONE_CORE = Settings(rounds=3, cores=(0, 0))


def row(variant: str = "udpfast", **changes: Any) -> Row:
    """Return a row of the benchmark "drain"."""
    plain = Row("drain", variant, {"size": 80}, "ns", [1.0, 2.0, 3.0], "NEAR", verified="all read")
    return dataclasses.replace(plain, **changes)


def fake(name: str, *rows: Row | Exception) -> Benchmark:
    """Return a benchmark that yields rows, and raises what is no row."""

    def run(settings: Settings) -> Iterator[Row]:
        for item in rows:
            if isinstance(item, Exception):
                raise item
            yield item

    return Benchmark(name, "Does it work?", "a -> b", run, 1.0)


def run_fakes(*benchmarks: Benchmark) -> tuple[list[tuple[str, str]], list[dict[str, Any]]]:
    """Run benchmarks; return the failures and the lines of the result."""
    file = io.StringIO()
    by_name = {benchmark.name: benchmark for benchmark in benchmarks}
    failures, _ = run_all(by_name, ONE_CORE, HOST, Writer(file))
    return failures, [json.loads(line) for line in file.getvalue().splitlines()]
