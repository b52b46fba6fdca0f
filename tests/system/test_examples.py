"""The examples of the documentation, run together as their first lines say."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import udpfast
from tests.system.feed_files import feed
from tests.test_header import compiler
from tests.waiting import PATIENCE_S, wait_until
from udpfast import Books
from udpfast.config import parse_publish
from udpfast.log.readers import list_readers
from udpfast.net.ports import free_ports
from udpfast.payload.roq.encode import encode_book

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"

pytestmark = pytest.mark.system


def start(name, *arguments):
    """Start an example as a process."""
    return subprocess.Popen(
        [sys.executable, str(EXAMPLES / name), *arguments], stdout=subprocess.PIPE, text=True
    )


def test_publish_subscribe_and_read_examples_work_together(tmp_path, monkeypatch):
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    ports = dict(zip(("29001", "29101", "29002"), free_ports(3), strict=True))
    files = {}
    for name in ("feed.toml", "publish.toml"):  # else two runs of this test on a host meet
        text = (EXAMPLES / name).read_text()
        files[name] = tmp_path / name
        files[name].write_text(re.sub("|".join(ports), lambda port: str(ports[port[0]]), text))
    subscriber = start("subscribe.py", str(files["feed.toml"]))
    assert "ring:example" in subscriber.stdout.readline()
    reader = start("read_books.py", "ring:example")
    wait_until(  # else the feed may have ended before it comes, and its books are in doubt
        lambda: reader.pid in [each.pid for each in list_readers(tmp_path / "example")],
        "the reader",
    )
    publisher = start("publish.py", str(files["publish.toml"]))
    publisher.communicate(timeout=PATIENCE_S)
    assert publisher.returncode == 0
    subscriber.send_signal(signal.SIGTERM)
    output, _ = subscriber.communicate(timeout=PATIENCE_S)
    assert "101 messages, 0 lost" in output
    lines = reader.communicate(timeout=PATIENCE_S)[0].splitlines()
    assert 1 <= len(lines) <= 101  # the state when it came, then every change
    assert lines[-1].startswith("example BTC sound")
    assert "100.0" in lines[-1]


def test_late_joiner_in_c_has_the_books_of_a_python_reader_at_that_record(tmp_path, monkeypatch):
    """A feed runs and updates come; each time a program in C joins, its books are compared."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    late = tmp_path / "late"
    include = f"-I{udpfast.get_include()}"
    subprocess.run([compiler(), "-std=c11", include, "-o", late, EXAMPLES / "late.c"], check=True)
    path = feed(tmp_path, "joined", "[image]\nenabled = true\ninterval_ms = 20")
    address = path.read_text().split('"')[-2]
    command = [sys.executable, "-m", "udpfast", "run", str(path)]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        reader = udpfast.Reader("ring:joined", start="begin", timeout=PATIENCE_S)
        settings = parse_publish({"incremental": [{"address": address}]})
        said = []
        with udpfast.Publisher(settings) as publisher:
            for turn in range(1, 4):
                joiner = subprocess.Popen([late, "ring:joined", "50"], stdout=subprocess.PIPE)
                publish_until(publisher, joiner)
                said.append(joiner.communicate()[0].decode())
                assert joiner.returncode == 0, turn
        books = Books()
        for name, index, lines in at_records("".join(said)):
            while reader.index < index:
                books.apply(next(reader))
            expected = [
                f"{symbol} {book.best()[0]:g} {book.best()[2]:g}" + " stale" * book.stale
                for (_, symbol), book in books.items()
            ]
            assert sorted(lines) == sorted(expected), (name, index)
        assert len(books) == 5
        assert any(not book.stale for book in books.values())
    finally:
        run.send_signal(signal.SIGTERM)
        run.wait(PATIENCE_S)


def publish_until(publisher, joiner):
    """Send updates of five books until a program has ended."""
    deadline = time.monotonic() + PATIENCE_S
    number = 0
    while joiner.poll() is None:
        assert time.monotonic() < deadline
        number += 1
        symbol = number % 5
        update = encode_book(
            "example", f"S{symbol}", bids=[(100.0 + number % 7, float(number))],
            asks=[(120.0 - number % 3, 1.0)],
        )  # fmt: skip
        publisher.send(update, object_type=41, object_id=symbol)
        time.sleep(0.001)


def at_records(text):
    """Yield each moment that the programs printed: its name, the next record, their books."""
    for part in re.split(r"^(?=joined|stopped)", text, flags=re.MULTILINE)[1:]:
        head, *lines = part.splitlines()
        name, index = head.rsplit(" record ", 1)
        yield name, int(index), lines
