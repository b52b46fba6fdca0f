"""Fixtures for every test."""

import contextlib
import gc
import importlib
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from udpfast.net.ports import free_port

# A loaded two-core machine stops a test for longer than any deadline worth having.
settings.register_profile("udpfast", deadline=None)
settings.load_profile("udpfast")

# Nothing here multiplies matrices: numpy needs no thread for each core, in no process of a test.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A shell has what it starts in the background ignore Ctrl-C, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: Most of what tests write are rings, which belong in memory: on a disk they are 20 GB, have no
#: huge pages, and are half of the time. tests/log has a disk. Set before pytest makes its first
#: directory, also for the programs that tests start.
MEMORY = "/dev/shm"
ADVISED_BYTES = 6 << 30
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ADVISED_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)
    tempfile.tempdir = os.environ.setdefault("TMPDIR", MEMORY)

#: What takes longest begins first, so that no worker is left alone with it in the end.
LONG = (
    *("spark", "test_monitor_page.py", "test_bus_faults.py", "test_packaging.py"),
    *("test_recovery.py", "test_feed_store.py", "test_signals.py", "test_tune_host.py"),
    *("test_composite_copy_lost.py", "test_properties.py", "test_ring_header.py"),
    *("test_store_damage.py", "test_relaycheck.py", "bench", "system", "lab"),
)

#: What only a checkout has, and no user runs (benchmarks, pictures, the site), a cluster, slices of
#: campaigns that the night runs whole, and tests of what campaigns find and say.
NIGHTLY = (
    *("bench", "test_notebook.py", "test_site.py", "test_bench_reports.py", "test_cluster.py"),
    *("test_relaychain.py", "test_latejoin.py", "test_export_runs.py", "test_exportcheck.py"),
    *("test_seamcheck.py", "test_zmq_stall.py", "test_conformance_truths.py"),
    *("test_seeded_clock.py", "test_wireshark.py", "test_alerts.py", "test_bus_demo.py"),
)

#: What is run of the others, unless something else is asked for (`pyproject.toml`).
NOT_NIGHTLY = "not nightly"

#: All tests in it share a session of Spark, which takes long to begin.
SPARK = "tests/spark/"


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each file to one of the workers as a whole, and those of Spark to one.

    So fixtures of a file are made once, and its tests run in their order, however many work.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            return SPARK if path.startswith(SPARK) else path

    return ByFile(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what only `make nightly` runs, unless it or a part of it is asked for."""
    asked = config.option.markexpr != NOT_NIGHTLY or any(
        Path(each.partition("::")[0]).resolve().is_relative_to(collection_path)
        for each in config.args
    )
    return True if collection_path.name in NIGHTLY and not asked else None


def _import_own_share_first(config: pytest.Config) -> None:
    """Have each of several workers begin with other files, all of which it imports.

    pytest compiles a file when it is first imported, 7 s for all: so no two compile the same one.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args != config.getini("testpaths"):
        return
    names = sorted(
        path.relative_to(config.rootpath).with_suffix("").parts
        for path in (config.rootpath / "tests").rglob("test_*.py")
        if set(NIGHTLY).isdisjoint(path.parts)
    )
    at = len(names) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for name in names[at:] + names[:at]:
        # What is wrong with it, or missing for it, is said when it is collected.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(name))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Look for garbage only among what comes when all tests are collected: they are there to stay.

    A fifth of the time to collect them; and a test that collects garbage has only its own to see.
    """
    gc.disable()
    try:
        _import_own_share_first(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000)  # by default after 700 objects: 3.5% of all tests' time
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before what is not asked for is left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what only `make nightly` runs; begin with what takes longest, where several work."""
    for item in items:
        if not set(NIGHTLY).isdisjoint(item.path.parts):
            item.add_marker("nightly")
    if hasattr(config, "workerinput"):
        items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    return next((at for at, name in enumerate(LONG) if name in item.path.parts), len(LONG))


@pytest.fixture(scope="session", autouse=True)
def shared_memory() -> Iterator[None]:
    """Keep what tests put below /dev/shm apart from what else runs here, and from each other."""
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    root = tempfile.mkdtemp(prefix="udpfast-tests-", dir=memory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UDPFAST_SHM", root)
        yield
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def rng() -> random.Random:
    """Return a seeded generator, the same in every run."""
    return random.Random(20_261_121)


@pytest.fixture
def port() -> int:
    """Return a port of the loopback that nobody uses."""
    return free_port()
