"""An app sends only in the process that opened its outbox, until `close`."""

import math
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client.test_store_source import Kept
from tests.waiting import PATIENCE_S
from udpfast.archive.bus_files import describe_store, shared_directory
from udpfast.client.app import App
from udpfast.errors import NotReadyError


def run_daemon(folder: Path) -> str:
    """Leave a store as its daemon does when it has run; return its address."""
    made = Kept(folder)
    made.live.introduce("S", shared_directory(made.store.log.directory), by_feed=False)
    describe_store(made.store.log.directory, {"host": "S", "by_feed": False})
    made.tell()
    return f"store:{made.folder}"


@pytest.fixture
def address(tmp_path: Path) -> str:
    """A store whose daemon has run."""
    return run_daemon(tmp_path / "orders")


def in_child(work: Callable[[], object]) -> str:
    """Return what some work raises, or returns, in a forked child."""
    source, target = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = f"done: {work()}"
        except Exception as problem:
            said = f"{type(problem).__name__}: {problem}"
        os.write(target, said.encode())
        os._exit(0)
    os.close(target)
    with os.fdopen(source, "rb") as file:
        said = file.read().decode()
    os.waitpid(child, 0)
    return said


def test_closed_app_sends_nothing_beside_the_one_that_has_its_outbox(address: str) -> None:
    closed = App(address, "a")
    outbox = closed.outbox
    assert closed.send(b"1") == 1
    closed.close()
    closed.close()
    with App(address, "a") as app:
        assert app.send(b"2") == 2
        for send in (closed.send, outbox.send):
            with pytest.raises(ValueError, match="outbox of a is closed"):
                send(b"lost")
        assert app.send(b"3") == 3


def test_repr_says_how_far_its_messages_are(address: str) -> None:
    with App(address, "a") as app:
        app.send(b"1")
        text = repr(app)
        assert text.startswith(f"<App a of {address} accepted=1 seen=0 ")
    assert repr(app) == f"<App a of {address} closed>"


def test_forked_child_sends_nothing_of_its_parents_app(address: str) -> None:
    with App(address, "a") as app:
        assert app.send(b"1") == 1
        said = in_child(lambda: app.send(b"lost"))
        assert said.startswith("WriterExistsError: outbox of a: only process ")
        assert f" {os.getpid()}, which opened it" in said
        assert in_child(lambda: app.outbox.send(b"lost")).startswith("WriterExistsError: outbox")
        assert in_child(app.close) == "done: None"
        assert in_child(lambda: App(address, "b").send(b"1")) == "done: 1"
        # The parent still has the lock.
        assert in_child(lambda: App(address, "a")).startswith("WriterExistsError")
        assert app.send(b"2") == 2


@pytest.mark.parametrize("end", ["closed", "dropped"])
def test_name_is_free_while_a_forked_child_lives(address: str, end: str) -> None:
    app = App(address, "a")
    source, target = os.pipe()
    child = os.fork()
    if not child:
        os.write(target, b"1")
        signal.pause()
    try:
        os.read(source, 1)
        if end == "closed":
            app.close()
        del app
        App(address, "a").close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(source)
        os.close(target)


@pytest.mark.parametrize("timeout", [PATIENCE_S, None])
def test_app_waits_for_a_daemon_that_is_about_to_run(tmp_path: Path, timeout: float | None) -> None:
    daemon = threading.Timer(0.1, run_daemon, [tmp_path / "orders"])
    daemon.start()
    with App(f"store:{tmp_path / 'orders'}", "a", timeout=timeout) as app:
        assert app.send(b"1") == 1
    daemon.join()


def test_app_waits_for_no_daemon_beyond_its_timeout(tmp_path: Path) -> None:
    begun_s = time.monotonic()
    with pytest.raises(NotReadyError, match="expected a store whose daemon has run"):
        App(f"store:{tmp_path}", "a", timeout=0.05)
    assert time.monotonic() - begun_s >= 0.05


@pytest.mark.parametrize("timeout", [-1, math.nan])
def test_app_whose_timeout_is_none_is_refused_before_it_waits(
    tmp_path: Path, timeout: float
) -> None:
    with pytest.raises(ValueError, match="timeout must be"):
        App(f"store:{tmp_path}", "a", timeout=timeout)
