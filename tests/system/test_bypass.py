"""`udpfast run --bypass` as a user starts it: processes under stub libraries, over loopback."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.net.preload import build_stub
from tests.system.feed_files import feed as feed_file
from tests.system.test_subscriber import send
from tests.waiting import PATIENCE_S, wait_until
from udpfast.client.counters import counters

pytestmark = pytest.mark.system

COUNT = 700


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Return a stub of OpenOnload."""
    return build_stub("onload", tmp_path_factory.mktemp("stub"))


@pytest.fixture
def feed(port, tmp_path, monkeypatch):
    """Return the file of a feed on loopback."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    return feed_file(tmp_path, "test", port=port)


def udpfast(*arguments, prefix=(), **environment):
    """Start `udpfast` as a process."""
    return subprocess.Popen(
        [*prefix, sys.executable, "-m", "udpfast", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def finished(*arguments, **environment):
    """Run `udpfast` to its end; return exit code, stdout and stderr."""
    process = udpfast(*arguments, **environment)
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def received():
    """Return how many messages the instance has; 0 while it does not exist."""
    try:
        return counters("test")["incremental"]["messages"]
    except (OSError, ValueError):
        return 0


def run_and_send(process, port):
    """Wait until an instance runs, send, look at it with `stat`, end it."""
    out = ""
    while "test at" not in out:
        line = process.stdout.readline()
        assert line, process.communicate()
        out += line
    send(port, range(1, COUNT + 1))
    wait_until(lambda: received() == COUNT, "messages")
    alive = finished("stat", "test", "--json")[1]
    process.send_signal(signal.SIGTERM)
    # By the same buffer as above: communicate() would not see what it holds.
    out += process.stdout.read()
    err = process.stderr.read()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    return json.loads(alive.splitlines()[-1]), out, err


def test_run_under_a_stack_receives_every_datagram_through_it(feed, port, library, tmp_path):
    process = udpfast(
        "run", feed, "--bypass", "onload", "--bypass-library", library,
        EF_POLL_USEC="77", EF_NAME="mine", STUB_COUNT=str(tmp_path / "count"),
    )  # fmt: skip
    status, out, err = run_and_send(process, port)
    # What libc's symbols carried is what was received: the stub stands in front of them.
    assert int((tmp_path / "count").read_text()) == COUNT
    # It says so, loudly, that a stub accelerates nothing.
    words = "onload: loaded, but using the kernel's stack"
    assert f"WARNING udpfast: test: bypass {words}" in err
    assert status["bypass"]["is"] == words
    assert status["bypass"]["environment"] == {
        "EF_NAME": "mine",
        "EF_POLL_USEC": "77",
        "EF_UDP_RCVBUF": str(1 << 26),
        "LD_PRELOAD": str(library),
    }
    assert "environment EF_NAME=mine" in out
    assert status["counters"]["feed"]["bypass_stack"] == 1
    assert status["counters"]["feed"]["bypass_state"] == 2
    # Dead, it still tells.
    assert f"bypass {words}" in finished("stat", "test")[1]


def test_run_without_a_stack_says_nothing_of_it(feed, port):
    status, _, err = run_and_send(udpfast("run", feed), port)
    assert status["bypass"] == {"is": "none: sockets are the kernel's", "environment": {}}
    assert "bypass" not in err


def test_run_missing_library_is_refused_before_anything_starts(feed, tmp_path):
    code, out, err = finished("run", feed, "--bypass", "vma", "--bypass-library", "/none/libvma.so")
    assert (code, out) == (2, "")
    assert err.partition(" ")[2] == (
        "ERROR udpfast: bypass vma: expected a shared library, found /none/libvma.so: "
        "No such file or directory\n"
    )
    assert [path.name for path in (tmp_path / "shm").iterdir()] == [".runs"]  # that it failed


def test_run_strict_ends_where_the_stack_does_not_accelerate(feed, library):
    with feed.open("a") as file:
        file.write(f'[bypass]\nstack = "onload"\nlibrary = "{library}"\n')
    code, out, err = finished("run", feed, "--bypass-strict")
    assert code == 1
    assert "EF_NO_FAIL=0" in out
    assert err.partition(" ")[2].startswith(
        "ERROR udpfast: bypass onload: loaded, but using the kernel's stack: no /dev/"
    )


def test_run_launched_without_its_library_is_absent_and_says_so(feed, port):
    # What ld.so leaves behind when it ignores LD_PRELOAD: the marker, and no library.
    process = udpfast("run", feed, "--bypass", "onload", UDPFAST_BYPASS="onload")
    status, _, err = run_and_send(process, port)
    assert "WARNING udpfast: test: bypass onload: NOT ACTIVE, not even loaded" in err
    assert status["counters"]["feed"]["bypass_state"] == 1


def test_run_under_another_stack_than_asked_for_is_refused(feed, library):
    code, _, err = finished("run", feed, "--bypass", "vma", LD_PRELOAD=str(library))
    assert code == 2
    assert "expected no other stack to be preloaded, found onload" in err


def test_run_bypass_options_without_a_stack_are_wrong_usage(feed):
    code, _, err = finished("run", feed, "--bypass-strict")
    assert code == 2
    assert "need --bypass" in err


def test_run_first_call_that_fails_is_said_and_survived(feed, port, library):
    process = udpfast(
        "run", feed, "--bypass", "onload", "--bypass-library", library, STUB_FIRST_FAILS="1"
    )
    _, _, err = run_and_send(process, port)
    assert "WARNING udpfast: test: bypass onload: its first call failed: Function not impl" in err


def test_run_with_the_device_open_is_accelerated(feed, port, library, tmp_path):
    # A /dev of its own in which the stub finds the driver's device.
    device = tmp_path / "dev"
    device.mkdir()
    for name in ("null", "zero", "urandom", "onload"):
        (device / name).touch()
    (device / "shm").mkdir()
    script = (
        f"for name in null zero urandom; do mount --bind /dev/$name {device}/$name; done; "
        f"mount --bind /dev/shm {device}/shm; "
        f'mount --rbind {device} /dev; exec "$@"'
    )
    prefix = ("unshare", "--mount", "sh", "-ec", script, "sh")
    try:
        probe = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("no unshare to give the process a /dev of its own")
    if probe.returncode:
        pytest.skip("no right to give the process a /dev of its own")
    process = udpfast(
        "run", feed, "--bypass", "onload", "--bypass-library", library, "--bypass-strict",
        prefix=prefix, STUB_DEVICE="/dev/onload",
    )  # fmt: skip
    status, out, err = run_and_send(process, port)
    assert "udpfast: test: bypass onload: accelerated" in out
    assert [line.split()[1] for line in err.splitlines()] == ["INFO"] * 2  # its end
    assert status["bypass"]["is"] == "onload: accelerated"


def test_check_says_what_is_installed_and_what_a_start_would_set(feed, library):
    with feed.open("a") as file:
        file.write(f'[bypass]\nstack = "onload"\nlibrary = "{library}"\n')
    out = finished("check", feed, "--json", EF_LOG="all")[1]
    found = {item["name"]: item for item in json.loads(out.splitlines()[-1])["host"]}
    assert found["bypass onload"]["ok"] is True
    assert found["bypass onload"]["have"] == str(library)
    assert "EF_POLL_USEC=100000" in found["bypass onload start"]["have"]
    assert "EF_LOG=all" in found["bypass environment"]["have"]
    library.rename(library.with_suffix(".gone"))
    try:
        out = finished("check", feed, "--json")[1]
    finally:
        library.with_suffix(".gone").rename(library)
    found = {item["name"]: item for item in json.loads(out.splitlines()[-1])["host"]}
    assert found["bypass onload"]["ok"] is False
    assert str(library) in found["bypass onload"]["have"]
